//! The smallest service: greets whoever asks, by name.
//!
//! Runs in: a service's worker, under that service's uid, inside its jail. Sees: a name that a client made up.
//! Never: puts it into the page unescaped.

use bulkhead_service::{Context, Error, Request, Response, Service, html};

struct Hello;

impl Service for Hello {
    async fn init(_cx: &Context) -> Result<Self, Error> {
        Ok(Self)
    }

    async fn process(&self, request: Request) -> Response {
        let name = request.param("name").unwrap_or_else(|| "world".to_owned());
        Response::html(html!("<!doctype html><title>Hello</title><p>Hello, {}!\n", name))
    }
}

fn main() -> std::process::ExitCode {
    bulkhead_service::main::<Hello>()
}
