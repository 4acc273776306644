//! Cookies: reading those of a request, and setting and removing them in a response.
//!
//! Runs in: a service's worker. Sees: `Cookie` fields, which are whatever a client made up. Never: lets a value bring
//! in an attribute; sets a cookie that scripts can read, or that travels without TLS, unless it is told to.
//!
//! Source: RFC 6265 4.1, 4.2; draft-ietf-httpbis-rfc6265bis 4.1.3 (prefixes of names), 5.5 (length).

use std::fmt::Write as _;
use std::time::Duration;

use http::header::{CACHE_CONTROL, COOKIE, SET_COOKIE};
use http::{HeaderMap, HeaderValue, StatusCode};
use percent_encoding::{AsciiSet, CONTROLS, percent_decode, utf8_percent_encode};
use zeroize::Zeroizing;

use crate::{Request, Response};

/// LIMIT: browsers take 4096 bytes of a name and value together.
const LENGTH_MAX: usize = 4096;
/// LIMIT: browsers take 1024 bytes of a path.
const PATH_MAX: usize = 1024;
const NAME_MAX: usize = 64;

/// RFC 6265 4.1.1: what cannot stand in a value, and `%`, by which it is written.
const ENCODED: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b',').add(b';').add(b'\\').add(b'%');

/// A cookie to be set: for the browser's session, all paths, this host, TLS and HTTP alone, and `SameSite=Lax`, unless
/// it is told otherwise.
///
/// ```
/// use std::time::Duration;
/// use bulkhead_service::{Cookie, Response};
///
/// let mut response = Response::text("dark it is\n");
/// response.set_cookie(&Cookie::new("theme", "dark").max_age(Duration::from_secs(86_400)))?;
/// let line = &response.headers()["set-cookie"];
/// assert_eq!(line, "theme=dark; Path=/; Max-Age=86400; Secure; HttpOnly; SameSite=Lax");
/// # Ok::<(), bulkhead_service::CookieError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Cookie {
    name: String,
    value: String,
    path: String,
    max_age: Option<Duration>,
    same_site: SameSite,
    has_scripts: bool,
    is_secure: bool,
}

/// With which requests from other sites a cookie is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SameSite {
    /// With none.
    Strict,
    /// With links that are followed to this site.
    Lax,
    /// With all, also those that other sites make in the background.
    None,
}

/// Why a cookie cannot be set; converts into 500.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CookieError {
    /// Its name cannot be one.
    #[error("a cookie is called {0:?}; a name must be 1 to 64 letters, digits, `-` and `_`")]
    Name(String),
    /// Its path cannot be one.
    #[error(
        "a cookie's path is {0:?}; it must be `/` and what may follow it in a request, without `;`, at most 1024 bytes"
    )]
    Path(String),
    /// Name and value are longer than browsers take, in bytes.
    #[error("the name and value of a cookie take {0} bytes; browsers take at most 4096")]
    TooLong(usize),
    /// Browsers refuse a name with this prefix, or `SameSite=None`, without TLS, or `__Host-` with another path than
    /// `/`.
    #[error("browsers refuse the cookie {0:?}: it needs TLS, and `__Host-` needs the path `/`")]
    Refused(String),
}

impl Cookie {
    /// A cookie whose value may be any text; it is percent-encoded, as far as it has to be.
    pub fn new(name: &str, value: &str) -> Self {
        Self {
            name: name.to_owned(),
            value: value.to_owned(),
            path: "/".to_owned(),
            max_age: None,
            same_site: SameSite::Lax,
            has_scripts: false,
            is_secure: true,
        }
    }

    /// Is sent with requests below `path` alone.
    #[must_use]
    pub fn path(self, path: &str) -> Self {
        Self { path: path.to_owned(), ..self }
    }

    /// Is kept for so long, also when the browser is closed.
    #[must_use]
    pub fn max_age(self, max_age: Duration) -> Self {
        Self { max_age: Some(max_age), ..self }
    }

