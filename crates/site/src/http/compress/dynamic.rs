//! Compression of answers that were made for one request.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: answers of services and upstreams, and
//! `Accept-Encoding`. Must never: compress what its author forbade, or leave the length of what was.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Response, StatusCode};
use http_body::Body;
use request::accept_encoding::{Encoding, Negotiator};

use super::body::CompressedBody;
use super::{BYTES_MIN, Effort, Encoder, is_worth, remove_digests};
use crate::config::settings::Settings;
use crate::http::body::ResponseBody;

/// The field whose length is anybody's guess (against BREACH, which compares lengths).
const NOISE: HeaderName = HeaderName::from_static("x-nb");

/// The value of `Vary` for content that is compressed for some clients.
pub const VARIES: HeaderValue = HeaderValue::from_static("Accept-Encoding");

/// LIMIT: random bytes of it, as rwasa has them.
const NOISE_BYTES_MAX: usize = 48;

/// The properties of a request that decide about its encoding.
pub struct EncodingRequest {
    method: Method,
    accept: Option<HeaderValue>,
    /// Whether it came over TLS.
    secure: bool,
}

impl EncodingRequest {
    /// Notes it, before the request goes its way.
    pub fn new(method: &Method, headers: &HeaderMap, secure: bool) -> EncodingRequest {
        EncodingRequest { method: method.clone(), accept: accept_encoding(headers), secure }
    }
}

/// The value of `Accept-Encoding`; several lines are one list.
pub fn accept_encoding(headers: &HeaderMap) -> Option<HeaderValue> {
    let mut values = headers.get_all(header::ACCEPT_ENCODING).iter();
    let first = values.next()?;
    let Some(second) = values.next() else {
        return Some(first.clone());
    };
    let all: Vec<&[u8]> = [first, second].into_iter().chain(values).map(HeaderValue::as_bytes).collect();
    HeaderValue::from_bytes(&all.join(&b", "[..])).ok()
}

/// Compresses an answer if that is worth it, wanted and allowed.
pub fn compress(
    response: Response<ResponseBody>,
    asked: &EncodingRequest,
    settings: &Settings,
    negotiator: &Negotiator,
) -> Response<ResponseBody> {
    if !negotiator.offers() {
        return response;
    }
    let content = ContentHeaders::of(response.headers());
    let size = declared(response.headers()).or(response.body().size_hint().exact());
    if !content.is_eligible(response.status(), size, settings.max_bytes) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    vary(&mut parts.headers);
    let value = asked.accept.as_ref().map(HeaderValue::as_bytes);
    let encoding = negotiator.accepted(value).iter().next().filter(|_| asked.method != Method::HEAD);
    let encoder = encoding
        .and_then(|one| Some((one, Encoder::new(one, Effort::Dynamic(settings.dynamic_level)).ok()?)));
    let Some((encoding, encoder)) = encoder else {
        return Response::from_parts(parts, body);
    };
    relabel(&mut parts.headers, encoding);
    if asked.secure {
        add_noise(&mut parts.headers);
    }
    Response::from_parts(parts, ResponseBody::stream(CompressedBody::new(body, encoder, None)))
}

/// The headers of a response that describe its content.
#[derive(Default)]
pub struct ContentHeaders<'a> {
    media: Option<&'a [u8]>,
    /// Whether it is encoded, a part, or not to be changed (RFC 9111 5.2.2.6).
    is_fixed: bool,
    /// Whether it is said that there may be others for other values of `Accept-Encoding`.
    pub varies: bool,
}

impl<'a> ContentHeaders<'a> {
    fn of(headers: &'a HeaderMap) -> Self {
        let mut content = Self::default();
        for (name, value) in headers {
            content.note(name.as_str().as_bytes(), value.as_bytes());
        }
        content
    }

    /// Takes one line, whose name may be in any case.
    pub fn note(&mut self, name: &[u8], value: &'a [u8]) {
        let is = |other: &[u8]| name.eq_ignore_ascii_case(other);
        let mut words = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
        match name.len() {
            4 if is(b"vary") => {
                self.varies |=
                    words.any(|word| word == b"*" || word.eq_ignore_ascii_case(b"accept-encoding"));
            }
            12 if is(b"content-type") => self.media = self.media.or(Some(value)),
            13 if is(b"content-range") => self.is_fixed = true,
            13 if is(b"cache-control") => {
                self.is_fixed |= words.any(|word| word.eq_ignore_ascii_case(b"no-transform"));
            }
            16 if is(b"content-encoding") => self.is_fixed = true,
            _ => {}
        }
    }

