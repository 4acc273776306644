//! A response of a backend that came as a whole, read and written in one step, without anything made of it.
//!
//! Runs in: the site worker, under the site's uid; pure. Untrusted input: every byte of the response. Must never: say
//! anything else than the general path would, or take what it would refuse.

use http::header::HeaderValue;
use http::{StatusCode, Version};
use request::date::DATE_BYTES;
use request::error::SERVER;
use request::fields;
use request::response_head::{self, RawHead, ResponseField, Room};

use super::response::{
    BodySize, RequestTraits, delimit, push_connection_of_ours, push_length, push_line, push_status,
};
use crate::http::compress::dynamic::{ContentHeaders, VARIES};
use crate::proxy::direct::push_theirs;

/// The headers that every response gets in the end.
pub(crate) struct CommonHeaders<'a> {
    pub date: [u8; DATE_BYTES],
    /// `Strict-Transport-Security`.
    pub hsts: Option<&'a HeaderValue>,
    /// The offer of compression, if anything is compressed.
    pub compressed: Option<CompressionOffer>,
}

/// The responses that are compressed, and whether this client takes that.
#[derive(Clone, Copy)]
pub(crate) struct CompressionOffer {
    /// Bytes of the largest body.
    pub max_bytes: u64,
    /// Whether this client takes one of the encodings.
    pub takes_encoded: bool,
}

/// The response that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WrittenResponse {
    pub status: u16,
    pub body_bytes: u64,
}

/// The headers of a response that decide how it is written.
#[derive(Default)]
struct FoundHeaders<'a> {
    content: ContentHeaders<'a>,
    length: Option<u64>,
    has_date: bool,
}

/// Appends the response that `data` is, as its client gets it; `None`, and nothing of use appended, if it is not whole,
/// or not for this path.
pub(crate) fn pass_back(
    out: &mut Vec<u8>,
    data: &[u8],
    request: RequestTraits,
    said: &CommonHeaders<'_>,
) -> Option<WrittenResponse> {
    let mut room = Room::default();
    let head = response_head::find(data, &mut room).ok()??;
    if head.version != Version::HTTP_11 {
        return None;
    }
    let reason = head.reason.map(str::as_bytes);
    let body = |length: Option<u64>| body_of(&head, length, request, data);
    pass_back_parts(out, (head.status, reason, head.lines), body, (request, said))
}

