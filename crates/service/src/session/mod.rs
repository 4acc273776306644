//! Sessions: a value for each user, and a token by which their forms are known, in a sealed cache.
//!
//! Runs in: a service's worker. Sees: cookies and tokens, of which any may be made up. Never: keeps the key of somebody
//! who logs in; keeps a value in the clear beyond the request that brought its key.

mod csrf;
#[cfg(test)]
mod tests;

use std::fmt;
use std::marker::PhantomData;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::{Html, Params, Request, Response, SealedCache, SealedError, User, html};
pub(crate) use csrf::is_of_host;
pub use csrf::{CSRF_FIELD, CsrfError};
use csrf::{CSRF_HEADER, CsrfToken, check_origin};

/// The sessions of a service's users, made by [`crate::Context::sessions`].
///
/// ```
/// use bulkhead_service::{Context, Error, Request, Response, Service, Sessions, html};
///
/// struct Shop(Sessions<Vec<String>>);
///
/// impl Service for Shop {
///     async fn init(cx: &Context) -> Result<Self, Error> {
///         Ok(Self(cx.sessions("shop", "/shop")?))
///     }
///
///     async fn process(&self, mut request: Request) -> Response {
///         self.answer(&mut request).await.unwrap_or_else(|refusal| refusal)
///     }
/// }
///
/// impl Shop {
///     async fn answer(&self, request: &mut Request) -> Result<Response, Response> {
///         if request.method() == "POST" {
///             let form = request.form().await?;
///             let mut session = self.0.of(request);
///             session.check(request, &form)?;
///             let mut basket = session.get().cloned().unwrap_or_default();
///             basket.extend(form.get("article"));
///             session.set(basket);
///             return Ok(session.save(Response::see_other("/shop"))?);
///         }
///         let mut session = self.0.of(request);
///         let count = session.get().map_or(0, Vec::len);
///         let field = session.csrf_field()?;
///         let page = html!("<p>{} articles<form method=post>{}<input name=article></form>", count, field);
///         Ok(session.save(Response::html(page))?)
///     }
/// }
/// ```
pub struct Sessions<T> {
    cache: SealedCache,
    values: PhantomData<fn() -> T>,
}

/// The session of one request's user. It is as it was when it was opened: open it after the request's body was read,
/// and await nothing before it is saved, or what another request of this user has changed meanwhile is lost.
#[must_use = "what has changed is lost unless the session is saved"]
pub struct Session<'s, T> {
    user: User<'s>,
    stored: Option<StoredSession<T>>,
    change: SessionChange,
}

/// The sealed state of a user.
#[derive(Serialize, Deserialize)]
struct StoredSession<T> {
    /// None until the user is given a form.
    token: Option<CsrfToken>,
    /// None if the user was only given a form so far.
    value: Option<T>,
}

/// The work that a session needs when it is saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SessionChange {
    /// Nothing but to live on.
    None,
    /// To be kept.
    Set,
    /// To be removed; what is set afterwards gets a new key.
    Ended,
}

impl<T> Sessions<T> {
    pub(crate) fn new(cache: SealedCache) -> Self {
        Self { cache, values: PhantomData }
    }

    /// The cache that the sessions are in.
    pub fn cache(&self) -> &SealedCache {
        &self.cache
    }
}

impl<T: Serialize + DeserializeOwned> Sessions<T> {
    /// The session of the user who sent `request`; an empty one if there is none (any more).
    pub fn of(&self, request: &Request) -> Session<'_, T> {
        let mut user = self.cache.user(request.headers());
        let stored = user.get().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        Session { user, stored, change: SessionChange::None }
    }
}

