//! Answers that name a file to be sent in their place: `X-Sendfile` (a path of the file system below the root) and
//! `X-Accel-Redirect` (a path of the site).
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: headers of servers behind the site. Must never:
//! name what is not below the site's root, or pass the header on to a client.

use http::header::{self, HeaderMap, HeaderName};
use http::{Method, Request, Response};
use request::path::NormalPath;
use request::sendfile::{accel_redirect, sendfile};

use crate::files::response as file_response;
use crate::files::response::Shape;
use crate::files::{File, RootFiles};
use crate::http::body::ResponseBody;

const X_SENDFILE: HeaderName = HeaderName::from_static("x-sendfile");
const X_ACCEL_REDIRECT: HeaderName = HeaderName::from_static("x-accel-redirect");

/// The headers of the file's own answer, which replace the server's.
const OF_THE_FILE: [HeaderName; 6] = [
    header::CONTENT_LENGTH,
    header::CONTENT_ENCODING,
    header::CONTENT_RANGE,
    header::ACCEPT_RANGES,
    header::ETAG,
    header::LAST_MODIFIED,
];

/// The client's conditions for a file, whoever names it.
pub(crate) struct Wishes {
    method: Method,
    pub(crate) headers: HeaderMap,
}

impl Wishes {
    /// Of a request, before it is passed on. Its password goes along, which the file's own rules may ask for.
    pub fn of<B>(request: &Request<B>) -> Self {
        let wanted = [
            header::RANGE,
            header::IF_RANGE,
            header::IF_MATCH,
            header::IF_NONE_MATCH,
            header::IF_MODIFIED_SINCE,
            header::IF_UNMODIFIED_SINCE,
            header::AUTHORIZATION,
        ];
        let mut headers = HeaderMap::new();
        for name in wanted {
            for value in request.headers().get_all(&name) {
                headers.append(name.clone(), value.clone());
            }
        }
        // A file is read, whatever made the server name it.
        let method = if request.method() == Method::HEAD { Method::HEAD } else { Method::GET };
        Self { method, headers }
    }
}

/// The path of the site that an answer names in place of its body; `None` if it is not the site's.
#[derive(Clone)]
pub(crate) struct SendfilePath(pub(crate) Option<NormalPath<'static>>);

/// Takes the names of files out of an answer, whose path goes with it as [`SendfilePath`].
pub(crate) fn take<B>(mut answer: Response<B>, root: &str, files: Option<&RootFiles>) -> Response<B> {
    let folders = files.map(|files| &files.names().folders);
    // A file of the root at a path where another folder stands is no file of the site.
    let is_of_root = |path: &NormalPath<'_>| {
        folders.is_none_or(|folders| folders.alias_of(&path.as_bytes()[1..]).is_none())
    };
    let by_file = |value: &[u8]| {
        let of_root = sendfile(value, root).filter(is_of_root);
        of_root.or_else(|| folders?.site_path(value))
    };
    let headers = answer.headers_mut();
    let named = headers.remove(X_ACCEL_REDIRECT).map(|value| accel_redirect(value.as_bytes()));
    let named = headers.remove(X_SENDFILE).map(|value| by_file(value.as_bytes())).or(named);
    if let Some(named) = named {
        answer.extensions_mut().insert(SendfilePath(named));
    }
    answer
}

/// The answer of a file in place of the one that names the file.
pub(crate) fn with_file(
    answer: &Response<ResponseBody>,
    file: File,
    wishes: &Wishes,
) -> Response<ResponseBody> {
    let mut file = file_response::of_file(file, &wishes.method, &wishes.headers, Shape::Plain);
    if file.status().is_client_error() || file.status().is_server_error() {
        return file;
    }
    let parts = file.headers().get(header::CONTENT_TYPE).cloned();
    let parts = parts.filter(|media| media.as_bytes().starts_with(b"multipart/"));
    for (name, value) in answer.headers() {
        if !OF_THE_FILE.contains(name) && name != header::SET_COOKIE {
            file.headers_mut().insert(name.clone(), value.clone());
        }
    }
    // Several ranges have a form of their own.
    file.headers_mut().extend(parts.map(|media| (header::CONTENT_TYPE, media)));
    for cookie in answer.headers().get_all(header::SET_COOKIE) {
        file.headers_mut().append(header::SET_COOKIE, cookie.clone());
    }
    file
}
