//! `axum-null ADDRESS:PORT SOCKET USER PASSWORD DATABASE BYTES`: `/null0?id=7` and so on, with a row of the table and
//! so many bytes.
//!
//! One thread, as Bulkhead's workers have, since every server of the benchmark has one core; and as many connections to
//! the database as a data proxy has.

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::{Router, routing::get};
use sqlx::mysql::{MySqlConnectOptions, MySqlPoolOptions};
use sqlx::{MySqlPool, Row};

#[derive(Clone)]
struct App {
    pool: MySqlPool,
    padding: String,
}

#[derive(serde::Deserialize)]
struct Asked {
    id: i64,
}

async fn null(State(app): State<App>, Query(asked): Query<Asked>) -> Result<String, StatusCode> {
    let row = sqlx::query("SELECT digest FROM numbers WHERE id = ?").bind(asked.id).fetch_optional(&app.pool).await;
    let row = row.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?.ok_or(StatusCode::NOT_FOUND)?;
    let digest: String = row.try_get(0).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    Ok(format!("{digest}\n{}", app.padding))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [address, socket, user, password, database, bytes] = &words[..] else {
        return Err("usage: axum-null ADDRESS:PORT SOCKET USER PASSWORD DATABASE BYTES".into());
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let options = MySqlConnectOptions::new().socket(socket).username(user).password(password).database(database);
        let pool = MySqlPoolOptions::new().max_connections(4).connect_with(options).await?;
        let app = App { pool, padding: "x".repeat(bytes.parse()?) };
        let router = (0..10).fold(Router::new(), |router, n| router.route(&format!("/null{n}"), get(null)));
        let listener = tokio::net::TcpListener::bind(address).await?;
        axum::serve(listener, router.with_state(app)).await?;
        Ok(())
    })
}
