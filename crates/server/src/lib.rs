//! A specialised server: the worker of a site, with functions of one's own in it.
//!
//! Runs in: a site worker of the operator's own, under the site's uid, inside its jail, as one thread. Sees: requests.
//! Never: opens a file or a socket by name; the jail of a site's worker has none.
//!
//! This is the whole of what people write against; what it does is in the crate `site`, whose program is this library
//! without functions. It is a crate of its own so that its few names can stay as they are while that one changes.
//!
//! ```no_run
//! use std::process::ExitCode;
//!
//! use bulkhead_server::{Answer, Request, Server};
//!
//! async fn greet(request: Request) -> Answer {
//!     match request.uri().query() {
//!         Some(name) => Answer::text(format!("Hello, {name}.\n")),
//!         None => Answer::Pass,
//!     }
//! }
//!
//! fn main() -> ExitCode {
//!     Server::new().hook("greet", greet).run()
//! }
//! ```
//!
//! with, in the configuration,
//!
//! ```toml
//! [[site]]
//! name = "blog"
//! host = ["blog.example"]
//! root = "public"
//! worker = ["bin/my-worker"]
//!
//! [[site.route]]
//! suffix = ".greet"
//! hook = "greet"
//! ```
//!
//! The program must be linked statically: it starts where there is no library to load. It has the system calls of a
//! site's worker and no others; so functions compute, and what needs files, the network or time is a service. A panic
//! ends the process, and the launcher starts a new one.
//!
//! SECURITY: a function shares its process with every connection of the site. An attacker who owns it owns the site,
//! and nothing else; a service owns less.

use std::process::ExitCode;

pub use bytes::Bytes;
pub use http::{self, HeaderMap, Method, Response, StatusCode, Uri};
pub use site::BodyError;
pub use site::router::hook::{Answer, Request};

use site::router::hook::Hooks;

/// A server that is about to run.
#[derive(Default)]
pub struct Server {
    hooks: Hooks,
}

impl Server {
    /// One that does what every site's worker does.
    pub fn new() -> Self {
        Self::default()
    }

    /// Has `function` answer what routes with `hook = "NAME"` get. Several requests may be under way at once, each
    /// going on where another one awaits; what computes for long holds up the whole site.
    pub fn hook<F, A>(mut self, name: &str, function: F) -> Self
    where
        F: Fn(Request) -> A + 'static,
        A: Future<Output = Answer> + 'static,
    {
        self.hooks.add(name, function);
        self
    }

    /// Serves until the launcher has no use for this process any more; must be called before threads are started.
    pub fn run(self) -> ExitCode {
        abort_on_panic();
        worker::run(async |start| site::worker::run_with(start, self.hooks).await)
    }
}

/// Makes every panic end the process: the runtime would go on with the functions' state in an unknown condition.
fn abort_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::abort();
    }));
}
