//! The cookie that carries a user's key.
//!
//! Runs in: a service's worker. Sees: `Cookie` fields, which are whatever a client made up. Never: takes a value
//! that it could not have issued; looks at more than a few.
//!
//! Source: RFC 6265 4.1, 4.2; draft-ietf-httpbis-rfc6265bis 4.1.3 (prefixes of names).

use std::fmt::Write as _;
use std::time::Duration;

use http::header::{COOKIE, SET_COOKIE};
use http::{HeaderMap, HeaderValue};
use zeroize::Zeroizing;

use super::key::{KEY_LENGTH, KeySecret};
use crate::cookie::{CookieError, check_name, check_path, set, values};

/// How many cookies of our name are tried.
///
/// LIMIT: a browser sends one; more come from other paths, or from somebody who wants us to work in vain.
const COOKIES_MAX: usize = 4;

/// The cookie's name, prefix included, and its attributes but for its age.
#[derive(Debug)]
pub(crate) struct Cookie {
    name: String,
    attributes: String,
}

impl Cookie {
    /// The cookie `name` for requests below `path`; `secure` if it is to travel over TLS only.
    pub(crate) fn new(name: &str, path: &str, secure: bool) -> Result<Self, CookieError> {
        check_name(name)?;
        check_path(path)?;
        // Browsers take `__Host-` only with this path, and then from this very host only.
        let prefix = match (secure, path) {
            (true, "/") => "__Host-",
            (true, _) => "__Secure-",
            (false, _) => "",
        };
        let secure = if secure { "; Secure" } else { "" };
        Ok(Self {
            name: format!("{prefix}{name}"),
            attributes: format!("; Path={path}; HttpOnly; SameSite=Lax{secure}"),
        })
    }

    /// The keys in a request's headers, the first of them first.
    pub(crate) fn secrets(&self, headers: &HeaderMap) -> Vec<KeySecret> {
        values(headers, &self.name).take(COOKIES_MAX).filter_map(decode).collect()
    }

    /// Gives the user `secret` for `lifetime`, in place of what was given in the same response.
    pub(crate) fn issue(&self, headers: &mut HeaderMap, secret: &KeySecret, lifetime: Duration) {
        self.set(headers, &encode(secret), lifetime.as_secs().max(1));
    }

    /// Takes the cookie away.
    pub(crate) fn withdraw(&self, headers: &mut HeaderMap) {
        self.set(headers, "", 0);
    }

    fn set(&self, headers: &mut HeaderMap, value: &str, seconds: u64) {
        set(headers, &self.name, format!("{}={value}; Max-Age={seconds}{}", self.name, self.attributes));
    }
}

