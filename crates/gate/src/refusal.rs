//! Why a gate answers a request itself, and in which words.

use std::borrow::Cow;

use http::StatusCode;
use request::head;

/// Why a request is answered here.
#[derive(Clone, Copy, Debug)]
pub enum GateRefusal {
    /// The head is not acceptable, or did not arrive in time.
    Head(head::HeadRefusal),
    /// No site has this host and path.
    NoSuchSite,
    /// The partition is broken.
    Broken,
    /// No worker took the connection in time, or too many wait.
    Unavailable,
    /// There is no room for a worker of the partition.
    NoRoom,
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

impl GateRefusal {
    /// The status code, and a sentence for people.
    pub fn words(self) -> (StatusCode, Cow<'static, str>) {
        let (status, sentence) = match self {
            Self::Head(refusal) => return (refusal.status(), refusal.sentence()),
            Self::NoSuchSite => (StatusCode::NOT_FOUND, "There is no such site here."),
            Self::Broken => (StatusCode::INTERNAL_SERVER_ERROR, "This part of the site is out of order."),
            Self::Unavailable | Self::NoRoom => {
                (StatusCode::SERVICE_UNAVAILABLE, "This part of the site is not available at the moment.")
            }
            Self::NotTls => (StatusCode::BAD_REQUEST, "This port speaks TLS: use https."),
            Self::Unseen => (StatusCode::BAD_REQUEST, "This port speaks HTTP/1.1 only."),
            Self::Redirect(_) => (StatusCode::PERMANENT_REDIRECT, "This site is at https."),
            Self::TooMany | Self::TooManyThere => {
                (StatusCode::TOO_MANY_REQUESTS, "These are more requests than one client may make.")
            }
        };
        (status, sentence.into())
    }

    /// Why, and what the operator can do, for the log; nothing of what is no mistake.
    pub fn reason(self) -> Option<(&'static str, &'static str)> {
        Some(match self {
            Self::Head(refusal) => (refusal.reason(), refusal.remedy()),
            Self::NoSuchSite => ("no site has this host and path", "name the host in a [[site]]"),
            Self::Broken => ("its process keeps ending and was given up", "`bulkhead status` has the reason"),
            Self::Unavailable => {
                ("no worker took the request in time", "`bulkhead status` says whether it runs")
            }
            Self::NoRoom => ("there is no room for its process", "`bulkhead status` says what to raise"),
            Self::NotTls => {
                ("plain HTTP on a listener with `tls`", "`redirect_to_https` of another [[listen]]")
            }
            Self::Unseen => {
                ("what no filter can see", "`unfiltered` of [[listen]] lets it pass the filters by")
            }
            Self::TooMany | Self::TooManyThere => (
                "more requests than `rate_max` of a client",
                "raise `rate_max` and `rate_burst`, or name the client in `exempt`",
            ),
            Self::Redirect(_) => return None,
        })
    }

    /// Whether it counts against the client, who will be banned for several.
    pub fn is_offence(self) -> bool {
        use head::HeadRefusal::{Late, Malformed, Strange, TargetTooLong, TooLarge};
        matches!(
            self,
            Self::Head(Late | Malformed(_) | Strange(_) | TargetTooLong | TooLarge) | Self::TooMany
        )
    }

    /// A fatal alert (RFC 8446 6): the record of a connection that has not come to keys.
    pub fn alert(self) -> [u8; 7] {
        const DECODE_ERROR: u8 = 50;
        const INTERNAL_ERROR: u8 = 80;
        const UNRECOGNIZED_NAME: u8 = 112;
        let description = match self {
            Self::NoSuchSite => UNRECOGNIZED_NAME,
            Self::Head(head::HeadRefusal::Malformed(_)) => DECODE_ERROR,
            _ => INTERNAL_ERROR,
        };
        [21, 3, 3, 0, 2, 2, description]
    }
}
