//! The null service: one row of a table for each request, and nothing else.
//!
//! Runs in: its own process under its own uid, inside its jail. Sees: requests of anybody. Never: asks for a privilege.
//!
//! `null-service [BYTES]` answers `?id=7` with the digest in that row, and so many bytes behind it.
//!
//! Source: the benchmark of Krohn, "Building Secure High-Performance Web Services with OKWS", USENIX ATC 2004, 5.2.

use std::process::ExitCode;

use bulkhead_service::{Context, DataSource, Error, Request, Response, Service, StatusCode};

struct Null {
    numbers: DataSource,
    padding: String,
}

impl Service for Null {
    async fn init(cx: &Context) -> Result<Self, Error> {
        let bytes = cx.arguments().first().map_or(Ok(0), |bytes| bytes.parse::<usize>())?;
        Ok(Self { numbers: cx.data("numbers")?, padding: "x".repeat(bytes) })
    }

    async fn process(&self, request: Request) -> Response {
        let id: i64 = match request.param_as("id") {
            Ok(id) => id,
            Err(error) => return error.into(),
        };
        match self.numbers.one::<String>("digest_by_id", (id,)).await {
            Ok(Some(digest)) => Response::text(format!("{digest}\n{}", self.padding)),
            Ok(None) => Response::status_page(StatusCode::NOT_FOUND),
            Err(error) => Response::text(format!("{error}\n")).with_status(StatusCode::SERVICE_UNAVAILABLE),
        }
    }
}

fn main() -> ExitCode {
    bulkhead_service::main::<Null>()
}
