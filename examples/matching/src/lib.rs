//! What the services of the matching site share: who looks at a page, and how a page is made.
//!
//! Runs in: each of the services in Rust, under its own uid, inside its own jail. Sees: the cookie of whoever makes a
//! request. Never: finds out who somebody is who makes none: the database knows logins by their SHA-256 alone.

use std::time::Duration;

use bulkhead_service::{
    Context, Cookie, CookieError, DataError, DataSource, Error, Pages, Request, Response, StatusCode,
    Templates, context,
};
use serde::{Deserialize, Deserializer, Serialize};
use sha2::{Digest as _, Sha256};

/// `__Host-`: no other host, and no page without TLS, can set it. Browsers take it from this machine without TLS as
/// well.
const COOKIE: &str = "__Host-login";
/// As long as the view `viewers` of the database lets somebody in.
const LOGGED_IN: Duration = Duration::from_secs(30 * 86_400);

/// The two things that each service has.
#[derive(Debug)]
pub struct Site {
    /// The statements that this service may call.
    pub people: DataSource,
    templates: Templates,
}

/// How the database knows that somebody is logged in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Login([u8; 32]);

/// Somebody who is logged in.
#[derive(Debug)]
pub struct Viewer {
    /// By which statements are called that are about this person.
    pub login: Login,
    /// As others see it.
    pub name: String,
}

/// What people say of themselves to everybody.
#[derive(Debug, Deserialize, Serialize)]
pub struct Person {
    /// Nobody else has it.
    pub name: String,
    /// In their own words.
    pub about: String,
    /// In small letters.
    #[serde(deserialize_with = "interests")]
    pub interests: Vec<String>,
}

impl Site {
    /// The source and the templates, as the configuration grants them.
    ///
    /// # Errors
    /// Says which of them is missing there.
    pub fn new(cx: &Context) -> Result<Self, Error> {
        Ok(Self { people: cx.data("people")?, templates: cx.templates()? })
    }

    /// The pages of this request.
    pub fn pages(&self, request: &Request) -> Pages {
        self.templates.of(request)
    }

    /// Who makes a request, if that is somebody.
    ///
    /// # Errors
    /// The page that says that the database is not there.
    pub async fn viewer(&self, request: &Request) -> Result<Option<Viewer>, Response> {
        let Some(login) = Login::of(request) else { return Ok(None) };
        let name = self.people.one("viewer", (login.as_bytes(),)).await.map_err(failed)?;
        Ok(name.map(|name| Viewer { login, name }))
    }

    /// Who makes a request.
    ///
    /// # Errors
    /// For others, the way to the page where they can log in.
    pub async fn somebody(&self, request: &Request) -> Result<Viewer, Response> {
        self.viewer(request).await?.ok_or_else(|| Response::see_other("/profile"))
    }
}

impl Login {
    /// A new one, and the cookie that shows it.
    ///
    /// # Errors
    /// There are no random bytes, or no cookie can be set.
    pub fn make(mut response: Response) -> Result<(Self, Response), Response> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map_err(|_| Response::status_page(StatusCode::INTERNAL_SERVER_ERROR))?;
        let token: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let cookie = Cookie::new(COOKIE, &token).max_age(LOGGED_IN);
        response.set_cookie(&cookie).map_err(|error: CookieError| Response::from(error))?;
        Ok((Self(Sha256::digest(token.as_bytes()).into()), response))
    }

    /// That of a request.
    pub fn of(request: &Request) -> Option<Self> {
        request.cookie(COOKIE).map(|token| Self(Sha256::digest(token.as_bytes()).into()))
    }

    /// As a parameter of a statement.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// What a client hears of a call that has failed: not why, which is in the reason for others.
pub fn failed(error: DataError) -> Response {
    eprintln!("the database: {error}");
    Response::status_page(StatusCode::SERVICE_UNAVAILABLE)
}

/// The interests of a row, which the database gives in one text with commas between them.
///
/// # Errors
/// The column is something else.
fn interests<'de, D: Deserializer<'de>>(column: D) -> Result<Vec<String>, D::Error> {
    let joined = Option::<String>::deserialize(column)?.unwrap_or_default();
    Ok(joined.split(',').filter(|interest| !interest.is_empty()).map(str::to_owned).collect())
}

/// A page that says one thing.
pub fn notice(pages: &Pages, viewer: Option<&Viewer>, status: StatusCode, text: &str) -> Response {
    let viewer = viewer.map(|viewer| &viewer.name);
    pages.response("notice.html", context! { viewer, text }).with_status(status)
}
