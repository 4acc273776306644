//! The service `search`: who has an interest.
//!
//! Runs in: its own process under its own uid, inside its jail. Sees: what people say of themselves to everybody.
//! Never: sees a message, a password, or who likes whom.

use std::process::ExitCode;

use bulkhead_service::{Context, Error, Method, Request, Response, Serde, Service, StatusCode, context};
use matching::{Person, Site, failed};
use serde::Deserialize;

/// The statement gives at most 20 rows.
const ON_A_PAGE_MAX: i64 = 20;

struct Search(Site);

#[derive(Deserialize)]
struct Popular {
    interest: String,
}

impl Service for Search {
    async fn init(cx: &Context) -> Result<Self, Error> {
        Ok(Self(Site::new(cx)?))
    }

    async fn process(&self, request: Request) -> Response {
        match (request.method(), request.path()) {
            (&Method::GET | &Method::HEAD, "/search") => {
                self.search(&request).await.unwrap_or_else(|refusal| refusal)
            }
            _ => Response::status_page(StatusCode::NOT_FOUND),
        }
    }
}

impl Search {
    async fn search(&self, request: &Request) -> Result<Response, Response> {
        let Self(site) = self;
        let pages = site.pages(request);
        let viewer = site.viewer(request).await?.map(|viewer| viewer.name);
        // Unfiltered, or `C++` and `R&D` would not be found: it is escaped by the template, and bound by the data
        // proxy.
        let wanted = request.raw_param("interest").unwrap_or_default().trim().to_lowercase();
        let count = pages.value::<i64>("people_on_a_page").unwrap_or(ON_A_PAGE_MAX).clamp(1, ON_A_PAGE_MAX);
        let call = site.people.many::<Person>("people_by_interest", (&wanted, count));
        let people = call.await.map_err(failed)?;
        let popular = site.people.many::<Popular>("popular_interests", ()).await.map_err(failed)?;
        let popular: Vec<_> = popular.into_iter().map(|one| one.interest).collect();
        let about = context! { viewer, wanted, people => Serde(&people), popular };
        Ok(pages.response("search.html", about))
    }
}

fn main() -> ExitCode {
    bulkhead_service::main::<Search>()
}
