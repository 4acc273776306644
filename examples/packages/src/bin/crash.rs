//! The demo's service `crash`: a page whose process a visitor may end.
//!
//! Runs in: its own process under its own uid, inside its jail. Sees: requests of clients. Never: anything that
//! another process could notice; that is what it shows.

use std::cell::Cell;
use std::process::ExitCode;
use std::time::Instant;

use bulkhead_service::http::header::{ALLOW, CACHE_CONTROL};
use bulkhead_service::{Context, Error, Method, Request, Response, Service, StatusCode};
use packages::page::page;

struct Crash {
    started: Instant,
    served: Cell<u64>,
}

impl Service for Crash {
    async fn init(_: &Context) -> Result<Self, Error> {
        Ok(Self { started: Instant::now(), served: Cell::new(0) })
    }

    async fn process(&self, request: Request) -> Response {
        self.served.set(self.served.get() + 1);
        match (request.method(), request.path()) {
            (&Method::POST, _) | (&Method::GET, "/crash/now") => std::process::abort(),
            (&Method::GET, "/crash/panic") => panic!("a visitor asked for it"),
            (&Method::GET | &Method::HEAD, _) => self.page(),
            _ => Response::status_page(StatusCode::METHOD_NOT_ALLOWED).with_header(ALLOW, "GET, HEAD, POST"),
        }
    }
}

impl Crash {
    fn page(&self) -> Response {
        let main = format!(
            "<p class=\"lead\">This page comes from a process that you may end. The next request finds a new one; \
             search, the packages' pages and everything else go on.</p>\n\
             <dl><dt>Process</dt><dd>{}</dd><dt>User id</dt><dd>{}</dd><dt>Age</dt><dd>{:.1} s</dd>\
             <dt>Requests served</dt><dd>{}</dd></dl>\n\
             <form method=\"post\" action=\"/crash\"><button class=\"danger\">Crash this process</button></form>\n\
             <p class=\"note\">Afterwards, come back to this page and compare.</p>\n",
            std::process::id(),
            rustix::process::getuid().as_raw(),
            self.started.elapsed().as_secs_f64(),
            self.served.get(),
        );
        Response::html(page("Crash me", "", &main)).with_header(CACHE_CONTROL, "no-store")
    }
}

fn main() -> ExitCode {
    bulkhead_service::main::<Crash>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let text = runtime.block_on(async {
            let crash = Crash::init(&Context::for_test(&[])).await.unwrap();
            crash.process(Request::get("/crash")).await;
            let response = crash.process(Request::get("/crash")).await;
            response.into_text().await.unwrap()
        });
        assert!(text.contains("<dt>Requests served</dt><dd>2</dd>"), "{text}");
    }
}
