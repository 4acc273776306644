//! Redirects that lead nowhere else unless the service says so.
//!
//! Runs in: a service's worker. Sees: places that a client may have made up. Never: sends a client to another host by
//! the calls that take a path.

use http::StatusCode;
use http::header::LOCATION;

use crate::Response;

/// `place` if it is a path of this very host, with or without a query: it begins with one `/`, and holds nothing that
/// browsers read as the begin of a host.
///
/// ```
/// use bulkhead_service::local_path;
///
/// assert_eq!(local_path("/orders?page=2"), Some("/orders?page=2"));
/// assert_eq!(local_path("//elsewhere.example/"), None);
/// assert_eq!(local_path("https://elsewhere.example/"), None);
/// ```
pub fn local_path(place: &str) -> Option<&str> {
    let rest = place.strip_prefix('/')?;
    // URL Standard 4.4: `\` is read as `/`, and tabs and line ends are left out before anything is read.
    let is_local =
        !rest.starts_with('/') && rest.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    is_local.then_some(place)
}

impl Response {
    /// Sends the client to `path` of this host with a `GET` (303). A path that is no [`local_path`] is answered with
    /// 400: where it comes from a client, somebody wants to lead another one astray.
    pub fn see_other(path: &str) -> Self {
        match local_path(path) {
            Some(path) => Self::see_other_url(path),
            None => Self::status_text(StatusCode::BAD_REQUEST, "That is no path of this site."),
        }
    }

    /// Sends the client to any URL with a `GET` (303); the service vouches for where that leads.
    pub fn see_other_url(url: &str) -> Self {
        Self::status_page(StatusCode::SEE_OTHER).with_header(LOCATION, url)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_to_this_host_alone() {
        for path in ["/", "/a", "/a//b?c=/d#e", "/.//a", "/a:b@c"] {
            let response = Response::see_other(path);
            assert_eq!(response.status(), StatusCode::SEE_OTHER);
            assert_eq!(response.headers()[LOCATION], path);
        }
        for place in [
            "",
            "a",
            "//a",
            "///a",
            "/\\a",
            "\\\\a",
            "/\t/a",
            "\t//a",
            "/\n/a",
            "http://a",
            "javascript:a",
            "/a b",
            "/ä",
        ] {
            let response = Response::see_other(place);
            assert_eq!(response.status(), StatusCode::BAD_REQUEST, "{place}");
            assert!(!response.headers().contains_key(LOCATION), "{place}");
        }
        let elsewhere = Response::see_other_url("https://a.example/b");
        assert_eq!(elsewhere.headers()[LOCATION], "https://a.example/b");
    }
}