/// The same of a response whose head was read. `body` is what gives the body, by the length that the lines say.
pub(crate) fn pass_back_parts<'a>(
    out: &mut Vec<u8>,
    (status, reason, lines): (StatusCode, Option<&[u8]>, &[ResponseField<'_>]),
    body: impl FnOnce(Option<u64>) -> Option<&'a [u8]>,
    (request, said): (RequestTraits, &CommonHeaders<'_>),
) -> Option<WrittenResponse> {
    if !(200..600).contains(&status.as_u16()) || status == StatusCode::RESET_CONTENT {
        return None;
    }
    push_status(out, request, status, reason);
    let found = push_fields(out, lines, said.hsts.is_some())?;
    let body = body(found.length)?;
    let size = body.len() as u64;
    let declared = found.length.filter(|_| !is_bodiless(status));
    if let Some(CompressionOffer { max_bytes, takes_encoded }) = said.compressed
        && found.content.is_eligible(status, declared.or(Some(size)), max_bytes)
    {
        if takes_encoded {
            return None;
        }
        if !found.content.varies {
            push_line(out, b"vary", VARIES.as_bytes());
        }
    }
    push_line(out, b"server", SERVER.as_bytes());
    if !found.has_date {
        push_line(out, b"date", &said.date);
    }
    if let Some(hsts) = said.hsts {
        push_line(out, b"strict-transport-security", hsts.as_bytes());
    }
    push_connection_of_ours(out, request.keep, request.minor);
    if let (_, Some(length)) = delimit(request, status, declared, BodySize::Known(size)) {
        push_length(out, length);
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(body);
    Some(WrittenResponse { status: status.as_u16(), body_bytes: size })
}

pub(crate) fn is_bodiless(status: StatusCode) -> bool {
    matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
}

/// Appends what is for the client.
fn push_fields<'a>(
    out: &mut Vec<u8>,
    lines: &[ResponseField<'a>],
    has_hsts: bool,
) -> Option<FoundHeaders<'a>> {
    let mut found = FoundHeaders::default();
    for ResponseField { name, value } in lines {
        let is = |other: &str| name.eq_ignore_ascii_case(other);
        match name.len() {
            4 if is("date") => found.has_date = true,
            6 if is("server") => continue,
            10 if is("keep-alive") => continue,
            10 if is("connection") => match fields::options_of_line(value)
                .all(|option| option.eq_ignore_ascii_case(b"keep-alive"))
            {
                true => continue,
                false => return None,
            },
            14 if is("content-length") => match found.length.replace(fields::length(value)?) {
                None => continue,
                Some(_) => return None,
            },
            25 if has_hsts && is("strict-transport-security") => continue,
            // Where it says how a body comes, or speaks to us, that is heard elsewhere.
            _ if !fields::is_passed_back(name.as_bytes()) => return None,
            _ => found.content.note(name.as_bytes(), value),
        }
        push_theirs(out, name, value);
    }
    Some(found)
}

/// The body, if all of it is there, and nothing behind it.
fn body_of<'a>(
    head: &RawHead<'_, '_>,
    said: Option<u64>,
    request: RequestTraits,
    data: &'a [u8],
) -> Option<&'a [u8]> {
    let body = &data[head.length..];
    let length = match request.is_head || is_bodiless(head.status) {
        true => 0,
        false => said?,
    };
    (body.len() as u64 == length).then_some(body)
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, Method, Response};
    use request::accept_encoding::{Encoding, Negotiator};

    use super::super::response::encode_head;
    use super::*;
    use crate::config::settings::Settings;
    use crate::http::body::{Intake, ResponseBody};
    use crate::http::compress::dynamic::{EncodingRequest, compress};
    use crate::http::finish::{Codec, finish};
    use crate::proxy::headers::clean_answer;
    use crate::proxy::response::leave_out_body;

    const DATE: [u8; DATE_BYTES] = *b"Mon, 23 Nov 2026 19:00:00 GMT";
    const GET: RequestTraits = RequestTraits { is_head: false, minor: 1, keep: true };

    fn hsts() -> HeaderValue {
        HeaderValue::from_static("max-age=1")
    }

    fn directly(text: &str, request: RequestTraits, hsts: Option<&HeaderValue>) -> Option<Vec<String>> {
        directly_for(text, request, hsts, false)
    }

    fn directly_for(
        text: &str,
        request: RequestTraits,
        hsts: Option<&HeaderValue>,
        takes_encoded: bool,
    ) -> Option<Vec<String>> {
        let mut out = Vec::new();
        let compressed = Some(CompressionOffer { max_bytes: Settings::default().max_bytes, takes_encoded });
        let said = CommonHeaders { date: DATE, hsts, compressed };
        pass_back(&mut out, text.as_bytes(), request, &said)?;
        Some(lines(&out))
    }

    /// The lines of a message: the first, the others in order of their names, and the body.
    fn lines(message: &[u8]) -> Vec<String> {
        let text = String::from_utf8(message.to_vec()).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let mut lines: Vec<String> = head.split("\r\n").map(str::to_owned).collect();
        lines[1..].sort_by_key(|line| line.split(':').next().unwrap().to_owned());
        lines.push(body.to_owned());
        lines
    }

    /// The same response as the general path writes it.
    fn in_general(text: &str, request: RequestTraits, hsts: Option<&HeaderValue>) -> Vec<String> {
        let head = response_head::parse(text.as_bytes()).unwrap().unwrap();
        let body = text.as_bytes()[head.length..].to_vec();
        let mut response = Response::new(match body.is_empty() {
            true => ResponseBody::Empty,
            false => ResponseBody::Full(body.clone().into()),
        });
        (*response.status_mut(), *response.headers_mut()) = (head.status, head.headers);
        clean_answer(response.headers_mut());
        leave_out_body(&mut response);
        let method = if request.is_head { Method::HEAD } else { Method::GET };
        let asked = EncodingRequest::new(&method, &HeaderMap::new(), false);
        let negotiator = Negotiator::new(&Encoding::ALL);
        let response = compress(response, &asked, &Settings::default(), &negotiator);
        let date = HeaderValue::from_bytes(&DATE).unwrap();
        let response = finish(response, Codec::Http1, Intake::Done, date, hsts);
        let (mut out, size) = (Vec::new(), BodySize::Known(body.len() as u64));
        let reason = head.reason.as_deref();
        encode_head(&mut out, request, response.status(), reason, response.headers(), size);
        out.extend_from_slice(&body);
        lines(&out)
    }

    #[test]
    fn both_paths_say_the_same() {
        let heads = [
            "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody",
            "HTTP/1.1 200 Fine\r\nServer: x\r\nDate: then\r\nContent-Type: text/plain\r\nContent-Length: 4\r\n\
             Connection: keep-alive\r\nKeep-Alive: timeout=5\r\n\r\nbody",
            "HTTP/1.1 404 Not Found\r\nSet-Cookie: a\r\nX-One: 1\r\nset-cookie: b\r\nContent-length: 0\r\n\r\n",
            "HTTP/1.1 204 No Content\r\nETag: \"x\"\r\n\r\n",
            "HTTP/1.1 304 Not Modified\r\nContent-Length: 40\r\nStrict-Transport-Security: max-age=9\r\n\r\n",
            "HTTP/1.1 500 \r\nContent-Length: 0\r\nEmpty:\r\n\r\n",
        ];
        for text in heads {
            for request in [GET, RequestTraits { keep: false, ..GET }, RequestTraits { minor: 0, ..GET }] {
                for hsts in [None, Some(&hsts())] {
                    assert_eq!(
                        directly(text, request, hsts),
                        Some(in_general(text, request, hsts)),
                        "{text}"
                    );
                }
            }
        }
        let head = RequestTraits { is_head: true, ..GET };
        for text in ["HTTP/1.1 200 OK\r\nContent-Length: 40\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n"] {
            assert_eq!(directly(text, head, None), Some(in_general(text, head, None)), "{text}");
        }
    }

    /// Heads of responses that are large enough to be compressed, and whether they are for clients that take that.
    const LARGE: [(&str, bool); 9] = [
        ("Content-Type: text/html; charset=utf-8\r\n", true),
        ("content-type: application/json\r\nVary: Cookie\r\n", true),
        ("Content-Type: text/css\r\nVary: Cookie, accept-encoding\r\n", true),
        ("Content-Type: text/css\r\nVary: *\r\n", true),
        ("Content-Type: text/plain\r\nContent-Encoding: br\r\n", false),
        ("Content-Type: text/plain\r\nCache-Control: max-age=1, No-Transform\r\n", false),
        ("Content-Type: text/plain\r\nContent-Range: bytes 0-511/600\r\n", false),
        ("Content-Type: image/png\r\n", false),
        ("", false),
    ];

    #[test]
    fn both_paths_say_the_same_of_what_others_get_compressed() {
        let head = RequestTraits { is_head: true, ..GET };
        for status in ["200 OK", "404 Not Found", "206 Partial Content"] {
            for (lines, is_compressed) in LARGE {
                for bytes in [511, 512, 600] {
                    let announced = format!("HTTP/1.1 {status}\r\n{lines}Content-Length: {bytes}\r\n\r\n");
                    let text = announced.clone() + &"x".repeat(bytes);
                    let general = in_general(&text, GET, None);
                    assert_eq!(directly(&text, GET, None), Some(general.clone()), "{text}");
                    let general =
                        (bytes < 512 || !is_compressed || status.starts_with("206")).then_some(general);
                    assert_eq!(directly_for(&text, GET, None, true), general, "{text}");
                    let general = in_general(&announced, head, None);
                    assert_eq!(directly(&announced, head, None), Some(general), "{announced}");
                }
            }
        }
    }

    #[test]
    fn what_is_no_simple_whole_response_is_left_to_others() {
        for text in [
            "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbod",
            "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody!",
            "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 4\r\n\r\nbody",
            "HTTP/1.1 200 OK\r\nContent-Length: 04\r\n\r\nbody",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\n\r\nbody",
            "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbody",
            "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: x-own\r\nX-Own: 1\r\n\r\nbody",
            "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nX-Accel-Redirect: /x\r\n\r\nbody",
            "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nX-Sendfile: /x\r\n\r\nbody",
            "HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\nbody",
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 101 Switching Protocols\r\n\r\n",
            "HTTP/1.1 205 Reset Content\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 600 Odd\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 304 Not Modified\r\n\r\nbody",
            "HTTP/1.1 200 OK\r\nContent-Len",
            "no response",
        ] {
            assert_eq!(directly(text, GET, None), None, "{text}");
        }
    }
}
