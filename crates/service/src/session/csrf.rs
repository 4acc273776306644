//! Tells a form of ours from one that another site had a browser send.
//!
//! Runs in: a service's worker. Sees: headers and tokens that a client made up. Never: says by the time it takes how
//! much of a token was right.
//!
//! Source: W3C Fetch Metadata; RFC 6454 7 (Origin); Gluck, Harris and Prado, "BREACH", 2013, 3.4 (masking secrets).

use std::fmt::{self, Write as _};

use http::header::{HOST, ORIGIN};
use http::{HeaderMap, HeaderName, StatusCode};
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq as _;

use crate::{Response, SealedError};

/// The name of the hidden field that [`crate::Session::csrf_field`] makes.
pub const CSRF_FIELD: &str = "csrf_token";
pub(super) const CSRF_HEADER: HeaderName = HeaderName::from_static("x-csrf-token");
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const LENGTH: usize = 16;

/// Random bytes that only the pages of one user's session hold.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(super) struct CsrfToken([u8; LENGTH]);

/// Why a form is not taken; converts into the [`Response`] to be given, 403.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CsrfError {
    /// The browser says that another site sent it.
    #[error("the form was sent from a page of another site")]
    OtherSite,
    /// There is no session, or none that was given a form.
    #[error("the form is of a session that is over")]
    NoSession,
    /// There is no token in it.
    #[error("the form has no token")]
    NoToken,
    /// The token is not that of this session.
    #[error("the form has the token of another session")]
    WrongToken,
}

impl CsrfToken {
    pub(super) fn random() -> Result<Self, SealedError> {
        let mut bytes = [0; LENGTH];
        getrandom::fill(&mut bytes)?;
        Ok(Self(bytes))
    }

    /// A random pad, and the token under it, as hexadecimal digits.
    ///
    /// SECURITY: a compressed page that repeats what a client sent tells by its length whether that is like a secret in
    /// it.
    pub(super) fn masked(self) -> Result<String, SealedError> {
        let Self(pad) = Self::random()?;
        let mut text = String::with_capacity(4 * LENGTH);
        for byte in pad.iter().copied().chain(pad.iter().zip(self.0).map(|(pad, byte)| pad ^ byte)) {
            // Formatting into a String does not fail.
            let _ = write!(text, "{byte:02x}");
        }
        Ok(text)
    }

    /// Whether `text` is this token, masked.
    pub(super) fn is(self, text: &str) -> bool {
        let mut bytes = [0; 2 * LENGTH];
        if text.len() != 4 * LENGTH || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return false;
        }
        for (byte, at) in bytes.iter_mut().zip((0..).step_by(2)) {
            *byte = u8::from_str_radix(&text[at..at + 2], 16).unwrap_or_default();
        }
        let (pad, masked) = bytes.split_at_mut(LENGTH);
        pad.iter_mut().zip(masked).for_each(|(pad, byte)| *pad ^= *byte);
        pad.ct_eq(&self.0).into()
    }
}

impl fmt::Debug for CsrfToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// Refuses what a browser says that a page of another origin has sent. Scripts cannot set these headers, and a client
/// that sends none of them has no other site's page in it, or is too old to tell.
pub(super) fn check_origin(headers: &HeaderMap) -> Result<(), CsrfError> {
    let is_ours = match (headers.get(FETCH_SITE), headers.get(ORIGIN)) {
        (Some(site), _) => site == "same-origin" || site == "none",
        (None, Some(origin)) => is_of_host(origin.as_bytes(), headers),
        (None, None) => true,
    };
    if is_ours { Ok(()) } else { Err(CsrfError::OtherSite) }
}

/// Whether an origin is that of the host that a request is for. A proxy before us may have ended TLS, so the scheme is
/// not compared.
pub(crate) fn is_of_host(origin: &[u8], headers: &HeaderMap) -> bool {
    let host = origin.windows(3).position(|window| window == b"://").map(|at| &origin[at + 3..]);
    host.zip(headers.get(HOST)).is_some_and(|(host, ours)| host.eq_ignore_ascii_case(ours.as_bytes()))
}

impl From<CsrfError> for Response {
    fn from(_: CsrfError) -> Self {
        let sentence =
            "This form is too old, or was not sent by this site. Go back, reload the page and send it again.";
        Self::status_text(StatusCode::FORBIDDEN, sentence)
    }
}
