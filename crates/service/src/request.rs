//! A request, as a service sees it.
//!
//! Runs in: a service's worker. Sees: what a client made up. Never: takes the client's word for who it is.

use std::fmt::Display;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::{Deref, DerefMut};
use std::str::FromStr;

use bytes::Bytes;
use certificate::ClientCertificate;
use http::Method;
use hyper_util::rt::TokioIo;
use percent_encoding::percent_decode_str;

use crate::Error;
use crate::body::{Body, BodyError};
use crate::params::{ParamError, Params};

/// A request: an [`http::Request`] and what is often asked of it.
///
/// ```
/// let request = bulkhead_service::Request::get("/package/g%2B%2B?lines=3");
/// assert_eq!(request.path_below("/package/").as_deref(), Some("g++"));
/// assert_eq!(request.param_as::<u32>("lines"), Ok(3));
/// ```
#[derive(Debug)]
pub struct Request(http::Request<Body>);

/// The address of the client, in a request's extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client(pub SocketAddr);

/// A connection on which another protocol is spoken from now on: bytes in both directions.
pub type Upgraded = TokioIo<hyper::upgrade::Upgraded>;

impl Request {
    /// A `GET` of `target`, for tests of a service; of `/` if `target` is none.
    pub fn get(target: &str) -> Self {
        let mut request = http::Request::new(Body::empty());
        *request.uri_mut() = target.parse().unwrap_or_default();
        Self(request)
    }

    /// A `POST` of `body` to `target`, for tests of a service.
    pub fn post(target: &str, body: impl Into<Bytes>) -> Self {
        let mut request = Self::get(target);
        *request.method_mut() = Method::POST;
        *request.body_mut() = body.into().into();
        request
    }

    /// The client's address; none of the client's own claims is taken into account.
    pub fn client(&self) -> SocketAddr {
        let unknown = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        self.extensions().get::<Client>().map_or(unknown, |client| client.0)
    }

    /// The certificate that the client has shown to the site, if its `client_ca` asks for one, and it was good.
    ///
    /// It is what the header `Client-Cert` (RFC 9440) says, which a client cannot set. LIMIT: one that is longer than
    /// 16 KiB, or not as RFC 5280 has it, counts as none. It is read anew with each call.
    pub fn client_certificate(&self) -> Option<ClientCertificate> {
        ClientCertificate::of(self.headers())
    }

    /// The connection, once the answer 101 has been sent, for the protocol that the request's `Upgrade` names; `None`
    /// if it names none, or this was asked before. It is to be awaited in a task of its own, as the answer comes first.
    ///
    /// By way of a site's worker, that is `websocket` alone. LIMIT: a retiring worker is ended after `drain_timeout`,
    /// whatever is still open; a site's worker ends a connection on which nothing has moved for `idle_timeout`.
    pub fn upgrade(&mut self) -> Option<impl Future<Output = Result<Upgraded, Error>> + use<>> {
        self.headers().get(http::header::UPGRADE)?;
        let upgrade = self.extensions_mut().remove::<hyper::upgrade::OnUpgrade>()?;
        Some(async move { Ok(TokioIo::new(upgrade.await?)) })
    }

    /// The path, as sent.
    pub fn path(&self) -> &str {
        self.uri().path()
    }

    /// The part of the path after `prefix`, decoded; `None` if the path does not begin with it.
    ///
    /// It may hold any character, also `/` and NUL, and must not be used as the name of a file.
    pub fn path_below(&self, prefix: &str) -> Option<String> {
        let rest = self.path().strip_prefix(prefix)?;
        Some(percent_decode_str(rest).decode_utf8_lossy().into_owned())
    }

    /// The parameters in the query. LIMIT: all of them together are at most `head_bytes` long.
    pub fn params(&self) -> Params {
        Params::parse(self.uri().query().unwrap_or_default())
    }

    /// The first value of the query's parameter `name`, [filtered](crate::filter): without `< > ( ) # & ; "` and
    /// control characters. Where it is put out, it must be escaped all the same.
    pub fn param(&self, name: &str) -> Option<String> {
        self.params().get(name)
    }

    /// The first value of the query's parameter `name`, as a `T`.
    ///
    /// # Errors
    /// As [`Params::get_as`]; the error converts into the [`crate::Response`] to be given, 400.
    pub fn param_as<T: FromStr<Err: Display>>(&self, name: &str) -> Result<T, ParamError> {
        self.params().get_as(name)
    }

    /// As [`Self::param_as`], where the client may leave it out: `None` if there is none, or an empty one.
    ///
    /// # Errors
    /// As [`Params::optional_as`].
    pub fn optional_param_as<T: FromStr<Err: Display>>(&self, name: &str) -> Result<Option<T>, ParamError> {
        self.params().optional_as(name)
    }

    /// The first value of the query's parameter `name`, as the client meant it. It must be escaped wherever it is put
    /// out.
    pub fn raw_param(&self, name: &str) -> Option<String> {
        self.params().raw(name).map(str::to_owned)
    }

    /// The whole body. The request has none afterwards.
    ///
    /// # Errors
    /// [`BodyError`] converts into the [`crate::Response`] to be given.
    pub async fn bytes(&mut self) -> Result<Bytes, BodyError> {
        self.take_body().read_up_to(u64::MAX).await
    }

    /// The body, which the request has no more.
    pub(crate) fn take_body(&mut self) -> Body {
        std::mem::replace(self.0.body_mut(), Body::empty())
    }

    /// The request without its helpers.
    pub fn into_http(self) -> http::Request<Body> {
        self.0
    }
}

impl From<http::Request<Body>> for Request {
    fn from(request: http::Request<Body>) -> Self {
        Self(request)
    }
}

impl Deref for Request {
    type Target = http::Request<Body>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for Request {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}