    /// Is sent with other requests of other sites than those of `SameSite=Lax`.
    #[must_use]
    pub fn same_site(self, same_site: SameSite) -> Self {
        Self { same_site, ..self }
    }

    /// May be read by scripts of the page: it has no `HttpOnly`.
    #[must_use]
    pub fn for_scripts(self) -> Self {
        Self { has_scripts: true, ..self }
    }

    /// Is sent without TLS, too: it has no `Secure`, and whoever can listen gets it.
    #[must_use]
    pub fn danger_plaintext(self) -> Self {
        Self { is_secure: false, ..self }
    }

    fn line(&self) -> Result<String, CookieError> {
        check_name(&self.name)?;
        check_path(&self.path)?;
        let wants_tls = self.name.starts_with("__Secure-") || self.same_site == SameSite::None;
        let is_host = self.name.starts_with("__Host-");
        if (wants_tls || is_host) && !self.is_secure || is_host && self.path != "/" {
            return Err(CookieError::Refused(self.name.clone()));
        }
        let mut line = format!("{}={}", self.name, utf8_percent_encode(&self.value, ENCODED));
        if line.len() > LENGTH_MAX {
            return Err(CookieError::TooLong(line.len()));
        }
        // Formatting into a String does not fail.
        let _ = write!(line, "; Path={}", self.path);
        if let Some(age) = self.max_age {
            let _ = write!(line, "; Max-Age={}", age.as_secs());
        }
        line += if self.is_secure { "; Secure" } else { "" };
        line += if self.has_scripts { "" } else { "; HttpOnly" };
        let _ = write!(line, "; SameSite={:?}", self.same_site);
        Ok(line)
    }
}

/// Checks a name, which is to be a plain one.
pub(crate) fn check_name(name: &str) -> Result<(), CookieError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let is_good = (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(plain);
    if is_good { Ok(()) } else { Err(CookieError::Name(name.to_owned())) }
}

/// Checks a path, as it may stand in an attribute.
pub(crate) fn check_path(path: &str) -> Result<(), CookieError> {
    let fits = |byte: u8| byte.is_ascii_graphic() && byte != b';';
    let is_good = path.starts_with('/') && path.len() <= PATH_MAX && path.bytes().all(fits);
    if is_good { Ok(()) } else { Err(CookieError::Path(path.to_owned())) }
}

/// The values of the cookies called `name` in a request, as they were sent.
pub(crate) fn values<'h>(headers: &'h HeaderMap, name: &'h str) -> impl Iterator<Item = &'h [u8]> {
    let fields = headers.get_all(COOKIE).iter();
    let pairs = fields.flat_map(|field| field.as_bytes().split(|&byte| byte == b';'));
    pairs.filter_map(move |pair| value(pair.trim_ascii(), name))
}

/// The value in a pair that is called `name`.
fn value<'p>(pair: &'p [u8], name: &str) -> Option<&'p [u8]> {
    pair.strip_prefix(name.as_bytes())?.strip_prefix(b"=")
}

/// Puts a line into a response's headers, in place of one with the same name.
pub(crate) fn set(headers: &mut HeaderMap, name: &str, line: String) {
    let line = Zeroizing::new(line);
    let mut line = HeaderValue::from_str(&line).expect("invariant: name, value and path are printable");
    line.set_sensitive(true);
    let others = headers.get_all(SET_COOKIE).iter().filter(|line| value(line.as_bytes(), name).is_none());
    let others: Vec<_> = others.cloned().collect();
    headers.remove(SET_COOKIE);
    for line in others.into_iter().chain([line]) {
        headers.append(SET_COOKIE, line);
    }
    // SECURITY: a cache on the way may store an answer with a cookie in it (RFC 6265 7), and give it to others.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
}

