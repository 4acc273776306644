//! Why a gate answers a request itself, and in which words.

use http::StatusCode;
use request::head;

/// Why a request is answered here.
#[derive(Clone, Copy, Debug)]
pub enum Refusal {
    /// The head is not acceptable, or did not arrive in time.
    Head(head::Refusal),
    /// No site has this host and path.
    NoSuchSite,
    /// The partition is broken.
    Broken,
    /// No worker took the connection in time, or too many wait.
    Unavailable,
    /// The head is good, and no honest client sends it.
    Strange,
    /// The client makes more requests than it may.
    TooMany,
    /// The client makes more requests of one partition than it may, as this one's worker says.
    ///
    /// SECURITY: no offence, as bans are of all partitions.
    TooManyThere,
    /// It is no TLS, on a listener that speaks nothing else.
    NotTls,
    /// No filter could see the requests on it.
    Unseen,
    /// There is https for it, at this port.
    Redirect(u16),
}

impl Refusal {
    /// The status code, and a sentence for people.
    pub fn words(self) -> (StatusCode, &'static str) {
        match self {
            Self::Head(refusal) => (refusal.status(), refusal.sentence()),
            Self::NoSuchSite => (StatusCode::NOT_FOUND, "There is no such site here."),
            Self::Broken => (StatusCode::INTERNAL_SERVER_ERROR, "This part of the site is out of order."),
            Self::Unavailable => {
                (StatusCode::SERVICE_UNAVAILABLE, "This part of the site is not available at the moment.")
            }
            Self::Strange => (StatusCode::BAD_REQUEST, "This server does not accept requests like this one."),
            Self::NotTls => (StatusCode::BAD_REQUEST, "This port speaks TLS: use https."),
            Self::Unseen => (StatusCode::BAD_REQUEST, "This port speaks HTTP/1.1 only."),
            Self::Redirect(_) => (StatusCode::PERMANENT_REDIRECT, "This site is at https."),
            Self::TooMany | Self::TooManyThere => {
                (StatusCode::TOO_MANY_REQUESTS, "These are more requests than one client may make.")
            }
        }
    }

    /// Whether it counts against the client, who will be banned for several.
    pub fn is_offence(self) -> bool {
        use head::Refusal::{Late, Malformed, TooLarge};
        matches!(self, Self::Head(Late | Malformed(_) | TooLarge) | Self::Strange | Self::TooMany)
    }

    /// A fatal alert (RFC 8446 6): the record of a connection that has not come to keys.
    pub fn alert(self) -> [u8; 7] {
        const DECODE_ERROR: u8 = 50;
        const INTERNAL_ERROR: u8 = 80;
        const UNRECOGNIZED_NAME: u8 = 112;
        let description = match self {
            Self::NoSuchSite => UNRECOGNIZED_NAME,
            Self::Head(head::Refusal::Malformed(_)) => DECODE_ERROR,
            _ => INTERNAL_ERROR,
        };
        [21, 3, 3, 0, 2, 2, description]
    }
}
