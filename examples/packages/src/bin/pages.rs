//! A service for the tests: renders whatever template a test names, twice, with time in between.
//!
//! Runs in: its own process under its own uid, inside its jail; it is no part of the demo, and must not be put on
//! a server. Sees: requests of tests. Never: asks for a privilege.
//!
//! `/pages/page?name=page.html&wait=5` is the page, and what it is after five milliseconds; `/pages/value?name=company`
//! a public value; `/pages/block?wait=5` keeps the only thread for so long.

use std::process::ExitCode;
use std::time::Duration;

use bulkhead_service::{Context, Error, Request, Response, Service, StatusCode, Templates, context};

struct Pages {
    templates: Templates,
}

impl Service for Pages {
    async fn init(cx: &Context) -> Result<Self, Error> {
        Ok(Self { templates: cx.templates()? })
    }

    async fn command(&self, name: &str, argument: &str) -> Result<String, Error> {
        match name {
            "echo" => Ok(argument.to_owned()),
            "long" => Ok("x".repeat(1 << 20)),
            "wait" => std::future::pending().await,
            "rude" => Ok("\u{1b}[2J\nsecond line".to_owned()),
            _ => Err(format!("what is {name}?").into()),
        }
    }

    async fn process(&self, request: Request) -> Response {
        let name = request.param("name").unwrap_or("page.html".into());
        let wait = request.param("wait").and_then(|wait| wait.parse().ok()).unwrap_or_default();
        let wait = Duration::from_millis(wait);
        // Behind the path of the service, which a test has chosen.
        match request.path().rsplit('/').next().unwrap_or_default() {
            "value" => match self.templates.of(&request).value::<String>(&name) {
                Some(value) => Response::text(value),
                None => Response::status_page(StatusCode::NOT_FOUND),
            },
            "block" => {
                std::thread::sleep(wait);
                Response::text("awake\n")
            }
            "once" => self.templates.of(&request).response(&name, context! { x => "<x>" }),
            _ => {
                let render = || {
                    let about = context! { x => request.raw_param("x").unwrap_or_default() };
                    self.templates.of(&request).render(&name, about)
                };
                let first = render();
                tokio::time::sleep(wait).await;
                match (first, render()) {
                    (Ok(first), Ok(second)) => Response::html(first + &second),
                    (Err(error), _) | (_, Err(error)) => {
                        Response::text(format!("{error}\n")).with_status(StatusCode::BAD_GATEWAY)
                    }
                }
            }
        }
    }
}

fn main() -> ExitCode {
    bulkhead_service::main::<Pages>()
}