impl Request {
    /// The value of the first cookie called `name`, percent-decoded: whatever the client made up.
    pub fn cookie(&self, name: &str) -> Option<String> {
        let value = values(self.headers(), name).next()?;
        Some(percent_decode(value).decode_utf8_lossy().into_owned())
    }
}

impl Response {
    /// Sets a cookie, in place of one with the same name, and `Cache-Control: no-store`.
    ///
    /// # Errors
    /// Browsers would not take it. The error converts into 500.
    pub fn set_cookie(&mut self, cookie: &Cookie) -> Result<(), CookieError> {
        let line = cookie.line()?;
        set(self.headers_mut(), &cookie.name, line);
        Ok(())
    }

    /// Removes the cookie that was set with this name and path.
    ///
    /// # Errors
    /// As [`Self::set_cookie`].
    pub fn remove_cookie(&mut self, name: &str, path: &str) -> Result<(), CookieError> {
        self.set_cookie(&Cookie::new(name, "").path(path).max_age(Duration::ZERO))
    }
}

impl From<CookieError> for Response {
    fn from(_: CookieError) -> Self {
        Self::status_page(StatusCode::INTERNAL_SERVER_ERROR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(cookie: &Cookie) -> String {
        let mut response = Response::text("");
        response.set_cookie(cookie).unwrap();
        assert!(response.headers()[SET_COOKIE].is_sensitive());
        response.headers()[SET_COOKIE].to_str().unwrap().to_owned()
    }

    #[test]
    fn any_text_comes_back_and_brings_no_attribute() {
        for text in ["", "dark", "a; Domain=evil.test", "a=b", "100%", "ä\r\nX: y", "\"q\", \\"] {
            let line = line(&Cookie::new("n", text));
            let (pair, attributes) = line.split_once("; ").unwrap();
            assert_eq!(attributes, "Path=/; Secure; HttpOnly; SameSite=Lax");
            let mut request = Request::get("/");
            let pairs = format!("n2=x;{pair} ; n=other");
            request.headers_mut().insert(COOKIE, pairs.parse().unwrap());
            assert_eq!(request.cookie("n").as_deref(), Some(text));
            assert_eq!(request.cookie("N"), None);
        }
    }

    #[test]
    fn what_is_safe_is_only_left_out_on_purpose() {
        let cookie = Cookie::new("n", "v").path("/a").same_site(SameSite::Strict).for_scripts();
        assert_eq!(line(&cookie), "n=v; Path=/a; Secure; SameSite=Strict");
        assert_eq!(line(&cookie.danger_plaintext()), "n=v; Path=/a; SameSite=Strict");
        let mut response = Response::text("");
        response.remove_cookie("n", "/a").unwrap();
        assert_eq!(response.headers()[SET_COOKIE], "n=; Path=/a; Max-Age=0; Secure; HttpOnly; SameSite=Lax");
    }

    #[test]
    fn what_browsers_would_refuse_is_an_error() {
        let refused = |cookie: Cookie| Response::text("").set_cookie(&cookie).unwrap_err();
        for name in ["", "a b", "a;b", "a=b", "ä", &"a".repeat(65)] {
            assert_eq!(refused(Cookie::new(name, "")), CookieError::Name(name.to_owned()));
        }
        for path in ["", "a", "/a;b", "/a b", "/\r\n", "/ä", &"/".repeat(1025)] {
            assert_eq!(refused(Cookie::new("n", "").path(path)), CookieError::Path(path.to_owned()));
        }
        assert_eq!(refused(Cookie::new("n", &"x".repeat(4095))), CookieError::TooLong(4097));
        let host = Cookie::new("__Host-n", "");
        assert!(host.line().is_ok());
        for cookie in [
            host.clone().path("/a"),
            host.danger_plaintext(),
            Cookie::new("__Secure-n", "").danger_plaintext(),
            Cookie::new("n", "").same_site(SameSite::None).danger_plaintext(),
        ] {
            assert!(matches!(refused(cookie), CookieError::Refused(_)));
        }
    }
}
