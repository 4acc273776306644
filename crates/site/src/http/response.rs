//! Responses that need no file and no backend: error pages, redirects, and what a method allows.
//!
//! Untrusted input: the method of a request. Must never: put anything a client sent into an answer unencoded.

use http::header::{self, HeaderValue};
use http::{Method, Response, StatusCode};
use request::error;

use crate::http::body::ResponseBody;

/// The methods that static files allow.
const ALLOW: HeaderValue = HeaderValue::from_static("GET, HEAD, OPTIONS");

/// The answer to a request for which there is no place. Without a body, so that a client that takes none is done with
/// it.
pub(crate) fn overloaded() -> Response<ResponseBody> {
    without_page(StatusCode::SERVICE_UNAVAILABLE)
}

/// Marks an error that this worker tells of, whoever was asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Own;

/// An error answer.
pub fn error(status: StatusCode) -> Response<ResponseBody> {
    error_saying(status, "")
}

/// An error answer with what is wrong, in words of ours, or none.
pub(crate) fn error_saying(status: StatusCode, what: &'static str) -> Response<ResponseBody> {
    let mut response = without_page(status);
    response.extensions_mut().insert(Own);
    let sentence = if what.is_empty() { String::new() } else { format!("The request was refused: {what}.") };
    *response.body_mut() = ResponseBody::Full(error::page(status, &sentence).into());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(error::CONTENT_TYPE));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// An error answer that says no more than its status, and when to come again.
fn without_page(status: StatusCode) -> Response<ResponseBody> {
    let mut response = empty(status);
    let later = error::retry_after(status).map(|seconds| (header::RETRY_AFTER, seconds.into()));
    response.headers_mut().extend(later);
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
