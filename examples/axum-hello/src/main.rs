//! An axum router as a service of Bulkhead.
//!
//! Runs in: a service's worker, under that service's uid, inside its jail. Sees: requests. Never: listens; the
//! connections come from Bulkhead.
//!
//! In the configuration: `command = ["bin/axum-hello"]`, `path = "/hello"`.

use std::cell::Cell;
use std::process::ExitCode;

use axum::Router;
use axum::extract::{Extension, Path};
use axum::routing::get;
use bulkhead_service::Client;

thread_local! {
    /// One process, one thread: long-lived state needs no lock.
    static GREETED: Cell<u64> = const { Cell::new(0) };
}

fn main() -> ExitCode {
    bulkhead_service::main_tower(|_cx| async { Ok(router()) })
}

fn router() -> Router {
    Router::new()
        .route("/hello", get(|| async { "Hello.\n" }))
        .route("/hello/{name}", get(hello))
        .route("/hello/trouble/{what}", get(trouble))
}

/// A mistake ends the process, and the next one begins with nothing that it may have left half done.
async fn trouble(Path(what): Path<String>) -> String {
    panic!("asked for trouble: {what:?}")
}

async fn hello(Path(name): Path<String>, client: Option<Extension<Client>>) -> String {
    let count = GREETED.get() + 1;
    GREETED.set(count);
    let from = client.map_or_else(|| "nowhere".to_owned(), |Extension(Client(peer))| peer.to_string());
    format!("Hello, {name}. You are number {count}, and come from {from}.\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    use bulkhead_service::{Request, Response};
    use tower_service::Service as _;

    #[test]
    fn it_greets() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let text = runtime.block_on(async {
            let request = Request::get("/hello/Ann").into_http();
            let answer = router().call(request).await.unwrap();
            Response::from(answer).into_text().await.unwrap()
        });
        assert_eq!(text, "Hello, Ann. You are number 1, and come from nowhere.\n");
    }
}
