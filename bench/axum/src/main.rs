//! The router of `examples/axum-hello` on a socket of its own: `axum-alone ADDRESS:PORT`.
//!
//! One thread, as Bulkhead's workers have, since every server of the benchmark has one core.

use axum::Router;
use axum::routing::get;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).ok_or("usage: axum-alone ADDRESS:PORT")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let router = Router::new().route("/hello", get(|| async { "Hello.\n" }));
        let listener = tokio::net::TcpListener::bind(address).await?;
        axum::serve(listener, router).await?;
        Ok(())
    })
}