impl<T: Serialize + DeserializeOwned> Session<'_, T> {
    /// The value that was kept for this user.
    pub fn get(&self) -> Option<&T> {
        self.stored.as_ref()?.value.as_ref()
    }

    /// Keeps `value` for this user.
    pub fn set(&mut self, value: T) {
        self.stored().value = Some(value);
    }

    /// Keeps `value` for this user, who has just logged in: under a new key, as somebody may have planted or seen the
    /// one before, and with a new token for forms.
    pub fn log_in(&mut self, value: T) {
        self.log_out();
        self.set(value);
    }

    /// Removes what was kept, and the cookie.
    pub fn log_out(&mut self) {
        self.change = SessionChange::Ended;
        self.stored = None;
    }

    /// A hidden field for a form, by which [`Self::check`] knows that the form is ours. A user without a session gets
    /// one.
    ///
    /// # Errors
    /// There are no random bytes. The error converts into the [`Response`] to be given.
    pub fn csrf_field(&mut self) -> Result<Html, SealedError> {
        let token = self.csrf_token()?;
        Ok(html!("<input type=\"hidden\" name=\"{}\" value=\"{}\">", CSRF_FIELD, token))
    }

    /// The token of [`Self::csrf_field`], for scripts: they send it in the header `X-CSRF-Token`, which
    /// [`Self::check_header`] reads. It is written differently each time.
    ///
    /// # Errors
    /// As there.
    pub fn csrf_token(&mut self) -> Result<String, SealedError> {
        let token = match self.stored.as_ref().and_then(|stored| stored.token) {
            Some(token) => token,
            None => *self.stored().token.insert(CsrfToken::random()?),
        };
        token.masked()
    }

    /// Checks that a form was sent by a page of this service to this user: by `Sec-Fetch-Site` or else `Origin`, where
    /// the browser sends them, and by the field that [`Self::csrf_field`] has made.
    ///
    /// # Errors
    /// It was not, or may not have been. The error converts into 403.
    pub fn check(&self, request: &Request, form: &Params) -> Result<(), CsrfError> {
        self.check_token(request, form.raw(CSRF_FIELD))
    }

    /// As [`Self::check`], by the header `X-CSRF-Token`.
    ///
    /// # Errors
    /// As there.
    pub fn check_header(&self, request: &Request) -> Result<(), CsrfError> {
        let token = request.headers().get(CSRF_HEADER).and_then(|value| value.to_str().ok());
        self.check_token(request, token)
    }

    fn check_token(&self, request: &Request, sent: Option<&str>) -> Result<(), CsrfError> {
        check_origin(request.headers())?;
        let token = self.stored.as_ref().and_then(|stored| stored.token).ok_or(CsrfError::NoSession)?;
        if token.is(sent.ok_or(CsrfError::NoToken)?) { Ok(()) } else { Err(CsrfError::WrongToken) }
    }

    /// Does what is due, and puts the cookie into `response`; a session that was not changed lives on, from now for the
    /// cache's `lifetime`.
    ///
    /// # Errors
    /// The value is too long or cannot be written as JSON, or there are no random bytes. The error converts into the
    /// [`Response`] to be given.
    pub fn save(mut self, mut response: Response) -> Result<Response, SealedError> {
        let headers = response.headers_mut();
        if self.change == SessionChange::Ended {
            self.user.forget(headers);
        }
        let bytes = match (self.change, &self.stored) {
            // The current state: another request may have changed it.
            (SessionChange::None, _) => self.user.get().map(|opened| Zeroizing::new(opened.to_vec())),
            (_, Some(stored)) => {
                let bytes = serde_json::to_vec(stored).map_err(|_| SealedError::NotSerializable)?;
                Some(Zeroizing::new(bytes))
            }
            (_, None) => None,
        };
        if let Some(bytes) = bytes {
            self.user.put(headers, &bytes)?;
        }
        Ok(response)
    }

    /// The stored state, which is about to be changed.
    fn stored(&mut self) -> &mut StoredSession<T> {
        if self.change == SessionChange::None {
            self.change = SessionChange::Set;
        }
        self.stored.get_or_insert(StoredSession { token: None, value: None })
    }
}

impl<T> fmt::Debug for Sessions<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sessions").field(&self.cache).finish()
    }
}

impl<T> fmt::Debug for Session<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("change", &self.change).finish_non_exhaustive()
    }
}
