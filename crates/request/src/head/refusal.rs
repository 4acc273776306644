//! Why a request head is refused, and what the client and the log are told of it.
//!
//! Runs in: gates and site workers, unprivileged. Untrusted input: none. Must never: quote what a client sent.

use std::borrow::Cow;

/// Why a head is refused; [`HeadRefusal::status`] is what the client is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadRefusal {
    /// The bytes are not a request head, or one that could be read in two ways.
    Malformed(&'static str),
    /// A request that is one, and that no honest client sends.
    Strange(&'static str),
    /// More bytes or lines than the limit.
    TooLarge,
    /// A longer target than [`TARGET_BYTES_MAX`](super::TARGET_BYTES_MAX), or than the checks of heads allow.
    TargetTooLong,
    /// Another version than HTTP/1.0 and HTTP/1.1, and none that is to be taken for HTTP/1.1.
    Version,
    /// `CONNECT`, which only proxies answer, and `TRACE`, which tells others what a browser keeps to itself.
    NotImplemented,
    /// An expectation other than `100-continue`.
    Expectation,
    /// The head did not arrive in time.
    Late,
    /// The body is larger than the limit.
    BodyTooLarge,
}

impl HeadRefusal {
    /// The status code of the answer.
    pub fn status(self) -> http::StatusCode {
        match self {
            HeadRefusal::Malformed(_) | HeadRefusal::Strange(_) => http::StatusCode::BAD_REQUEST,
            HeadRefusal::TooLarge => http::StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            HeadRefusal::TargetTooLong => http::StatusCode::URI_TOO_LONG,
            HeadRefusal::Version => http::StatusCode::HTTP_VERSION_NOT_SUPPORTED,
            HeadRefusal::NotImplemented => http::StatusCode::NOT_IMPLEMENTED,
            HeadRefusal::Expectation => http::StatusCode::EXPECTATION_FAILED,
            HeadRefusal::Late => http::StatusCode::REQUEST_TIMEOUT,
            HeadRefusal::BodyTooLarge => http::StatusCode::PAYLOAD_TOO_LARGE,
        }
    }

    /// The fault, for the log.
    pub fn reason(self) -> &'static str {
        match self {
            HeadRefusal::Malformed(what) | HeadRefusal::Strange(what) => what,
            HeadRefusal::TooLarge => "a request head that is too long",
            HeadRefusal::TargetTooLong => "a target that is too long",
            HeadRefusal::Version => "another version of HTTP than 1.0 and 1.1",
            HeadRefusal::NotImplemented => "CONNECT or TRACE",
            HeadRefusal::Expectation => "an unknown `Expect`",
            HeadRefusal::Late => "a request that did not arrive in time",
            HeadRefusal::BodyTooLarge => "a request body that is too large",
        }
    }

    /// The operator's remedy, if clients that mean well are refused; may be empty.
    pub fn remedy(self) -> &'static str {
        match self {
            HeadRefusal::Strange(_) => "`checks = \"lenient\"` of [conditioning] lets more pass",
            HeadRefusal::TooLarge => "`head_bytes` of [limits] lets longer ones pass",
            HeadRefusal::TargetTooLong => {
                "a target has at most 16 KiB, 4 KiB with `checks = \"strict\"` of [conditioning], and never more than \
                 `head_bytes` of [limits]"
            }
            HeadRefusal::Late => "`head_timeout` of [conditioning] gives more time",
            HeadRefusal::BodyTooLarge => "`body_bytes` of [limits], a site or a route lets larger ones pass",
            _ => "",
        }
    }

    /// The sentence about it, for people.
    pub fn sentence(self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            HeadRefusal::Malformed(what) => {
                return format!("What was sent is not a valid HTTP request: {what}.").into();
            }
            HeadRefusal::Strange(what) => {
                return format!("This server does not accept requests like this one: {what}.").into();
            }
            HeadRefusal::TooLarge => "The request head is longer than this server allows.",
            HeadRefusal::TargetTooLong => "The address is longer than this server allows.",
            HeadRefusal::Version => "This server speaks HTTP/1.1 and HTTP/1.0.",
            HeadRefusal::NotImplemented => "This server is not a proxy.",
            HeadRefusal::Expectation => "This server knows no such expectation.",
            HeadRefusal::Late => "The request did not arrive in time.",
            HeadRefusal::BodyTooLarge => "The request body is larger than this server allows.",
        })
    }
}
