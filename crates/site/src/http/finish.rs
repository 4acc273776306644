//! The headers that every response gets in the end, whichever backend makes it and whichever codec writes it.
//!
//! Untrusted input: the headers of a backend's response. Must never: let the two codecs say different things.

use http::header::{self, HeaderValue};
use http::{Response, StatusCode};
use request::fields::remove_of_connection;

use crate::http::body::{Intake, ResponseBody};
use crate::http::response;
use request::error::SERVER;

/// The properties of a response's writer on which its headers depend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Codec {
    /// HTTP/1, whose codec adds what there is to say of the connection.
    Http1,
    /// HTTP/2, which has no fields about connections (RFC 9113 8.2.2).
    Http2,
}

/// Makes `response` one for the client: a refusal in its place, if the body of the request was cut short, and the
/// fields that all responses have. `intake` says how far the body of the request came.
pub(crate) fn finish(
    mut response: Response<ResponseBody>,
    codec: Codec,
    intake: Intake,
    date: HeaderValue,
    hsts: Option<&HeaderValue>,
) -> Response<ResponseBody> {
    match intake {
        Intake::TooLarge => instead(&mut response, StatusCode::PAYLOAD_TOO_LARGE),
        Intake::Slow => instead(&mut response, StatusCode::REQUEST_TIMEOUT),
        Intake::Open | Intake::Done | Intake::Abandoned => {}
    }
    let headers = response.headers_mut();
    // The connection ends with a request whose rest is not read.
    let closes = matches!(intake, Intake::TooLarge | Intake::Slow | Intake::Abandoned);
    match codec {
        Codec::Http2 => remove_of_connection(headers),
        _ if closes => drop(headers.insert(header::CONNECTION, HeaderValue::from_static("close"))),
        Codec::Http1 => {}
    }
    headers.insert(header::SERVER, HeaderValue::from_static(SERVER));
    headers.entry(header::DATE).or_insert(date);
    if let Some(hsts) = hsts {
        headers.insert(header::STRICT_TRANSPORT_SECURITY, hsts.clone());
    }
    response
}

/// Puts an error in the place of an answer that says anything else; the operator's own page for the error stays.
fn instead(response: &mut Response<ResponseBody>, status: StatusCode) {
    if response.status() != status {
        *response = response::error(status);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finished(codec: Codec, intake: Intake) -> Response<ResponseBody> {
        let mut response = response::empty(StatusCode::OK);
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        finish(
            response,
            codec,
            intake,
            HeaderValue::from_static("now"),
            Some(&HeaderValue::from_static("max-age=1")),
        )
    }

    #[test]
    fn both_codecs_say_the_same() {
        for codec in [Codec::Http1, Codec::Http2] {
            for (intake, status) in
                [(Intake::Done, 200), (Intake::Abandoned, 200), (Intake::TooLarge, 413), (Intake::Slow, 408)]
            {
                let response = finished(codec, intake);
                assert_eq!(response.status().as_u16(), status);
                assert_eq!(response.headers()["server"], SERVER);
                assert_eq!(response.headers()["strict-transport-security"], "max-age=1");
                assert!(response.headers().contains_key("date"));
            }
        }
    }

    #[test]
    fn only_http1_speaks_of_the_connection() {
        assert!(!finished(Codec::Http2, Intake::Abandoned).headers().contains_key("connection"));
        assert_eq!(finished(Codec::Http1, Intake::Abandoned).headers()["connection"], "close");
        assert_eq!(finished(Codec::Http1, Intake::Done).headers()["connection"], "upgrade");
    }
}
