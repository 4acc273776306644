//! A service for the tests: what the SDK does for web services, one path for each.
//!
//! Runs in: its own process under its own uid, inside its jail; it is no part of the demo. Sees: what tests send. Never:
//! asks for a privilege.

use std::process::ExitCode;

use bulkhead_service::{Context, Error, Request, Response, Service, StatusCode, html};

struct Tools;

impl Service for Tools {
    async fn init(_: &Context) -> Result<Self, Error> {
        Ok(Self)
    }

    async fn process(&self, mut request: Request) -> Response {
        self.answer(&mut request).await.unwrap_or_else(|refusal| refusal)
    }
}

impl Tools {
    async fn answer(&self, request: &mut Request) -> Result<Response, Response> {
        match request.path() {
            "/tools/query" => query(request),
            "/tools/form" => form(request).await,
            "/tools/upload" => upload(request).await,
            "/tools/redirect" => Ok(Response::see_other(&request.raw_param("to").unwrap_or_default())),
            _ => Err(Response::status_page(StatusCode::NOT_FOUND)),
        }
    }
}

fn query(request: &Request) -> Result<Response, Response> {
    let id: i64 = request.param_as("id")?;
    let (filtered, raw) = (request.param("q"), request.raw_param("q"));
    Ok(Response::html(html!("<p title=\"{}\">{} {}", raw, id, filtered)))
}

async fn form(request: &mut Request) -> Result<Response, Response> {
    let form = request.form().await?;
    let lines: String = form.iter_raw().map(|(name, value)| format!("{name}={value}\n")).collect();
    Ok(Response::text(lines))
}

async fn upload(request: &mut Request) -> Result<Response, Response> {
    let mut parts = request.multipart()?;
    let mut lines = String::new();
    while let Some(mut part) = parts.next().await? {
        let mut bytes = 0;
        while let Some(piece) = part.chunk().await? {
            bytes += piece.len();
        }
        lines += &format!("{} {:?} {bytes}\n", part.name(), part.client_file_name());
    }
    Ok(Response::text(lines))
}

fn main() -> ExitCode {
    bulkhead_service::main::<Tools>()
}
