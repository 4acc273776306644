//! Sessions and tokens as browsers and other sites' pages use them.
//!
//! Runs in: the test. Sees: what the tests make up. Never: runs outside of tests.

use http::HeaderName;
use http::header::{COOKIE, HOST, ORIGIN, SET_COOKIE};

use super::*;
use crate::{Context, StatusCode};

fn sessions() -> Sessions<String> {
    Context::for_test(&[]).sessions("test", "/").unwrap()
}

/// A browser, as far as it keeps one cookie.
#[derive(Clone, Default)]
struct Browser(Option<String>);

impl Browser {
    fn request(&self, headers: &[(HeaderName, &str)]) -> Request {
        let mut request = Request::post("/", "");
        request.headers_mut().insert(HOST, "main.test".parse().unwrap());
        for (name, value) in headers {
            request.headers_mut().insert(name, value.parse().unwrap());
        }
        self.0.iter().for_each(|pair| drop(request.headers_mut().insert(COOKIE, pair.parse().unwrap())));
        request
    }

    fn change<R>(
        &mut self,
        sessions: &Sessions<String>,
        change: impl FnOnce(&mut Session<'_, String>) -> R,
    ) -> R {
        let mut session = sessions.of(&self.request(&[]));
        let result = change(&mut session);
        let response = session.save(Response::text("")).unwrap();
        if let Some(line) = response.headers().get(SET_COOKIE) {
            let pair = line.to_str().unwrap().split("; ").next().unwrap();
            self.0 = Some(pair.to_owned()).filter(|pair| !pair.ends_with('='));
        }
        result
    }

    fn get(&self, sessions: &Sessions<String>) -> Option<String> {
        sessions.of(&self.request(&[])).get().cloned()
    }

    fn check(
        &self,
        sessions: &Sessions<String>,
        token: &str,
        headers: &[(HeaderName, &str)],
    ) -> Result<(), CsrfError> {
        let request = self.request(headers);
        sessions.of(&request).check(&request, &Params::parse(&format!("{CSRF_FIELD}={token}")))
    }
}

#[test]
fn a_value_is_there_for_its_user_until_logged_out() {
    let sessions = sessions();
    let (mut ann, tom) = (Browser::default(), Browser::default());
    ann.change(&sessions, |session| session.set("ann's".to_owned()));
    assert_eq!((ann.get(&sessions).as_deref(), tom.get(&sessions)), (Some("ann's"), None));
    let before = ann.clone();
    ann.change(&sessions, |session| session.log_out());
    assert_eq!((ann.get(&sessions), before.get(&sessions), ann.0), (None, None, None));
}

#[test]
fn who_logs_in_gets_another_key_and_another_token() {
    let sessions = sessions();
    let mut ann = Browser::default();
    let token = ann.change(&sessions, |session| session.csrf_token().unwrap());
    assert_eq!(ann.check(&sessions, &token, &[]), Ok(()));
    let before = ann.clone();
    ann.change(&sessions, |session| session.log_in("ann".to_owned()));
    assert_eq!((ann.get(&sessions).as_deref(), before.get(&sessions)), (Some("ann"), None));
    assert_eq!(ann.check(&sessions, &token, &[]), Err(CsrfError::NoSession));
    let token = ann.change(&sessions, |session| session.csrf_token().unwrap());
    assert_eq!(ann.check(&sessions, &token, &[]), Ok(()));
    assert_eq!(ann.get(&sessions).as_deref(), Some("ann"), "a token leaves the value as it is");
}

#[test]
fn a_session_that_is_not_changed_keeps_what_another_request_has_set() {
    let sessions = sessions();
    let mut ann = Browser::default();
    ann.change(&sessions, |session| session.set("1".to_owned()));
    let mut other = ann.clone();
    ann.change(&sessions, |_| other.change(&sessions, |session| session.set("2".to_owned())));
    assert_eq!(ann.get(&sessions).as_deref(), Some("2"));
    let nobody = sessions.of(&Browser::default().request(&[])).save(Response::text("")).unwrap();
    assert!(!nobody.headers().contains_key(SET_COOKIE), "who was given nothing has no session");
}

#[test]
fn a_token_is_of_one_session_and_differs_each_time() {
    let sessions = sessions();
    let (mut ann, mut eve) = (Browser::default(), Browser::default());
    let token = ann.change(&sessions, |session| session.csrf_token().unwrap());
    let again = ann.change(&sessions, |session| session.csrf_token().unwrap());
    assert_ne!(token, again);
    assert!(ann.check(&sessions, &token, &[]).is_ok() && ann.check(&sessions, &again, &[]).is_ok());
    let of_eve = eve.change(&sessions, |session| session.csrf_token().unwrap());
    assert_eq!(ann.check(&sessions, &of_eve, &[]), Err(CsrfError::WrongToken));
    for wrong in
        ["", "0", &token[2..], &"0".repeat(64), &format!("{}g", &token[..63]), "ä".repeat(32).as_str()]
    {
        assert_eq!(ann.check(&sessions, wrong, &[]), Err(CsrfError::WrongToken), "{wrong}");
    }
    let request = ann.request(&[]);
    assert_eq!(sessions.of(&request).check(&request, &Params::default()), Err(CsrfError::NoToken));
    let request = ann.request(&[(CSRF_HEADER, &token)]);
    assert_eq!(sessions.of(&request).check_header(&request), Ok(()));
}

#[test]
fn what_another_site_sends_is_refused_whatever_its_token() {
    let sessions = sessions();
    let mut ann = Browser::default();
    let token = ann.change(&sessions, |session| session.csrf_token().unwrap());
    let site = HeaderName::from_static("sec-fetch-site");
    for (name, value, is_ours) in [
        (&site, "same-origin", true),
        (&site, "none", true),
        (&site, "same-site", false),
        (&site, "cross-site", false),
        (&ORIGIN, "https://main.test", true),
        (&ORIGIN, "http://MAIN.test", true),
        (&ORIGIN, "https://main.test:8443", false),
        (&ORIGIN, "https://main.test.evil.test", false),
        (&ORIGIN, "null", false),
        (&ORIGIN, "main.test", false),
    ] {
        let expected = if is_ours { Ok(()) } else { Err(CsrfError::OtherSite) };
        assert_eq!(ann.check(&sessions, &token, &[(name.clone(), value)]), expected, "{value}");
    }
    let both = [(site, "cross-site"), (ORIGIN, "https://main.test")];
    assert_eq!(ann.check(&sessions, &token, &both), Err(CsrfError::OtherSite));
    assert_eq!(Response::from(CsrfError::OtherSite).status(), StatusCode::FORBIDDEN);
}

#[test]
fn a_value_that_is_no_json_or_too_long_is_refused() {
    let sessions: Sessions<std::collections::HashMap<Vec<u8>, u8>> =
        Context::for_test(&[]).sessions("test", "/").unwrap();
    let mut session = sessions.of(&Request::get("/"));
    session.set([(vec![1], 2)].into());
    assert!(matches!(session.save(Response::text("")), Err(SealedError::NotSerializable)));
    let sessions = self::sessions();
    let mut session = sessions.of(&Request::get("/"));
    session.set("x".repeat(20_000));
    assert!(matches!(session.save(Response::text("")), Err(SealedError::TooLong { .. })));
}
