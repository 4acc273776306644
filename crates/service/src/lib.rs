//! The SDK: what a program needs in order to be a service of Bulkhead.
//!
//! Runs in: a service's worker, under that service's uid, inside its jail. Sees: requests of clients, whole or
//! in part made up. Never: opens a file or a socket by name (the service itself may, as far as its jail lets it).
//!
//! Source: Krohn, "Building Secure High-Performance Web Services with OKWS", USENIX ATC 2004, 4.2 and 5
//! (a service is `init` and `process`; one process, one thread, no locks).
//!
//! A service has long-lived state, made once in [`Service::init`], and answers requests in
//! [`Service::process`]. Everything runs on one thread, so state is held in `Cell` and `RefCell`:
//!
//! ```no_run
//! use std::cell::Cell;
//! use std::process::ExitCode;
//!
//! use bulkhead_service::{Context, Error, Request, Response, Service, html};
//!
//! struct Greeter {
//!     greeting: String,
//!     greeted: Cell<u64>,
//! }
//!
//! impl Service for Greeter {
//!     async fn init(cx: &Context) -> Result<Self, Error> {
//!         let greeting = cx.arguments().first().cloned().ok_or("usage: greeter GREETING")?;
//!         Ok(Self { greeting, greeted: Cell::new(0) })
//!     }
//!
//!     async fn process(&self, request: Request) -> Response {
//!         self.greeted.set(self.greeted.get() + 1);
//!         let name = request.param("name").unwrap_or_default();
//!         Response::html(html!("<p>{}, {}!", self.greeting, name))
//!     }
//! }
//!
//! fn main() -> ExitCode {
//!     bulkhead_service::main::<Greeter>()
//! }
//! ```
//!
//! Anything that is a `tower::Service`, such as an `axum::Router`, is a service too:
//!
//! ```no_run
//! use axum::{Router, routing::get};
//!
//! fn main() -> std::process::ExitCode {
//!     bulkhead_service::main_tower(|_cx| async { Ok(Router::new().route("/", get(|| async { "hello" }))) })
//! }
//! ```
//!
//! A service may rely on this: a request's future is polled until it ends, also when the client has gone; a
//! worker that retires answers everything it has received, then exits. A panic ends the process: its state may
//! be broken, and the launcher starts a new one.

mod body;
mod connection;
mod context;
mod cookie;
mod data;
mod deadline;
mod escape;
mod events;
mod files;
mod first_line;
mod html;
mod io;
mod json;
#[cfg(test)]
mod mutations;
mod orders;
mod params;
mod process;
mod rate;
mod record;
mod redirect;
mod request;
mod response;
mod sealed;
mod session;
mod stream;
mod tasks;
/// The examples of the guide, which are compiled as documentation is.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/service-toolkit.md")]
mod guide {}
mod templates;
#[cfg(test)]
mod tests;
mod timer;
mod websocket;
mod writer;

use std::process::ExitCode;

pub use self::templates::{Pages, TemplateError, Templates};
pub use body::{Body, BodyError};
pub use bytes::Bytes;
pub use certificate::ClientCertificate;
pub use context::{Context, Error, Limits};
pub use cookie::{Cookie, CookieError, SameSite};
pub use data::{
    AnyValue, DataError, DataFault, DataSource, DataValue, Parameter, Parameters, Rows, Transaction,
};
#[doc(hidden)]
pub use data::{Passed, PassedOn, Wants};
pub use deadline::Late;
pub use escape::{Escaped, UrlEncoded, escape, url_encode};
pub use events::{Event, Events};
pub use files::{Files, NewFile, SaveError, Saved};
pub use html::{Html, ToHtml};
#[doc(hidden)]
pub use html::{HtmlValue, check_html};
pub use http::{self, Method, StatusCode};
pub use json::JsonError;
pub use minijinja::context;
pub use minijinja::value::Serde;
#[doc(hidden)]
pub use params::fuzz_multipart;
pub use params::{FormError, FormLimits, Multipart, ParamError, Params, Part, filter};
pub use rate::{RateLimit, TooMany};
pub use redirect::local_path;
pub use request::{Client, Request, Upgraded};
pub use response::{Response, ResponseBody};
#[doc(hidden)]
pub use sealed::fuzz_cookie;
pub use sealed::{Opened, SealedCache, SealedError, SealedSettings, User};
pub use session::{CSRF_FIELD, CsrfError, Session, Sessions};
pub use websocket::{Message, NoWebSocket, WebSocket, WebSocketError, WebSocketRequest};
pub use wire::log::Level;
pub use writer::Writer;

use process::{Native, Tower, serve};

/// A service: long-lived state and an answer to each request.
///
/// Futures need not be `Send`; there is one thread.
pub trait Service: Sized + 'static {
    /// Makes the state, before the first request arrives.
    ///
    /// # Errors
    /// End the worker; the message goes to the error log.
    fn init(cx: &Context) -> impl Future<Output = Result<Self, Error>>;

    /// Answers one request. Several may be under way at once, each going on where another one awaits.
    fn process(&self, request: Request) -> impl Future<Output = Response>;

    /// Carries out an order of the administrator (`bulkhead send SITE/SERVICE NAME [ARGUMENT]`), and says what has
    /// become of it: at most 16 KiB, within 10 seconds.
    ///
    /// # Errors
    /// It is not carried out; the administrator is told why. A service that does not say otherwise has no orders.
    fn command(&self, name: &str, argument: &str) -> impl Future<Output = Result<String, Error>> {
        let _ = argument;
        let refused = Err(format!("this service has no order {name:?}").into());
        async { refused }
    }
}

/// The whole `main` of a program that is the service `S`; must be called before threads are started.
pub fn main<S: Service>() -> ExitCode {
    abort_on_panic();
    worker::run(async |start| {
        serve(start, Context::program_arguments(), async |cx: &Context| Ok(Native(S::init(cx).await?))).await
    })
}

/// The whole `main` of a program whose service `make` returns: any `tower::Service`, cloned for every request.
///
/// The client's address is in the request's extensions, as [`Client`]; its certificate, if it has shown one, is what
/// [`ClientCertificate::of`] finds in the headers.
pub fn main_tower<T, B>(make: impl AsyncFnOnce(Context) -> Result<T, Error>) -> ExitCode
where
    T: tower_service::Service<http::Request<Body>, Response = http::Response<B>> + Clone + 'static,
    T::Error: Into<Error>,
    B: http_body::Body<Data = Bytes> + 'static,
    B::Error: Into<Error>,
{
    abort_on_panic();
    worker::run(async |start| {
        serve(start, Context::program_arguments(), async |cx: &Context| Ok(Tower(make(cx.clone()).await?)))
            .await
    })
}

/// Makes every panic end the process.
///
/// The runtime would catch a panic and go on, with the service's state in an unknown condition.
fn abort_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::abort();
    }));
}
