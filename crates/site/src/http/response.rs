//! Responses that need no file and no backend: error pages, redirects, and what a method allows.
//!
//! Untrusted input: the method of a request. Must never: put anything a client sent into an answer unencoded.

use http::header::{self, HeaderValue};
use http::{Method, Response, StatusCode};

use crate::http::body::ResponseBody;

/// Seconds after which a client that got 503 may try again.
pub(crate) const RETRY_AFTER: HeaderValue = HeaderValue::from_static("5");

/// What static files can be asked.
const ALLOW: HeaderValue = HeaderValue::from_static("GET, HEAD, OPTIONS");

/// The text of an error page.
pub fn page(status: StatusCode) -> String {
    let (code, reason) = (status.as_str(), status.canonical_reason().unwrap_or("Error"));
    format!("<!doctype html>\n<title>{code} {reason}</title>\n<h1>{code} {reason}</h1>\n")
}

/// The answer to a request for which there is no place. Without a body, so that a client that takes none is done with it.
pub(crate) fn overloaded() -> Response<ResponseBody> {
    let mut answer = Response::new(ResponseBody::Empty);
    *answer.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    answer.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER);
    answer
}

/// After how many seconds a client may ask again, where it was refused for that: a bucket has at least one token then.
pub(crate) fn retry_after(status: StatusCode) -> Option<u16> {
    (status == StatusCode::TOO_MANY_REQUESTS).then_some(1)
}

/// An error answer.
pub fn error(status: StatusCode) -> Response<ResponseBody> {
    let mut response = empty(status);
    *response.body_mut() = ResponseBody::Full(page(status).into());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if status == StatusCode::SERVICE_UNAVAILABLE {
        headers.insert(header::RETRY_AFTER, RETRY_AFTER);
    }
    response
}

/// The answer to a method that files do not have; `None` for one that they have.
pub(crate) fn method(method: &Method) -> Option<Response<ResponseBody>> {
    match *method {
        Method::GET | Method::HEAD => None,
        Method::OPTIONS => Some(allow(empty(StatusCode::NO_CONTENT))),
        _ => Some(allow(error(StatusCode::METHOD_NOT_ALLOWED))),
    }
}

pub(crate) fn empty(status: StatusCode) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::Empty);
    *response.status_mut() = status;
    response
}

fn allow(mut response: Response<ResponseBody>) -> Response<ResponseBody> {
    response.headers_mut().insert(header::ALLOW, ALLOW);
    response
}

/// Sends the client to `location`.
pub(crate) fn elsewhere(location: String, status: StatusCode) -> Response<ResponseBody> {
    match HeaderValue::try_from(location) {
        Ok(value) => {
            let mut response = error(status);
            response.headers_mut().insert(header::LOCATION, value);
            response
        }
        Err(_) => error(StatusCode::NOT_FOUND),
    }
}

pub(crate) fn with_query(path: String, query: Option<&str>) -> String {
    query.map_or(path.clone(), |query| format!("{path}?{query}"))
}
