//! The service `match`: who has most in common with the viewer.
//!
//! Runs in: its own process under its own uid, inside its jail. Sees: interests, and the viewer's login. Never: sees a
//! message or a password, or whom others are matched with.

use std::process::ExitCode;

use bulkhead_service::{Context, Error, Method, Request, Response, Serde, Service, StatusCode, context};
use matching::{Person, Site, failed};
use serde::{Deserialize, Serialize};

struct Match(Site);

#[derive(Deserialize, Serialize)]
struct Matching {
    #[serde(flatten)]
    person: Person,
    percent: i64,
}

impl Service for Match {
    async fn init(cx: &Context) -> Result<Self, Error> {
        Ok(Self(Site::new(cx)?))
    }

    async fn process(&self, request: Request) -> Response {
        match (request.method(), request.path()) {
            (&Method::GET | &Method::HEAD, "/match") => {
                self.matches(&request).await.unwrap_or_else(|refusal| refusal)
            }
            _ => Response::status_page(StatusCode::NOT_FOUND),
        }
    }
}

impl Match {
    async fn matches(&self, request: &Request) -> Result<Response, Response> {
        let Self(site) = self;
        let pages = site.pages(request);
        let viewer = site.somebody(request).await?;
        let call = site.people.many::<Matching>("matches", (viewer.login.as_bytes(),));
        let people = call.await.map_err(failed)?;
        let about = context! { viewer => viewer.name, people => Serde(&people) };
        Ok(pages.response("match.html", about))
    }
}

fn main() -> ExitCode {
    bulkhead_service::main::<Match>()
}