    /// Whether a response with this status, and with so many bytes if that is known, is compressed for clients that
    /// take that.
    pub fn is_eligible(&self, status: StatusCode, size: Option<u64>, max_bytes: u64) -> bool {
        let bodiless = matches!(
            status,
            StatusCode::NO_CONTENT
                | StatusCode::RESET_CONTENT
                | StatusCode::NOT_MODIFIED
                | StatusCode::PARTIAL_CONTENT
                | StatusCode::SWITCHING_PROTOCOLS
        );
        let fits = size.is_none_or(|size| (BYTES_MIN..=max_bytes).contains(&size));
        !bodiless && !self.is_fixed && fits && self.media.is_some_and(is_worth)
    }
}

fn declared(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok())
}

/// Adds `Accept-Encoding` to `Vary`, if it is not there.
pub fn vary(headers: &mut HeaderMap) {
    if !ContentHeaders::of(headers).varies {
        headers.append(header::VARY, VARIES);
    }
}

/// Removes the headers that described the content before it was compressed.
fn relabel(headers: &mut HeaderMap, encoding: Encoding) {
    headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(encoding.token()));
    for name in [header::CONTENT_LENGTH, header::ACCEPT_RANGES] {
        headers.remove(name);
    }
    remove_digests(headers);
    // RFC 9110 8.8.1: a strong tag stands for these very bytes.
    let strong = headers.get(header::ETAG).filter(|tag| !tag.as_bytes().starts_with(b"W/"));
    if let Some(weak) = strong.and_then(|tag| HeaderValue::from_bytes(&[b"W/", tag.as_bytes()].concat()).ok())
    {
        headers.insert(header::ETAG, weak);
    }
}

fn add_noise(headers: &mut HeaderMap) {
    let mut bytes = [0; 1 + NOISE_BYTES_MAX];
    if aws_lc_rs::rand::fill(&mut bytes).is_err() {
        return;
    }
    let [length, noise @ ..] = bytes;
    let noise = &noise[..usize::from(length) % (NOISE_BYTES_MAX + 1)];
    let text: String = noise.iter().map(|byte| format!("{byte:02x}")).collect();
    if let Ok(value) = HeaderValue::try_from(text) {
        headers.insert(NOISE, value);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn settings() -> Settings {
        Settings { encodings: Encoding::ALL.to_vec(), ..Settings::default() }
    }

    fn answer(lines: &[(&str, &str)], bytes: usize) -> Response<ResponseBody> {
        let mut response = Response::new(ResponseBody::Full(vec![b'a'; bytes].into()));
        for (name, value) in lines {
            response.headers_mut().append(HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
        }
        response
    }

    fn compressed(lines: &[(&str, &str)], bytes: usize, secure: bool) -> HeaderMap {
        let asked =
            EncodingRequest { method: Method::GET, accept: Some(HeaderValue::from_static("gzip")), secure };
        let negotiator = Negotiator::new(&Encoding::ALL);
        compress(answer(lines, bytes), &asked, &settings(), &negotiator).headers().clone()
    }

    #[test]
    fn what_is_compressed_and_what_not() {
        let html = ("content-type", "text/html");
        let headers = compressed(&[html, ("content-length", "600"), ("etag", "\"x\"")], 600, false);
        assert_eq!(headers["content-encoding"], "gzip");
        assert_eq!(headers["etag"], "W/\"x\"");
        assert_eq!(headers["vary"], "Accept-Encoding");
        assert!(!headers.contains_key("content-length") && !headers.contains_key("x-nb"));
        for lines in [
            &[("content-type", "image/png")][..],
            &[],
            &[html, ("content-encoding", "br")],
            &[html, ("cache-control", "max-age=1, No-Transform")],
            &[html, ("content-range", "bytes 0-1/2")],
        ] {
            assert!(compressed(lines, 600, false).get("vary").is_none(), "{lines:?}");
        }
        assert!(!compressed(&[html], 511, false).contains_key("content-encoding"));
        assert!(
            !compressed(&[html, ("content-length", "33554433")], 600, false).contains_key("content-encoding")
        );
        assert_eq!(
            compressed(&[html, ("vary", "Cookie, accept-encoding")], 600, false)
                .get_all("vary")
                .iter()
                .count(),
            1
        );
    }

    #[test]
    fn noise_over_tls_alone_and_of_every_length() {
        let mut lengths = std::collections::BTreeSet::new();
        for _ in 0..5000 {
            let headers = compressed(&[("content-type", "text/html")], 600, true);
            let noise = headers["x-nb"].to_str().unwrap();
            assert!(noise.bytes().all(|byte| byte.is_ascii_hexdigit()));
            lengths.insert(noise.len());
        }
        assert_eq!(lengths, (0..=48).map(|bytes| 2 * bytes).collect());
    }
}