/// A key in hexadecimal digits.
fn encode(secret: &KeySecret) -> Zeroizing<String> {
    let mut text = Zeroizing::new(String::with_capacity(2 * KEY_LENGTH));
    for byte in secret.bytes() {
        // Formatting into a String does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The key in `text`, of which there is one spelling only.
fn decode(text: &[u8]) -> Option<KeySecret> {
    let text: &[u8; 2 * KEY_LENGTH] = text.try_into().ok()?;
    KeySecret::fill(|bytes| {
        for (byte, digits) in bytes.iter_mut().zip(text.chunks_exact(2)) {
            *byte = digit(digits[0]).ok_or(())? << 4 | digit(digits[1]).ok_or(())?;
        }
        Ok::<_, ()>(())
    })
    .ok()
}

fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

/// The entry for fuzzing: a key that is taken from a field stands in it, spelled just so.
pub fn fuzz_cookie(field: &[u8]) {
    let Ok(value) = HeaderValue::from_bytes(field) else { return };
    let cookie = Cookie::new("visits", "/visits", true).expect("invariant: the name and the path are good");
    let secrets = cookie.secrets(&HeaderMap::from_iter([(COOKIE, value)]));
    assert!(secrets.len() <= COOKIES_MAX);
    for secret in &secrets {
        let spelled = format!("__Secure-visits={}", *encode(secret));
        assert!(field.windows(spelled.len()).any(|window| window == spelled.as_bytes()));
        let mut answer = HeaderMap::new();
        cookie.issue(&mut answer, secret, Duration::from_secs(60));
        assert!(answer[SET_COOKIE].as_bytes().starts_with(spelled.as_bytes()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutations::Mutations;

    use http::header::CACHE_CONTROL;

    fn cookie() -> Cookie {
        Cookie::new("visits", "/visits", true).unwrap()
    }

    fn headers(fields: &[&[u8]]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for field in fields {
            headers.append(COOKIE, HeaderValue::from_bytes(field).unwrap());
        }
        headers
    }

    fn count(fields: &[&[u8]]) -> usize {
        cookie().secrets(&headers(fields)).len()
    }

    fn pair(name: &str, digit: char) -> String {
        format!("{name}={}", digit.to_string().repeat(64))
    }

    #[test]
    fn a_key_comes_back_as_it_was_issued() {
        let secret = KeySecret::random().unwrap();
        let mut response = HeaderMap::new();
        cookie().issue(&mut response, &secret, Duration::from_secs(60));
        let line = response[SET_COOKIE].to_str().unwrap().to_owned();
        let (pair, attributes) = line.split_once("; ").unwrap();
        assert_eq!(attributes, "Max-Age=60; Path=/visits; HttpOnly; SameSite=Lax; Secure");
        assert!(pair.starts_with("__Secure-visits="), "{pair}");
        assert!(response[SET_COOKIE].is_sensitive());
        assert_eq!(response[CACHE_CONTROL], "no-store");
        let found = cookie().secrets(&headers(&[b"a=b", format!("x=y; {pair}; z").as_bytes()]));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].bytes(), secret.bytes());
    }

    #[test]
    fn names_have_the_prefix_that_fits() {
        let name = |path, secure| Cookie::new("n", path, secure).unwrap().name;
        assert_eq!(name("/", true), "__Host-n");
        assert_eq!(name("/a", true), "__Secure-n");
        assert_eq!(name("/", false), "n");
        assert!(!Cookie::new("n", "/", false).unwrap().attributes.contains("Secure"));
    }

    #[test]
    fn what_cannot_stand_in_a_cookie_is_refused() {
        for name in ["", "a b", "a;b", "a=b", "ä", &"a".repeat(65)] {
            assert!(Cookie::new(name, "/", true).unwrap_err().to_string().contains("64 letters"), "{name}");
        }
        for path in ["", "a", "/a;b", "/a b", "/\r\n", "/ä", &"/".repeat(1025)] {
            assert!(Cookie::new("n", path, true).unwrap_err().to_string().contains("1024 bytes"), "{path}");
        }
    }

    #[test]
    fn only_values_of_ours_are_keys() {
        let good = pair("__Secure-visits", 'a');
        assert_eq!(count(&[good.as_bytes()]), 1);
        for wrong in [
            pair("visits", 'a'),
            pair("__Secure-Visits", 'a'),
            pair("__Secure-visits2", 'a'),
            pair("__Secure-visits", 'A'),
            pair("__Secure-visits", 'g'),
            format!("{good}a"),
            good[..good.len() - 1].to_owned(),
            good.replace('=', "=\""),
            good.replace('=', " = "),
            good.replace('=', "=="),
            "__Secure-visits=".to_owned(),
            "__Secure-visits".to_owned(),
            String::new(),
        ] {
            assert_eq!(count(&[wrong.as_bytes()]), 0, "{wrong}");
        }
        assert_eq!(count(&[format!(";; \t{good} ;").as_bytes(), b";", b"\xff\xfe=\x80"]), 1);
    }

    #[test]
    fn only_a_few_are_tried() {
        let good = pair("__Secure-visits", '1');
        let many = [good.as_str(); 50].join("; ");
        assert_eq!(count(&[many.as_bytes(), many.as_bytes()]), COOKIES_MAX);
    }

    #[test]
    fn an_issued_cookie_replaces_its_own_kind_only() {
        let mut response = HeaderMap::new();
        response.append(SET_COOKIE, HeaderValue::from_static("a=b"));
        cookie().issue(&mut response, &KeySecret::random().unwrap(), Duration::from_secs(1));
        response.append(SET_COOKIE, HeaderValue::from_static("c=d"));
        cookie().withdraw(&mut response);
        let lines: Vec<_> = response.get_all(SET_COOKIE).iter().map(|line| line.to_str().unwrap()).collect();
        assert_eq!(lines[..2], ["a=b", "c=d"]);
        assert!(lines[2].starts_with("__Secure-visits=; Max-Age=0; "), "{}", lines[2]);
        assert_eq!(lines.len(), 3);
    }

    /// Changes a good field in all the ways that random numbers bring about.
    #[test]
    fn no_field_does_harm() {
        let mut mutations = Mutations::new();
        let parts: [&[u8]; 10] =
            [b"__Secure-visits", b"=", b"; ", b";", b"\"", b" ", b"0123abcd", b"f", b"\xff", b"A"];
        let good = [pair("x", '1'), pair("__Secure-visits", '2'), pair("y", '3')].join("; ").into_bytes();
        let mut found = [0; COOKIES_MAX + 1];
        for _ in 0..50_000 {
            let field = mutations.of(&good, &parts, 40);
            if HeaderValue::from_bytes(&field).is_ok() {
                fuzz_cookie(&field);
                found[count(&[&field])] += 1;
            }
        }
        assert!(found[0] > 100 && found[1] > 100, "both outcomes were there: {found:?}");
    }
}
