//! Whether a client may have what a path leads to.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: addresses and passwords of clients. Must never:
//! take the policy of one rule for that of all which cover a path.

use http::header::{self, HeaderMap, HeaderValue};
use http::{Response, StatusCode};

use crate::context::SiteContext;
use crate::http::body::ResponseBody;
use crate::http::conn_info::ConnInfo;
use crate::http::response;
use crate::router::access::users::PasswordVerdict;
use crate::router::rules::Rule;

/// The origin of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PathOrigin {
    /// The client, by its name.
    Client,
    /// This server, or one behind the site: an internal redirect.
    Server,
}

/// The refusal, if one of the rules does not let this client have what they are for.
pub(crate) async fn authorize(
    site: &SiteContext,
    rules: &[&Rule],
    origin: PathOrigin,
    conn: ConnInfo,
    headers: &HeaderMap,
) -> Option<Response<ResponseBody>> {
    if rules.iter().any(|rule| rule.policy.internal) && origin == PathOrigin::Client {
        return Some(response::error(StatusCode::NOT_FOUND));
    }
    if !rules.iter().all(|rule| rule.policy.allows(conn.peer.ip())) {
        return Some(response::error(StatusCode::FORBIDDEN));
    }
    let mut fields = headers.get_all(header::AUTHORIZATION).iter();
    let field = fields.next().filter(|_| fields.next().is_none());
    for basic_auth in rules.iter().filter_map(|rule| rule.policy.basic_auth.as_ref()) {
        let users = basic_auth.users.borrow().clone();
        let verdict = match field {
            Some(field) => users.verify(&site.guesses, conn.peer.ip(), field.as_bytes()).await,
            None => PasswordVerdict::Bad,
        };
        if verdict == PasswordVerdict::Busy {
            site.shed.note(|shed| shed.unavailable += 1);
        }
        if verdict != PasswordVerdict::Good {
            return Some(unauthorised(verdict, &basic_auth.challenge));
        }
    }
    None
}

fn unauthorised(verdict: PasswordVerdict, challenge: &HeaderValue) -> Response<ResponseBody> {
    if verdict == PasswordVerdict::Busy {
        return response::error(StatusCode::SERVICE_UNAVAILABLE);
    }
    let mut response = response::error(StatusCode::UNAUTHORIZED);
    response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge.clone());
    response
}
