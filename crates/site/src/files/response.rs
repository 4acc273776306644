//! Responses with a file: whole, in part, in an encoding, or that it has not changed.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: method and headers of a request. Must never: put
//! anything a client sent into an answer unencoded.

use request::accept_encoding::Encoding;
use request::conditional::{self, ConditionVerdict, Validators};
use request::range::{self, RangeAnswer, Span};

use crate::files::cache::{Representation, coded_tag};
use crate::files::{File, FileValidators, Missing};
use crate::http::body::{BodyPiece, FileBody, ResponseBody};
use crate::http::response::{empty, error};
use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Response, StatusCode};
use std::hash::{BuildHasher, RandomState};
use std::rc::Rc;

/// The part of a file to be sent.
pub(crate) enum Shape {
    /// The file as it is.
    Plain,
    /// A form that is kept.
    Representation(Encoding, Rc<Representation>),
    /// Compressed as it is sent.
    Stream(Encoding, Box<dyn FnOnce(FileBody) -> ResponseBody>),
}

/// The answer for a path that leads to no file.
pub(crate) fn missing(missing: Missing) -> Response<ResponseBody> {
    error(status_of(missing))
}

/// The status for a file that cannot be served.
pub(crate) fn status_of(missing: Missing) -> StatusCode {
    match missing {
        Missing::Malformed => StatusCode::BAD_REQUEST,
        Missing::Forbidden => StatusCode::FORBIDDEN,
        Missing::NotFound | Missing::Outside => StatusCode::NOT_FOUND,
        Missing::Busy => StatusCode::SERVICE_UNAVAILABLE,
        Missing::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// The answer for a file in this shape, as the conditions of the request have it.
pub(crate) fn of_file(
    file: File,
    method: &Method,
    headers: &HeaderMap,
    shape: Shape,
) -> Response<ResponseBody> {
    let etag = match &shape {
        Shape::Plain => file.version.etag(),
        Shape::Representation(_, representation) => representation.etag.clone(),
        Shape::Stream(encoding, _) => coded_tag(&file.version.etag(), *encoding),
    };
    let last_modified = file.version.last_modified();
    let validators =
        Validators { etag: &etag, modified: file.version.modified(), last_modified: &last_modified };
    let mut response = match (conditional::evaluate(headers, &validators), shape) {
        (ConditionVerdict::Failed, _) => return error(StatusCode::PRECONDITION_FAILED),
        (ConditionVerdict::NotModified, _) => empty(StatusCode::NOT_MODIFIED),
        (ConditionVerdict::Proceed, Shape::Plain) => match wanted(&file, method, headers, &validators) {
            RangeAnswer::Unsatisfiable => return unsatisfiable(file.version.size),
            RangeAnswer::Whole => ranged(whole(file)),
            RangeAnswer::Spans(spans) => ranged(partial(file, &spans)),
        },
        (ConditionVerdict::Proceed, Shape::Representation(encoding, representation)) => {
            kept(&file, encoding, &representation)
        }
        (ConditionVerdict::Proceed, Shape::Stream(encoding, compress)) => streamed(file, encoding, compress),
    };
    let fields = response.headers_mut();
    let insert = |fields: &mut HeaderMap, name, value: &[u8]| {
        if let Ok(value) = HeaderValue::from_bytes(value) {
            fields.insert(name, value);
        }
    };
    insert(fields, header::ETAG, etag.as_bytes());
    insert(fields, header::LAST_MODIFIED, &last_modified);
    fields.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

fn ranged(mut response: Response<ResponseBody>) -> Response<ResponseBody> {
    response.headers_mut().insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    response
}

fn encoded(file: &File, encoding: Encoding) -> Response<ResponseBody> {
    let mut response = empty(StatusCode::OK);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(file.media));
    headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(encoding.token()));
    response
}

fn kept(file: &File, encoding: Encoding, representation: &Representation) -> Response<ResponseBody> {
    let mut response = encoded(file, encoding);
    response.headers_mut().insert(header::CONTENT_LENGTH, representation.whole.body_bytes().into());
    *response.body_mut() = ResponseBody::Full(representation.whole.body());
    response
}

fn streamed(
    file: File,
    encoding: Encoding,
    compress: Box<dyn FnOnce(FileBody) -> ResponseBody>,
) -> Response<ResponseBody> {
    let mut response = encoded(&file, encoding);
    let span = Span { start: 0, length: file.version.size };
    *response.body_mut() = compress(FileBody::new(file.fd, [BodyPiece::Span(span)]));
    response
}

fn wanted(file: &File, method: &Method, headers: &HeaderMap, validators: &Validators<'_>) -> RangeAnswer {
    // RFC 9110 14.2: Range is defined for GET alone.
    let mut values = headers.get_all(header::RANGE).iter();
    match (values.next(), values.next()) {
        (Some(value), None) if method == Method::GET && conditional::range_applies(headers, validators) => {
            range::parse(value.as_bytes(), file.version.size)
        }
        _ => RangeAnswer::Whole,
    }
}

fn whole(file: File) -> Response<ResponseBody> {
    let mut response = empty(StatusCode::OK);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(file.media));
    response.headers_mut().insert(header::CONTENT_LENGTH, file.version.size.into());
    if file.version.size > 0 {
        let span = Span { start: 0, length: file.version.size };
        *response.body_mut() = ResponseBody::File(FileBody::new(file.fd, [BodyPiece::Span(span)]));
    }
    response
}

fn unsatisfiable(size: u64) -> Response<ResponseBody> {
    let mut response = error(StatusCode::RANGE_NOT_SATISFIABLE);
    if let Ok(value) = HeaderValue::try_from(format!("bytes */{size}")) {
        response.headers_mut().insert(header::CONTENT_RANGE, value);
    }
    response
}

fn content_range(span: &Span, size: u64) -> String {
    format!("bytes {}-{}/{size}", span.start, span.start + span.length - 1)
}

fn partial(file: File, spans: &[Span]) -> Response<ResponseBody> {
    let mut response = empty(StatusCode::PARTIAL_CONTENT);
    let headers = response.headers_mut();
    if let [span] = spans {
        if let Ok(value) = HeaderValue::try_from(content_range(span, file.version.size)) {
            headers.insert(header::CONTENT_RANGE, value);
        }
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(file.media));
        *response.body_mut() = ResponseBody::File(FileBody::new(file.fd, [BodyPiece::Span(*span)]));
        return response;
    }
    // The file's author must not be able to foresee it, or contents could forge parts.
    let boundary = format!("{:016x}", RandomState::new().hash_one(file.version.inode));
    if let Ok(value) = HeaderValue::try_from(format!("multipart/byteranges; boundary={boundary}")) {
        headers.insert(header::CONTENT_TYPE, value);
    }
    let mut pieces = Vec::with_capacity(2 * spans.len() + 1);
    for span in spans {
        let (range, media) = (content_range(span, file.version.size), file.media);
        let lead = format!("\r\n--{boundary}\r\nContent-Type: {media}\r\nContent-Range: {range}\r\n\r\n");
        pieces.push(BodyPiece::Bytes(Bytes::from(lead)));
        pieces.push(BodyPiece::Span(*span));
    }
    pieces.push(BodyPiece::Bytes(Bytes::from(format!("\r\n--{boundary}--\r\n"))));
    *response.body_mut() = ResponseBody::File(FileBody::new(file.fd, pieces));
    response
}
