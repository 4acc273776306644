//! Why a gate answers a request itself, and in which words.

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
    /// Status code, reason phrase, and a sentence for people.
    pub fn words(self) -> (u16, &'static str, &'static str) {
        match self {
            Self::Head(head::Refusal::TooLarge) => (
                431,
                "Request Header Fields Too Large",
                "The request head is longer than this server allows.",
            ),
            Self::Head(head::Refusal::Version) => {
                (505, "HTTP Version Not Supported", "This server speaks HTTP/1.1 and HTTP/1.0.")
            }
            Self::Head(head::Refusal::NotImplemented) => {
                (501, "Not Implemented", "This server is not a proxy.")
            }
            Self::Head(head::Refusal::Late) => {
                (408, "Request Timeout", "The request did not arrive in time.")
            }
            Self::Head(head::Refusal::Expectation) => {
                (417, "Expectation Failed", "This server knows no such expectation.")
            }
            Self::Head(head::Refusal::BodyTooLarge) => {
                (413, "Content Too Large", "The request body is larger than this server allows.")
            }
            Self::Head(head::Refusal::Malformed(_)) => {
                (400, "Bad Request", "What was sent is not a valid HTTP request.")
            }
            Self::NoSuchSite => (404, "Not Found", "There is no such site here."),
            Self::Broken => (500, "Internal Server Error", "This part of the site is out of order."),
            Self::Unavailable => {
                (503, "Service Unavailable", "This part of the site is not available at the moment.")
            }
            Self::Strange => (400, "Bad Request", "This server does not accept requests like this one."),
            Self::NotTls => (400, "Bad Request", "This port speaks TLS: use https."),
            Self::Unseen => (400, "Bad Request", "This port speaks HTTP/1.1 only."),
            Self::Redirect(_) => (308, "Permanent Redirect", "This site is at https."),
            Self::TooMany | Self::TooManyThere => {
                (429, "Too Many Requests", "These are more requests than one client may make.")
            }
        }
    }

    /// The header line that says when to come again, if that is any use.
    pub fn retry_after(self) -> &'static str {
        match self {
            Self::Unavailable => "Retry-After: 5\r\n",
            Self::TooMany | Self::TooManyThere => "Retry-After: 1\r\n",
            _ => "",
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
