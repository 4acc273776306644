//! The database of a data proxy, wherever it is.

use std::path::PathBuf;
use std::sync::Arc;

use statements::{Dialect, Engine, Statements};

use crate::catalog::{Catalog, CatalogError};
use crate::mysql::Mysql;
use crate::postgres::Postgres;
use crate::queue::Queue;
use crate::redis::Redis;
use crate::server::{self, Way};
use crate::sqlite;

/// The launcher's settings for the database.
#[derive(Debug)]
pub(crate) enum DatabasePlace {
    /// A file, made if it is not there, and how much memory SQLite may have.
    Sqlite(PathBuf, u64),
    /// A server, and how many connections there are to be.
    Server(Engine, u16),
}

impl DatabasePlace {
    /// Whose language the statements are in.
    pub(crate) fn dialect(&self) -> Dialect {
        match self {
            Self::Sqlite(..) => None,
            Self::Server(engine, _) => Some(*engine),
        }
    }
}

/// An open database.
pub(crate) enum DatabaseSource {
    Sqlite(sqlite::SqliteSource),
    Postgres(Box<server::ServerSource<Postgres>>),
    Mysql(Box<server::ServerSource<Mysql>>),
    Redis(Box<server::ServerSource<Redis>>),
}

impl DatabaseSource {
    /// Opens a database, and has it prepare all statements.
    ///
    /// # Errors
    /// Each statement that it does not prepare, with its line; or why it cannot be opened.
    pub(crate) async fn open(
        place: &DatabasePlace,
        schema: Option<&str>,
        way: Way,
        file: Statements,
    ) -> Result<(Self, Arc<Catalog>), String> {
        let said = |refusal: CatalogError| refusal.to_string();
        match place {
            DatabasePlace::Sqlite(path, heap_bytes) => {
                let source = sqlite::SqliteSource::open(path, schema, *heap_bytes)?;
                let catalog = source.prepare(file).map_err(said)?;
                Ok((Self::Sqlite(source), Arc::new(catalog)))
            }
            DatabasePlace::Server(Engine::Postgresql, connections) => {
                let opened = server::ServerSource::open(way, *connections, file).await;
                opened.map(|(source, catalog)| (Self::Postgres(Box::new(source)), catalog)).map_err(said)
            }
            DatabasePlace::Server(Engine::Mysql, connections) => {
                let opened = server::ServerSource::open(way, *connections, file).await;
                opened.map(|(source, catalog)| (Self::Mysql(Box::new(source)), catalog)).map_err(said)
            }
            DatabasePlace::Server(Engine::Redis, connections) => {
                let opened = server::ServerSource::open(way, *connections, file).await;
                opened.map(|(source, catalog)| (Self::Redis(Box::new(source)), catalog)).map_err(said)
            }
        }
    }

    /// Begins to carry out calls, where that was not begun by opening it.
    pub(crate) fn start(&mut self) {
        match self {
            Self::Sqlite(_) => {}
            Self::Postgres(source) => source.start(),
            Self::Mysql(source) => source.start(),
            Self::Redis(source) => source.start(),
        }
    }

    /// Where calls go.
    pub(crate) fn queue(&self) -> &Arc<Queue> {
        match self {
            Self::Sqlite(source) => &source.queue,
            Self::Postgres(source) => source.queue(),
            Self::Mysql(source) => source.queue(),
            Self::Redis(source) => source.queue(),
        }
    }

    /// The way to the database's server, if it is at one.
    pub(crate) fn way(&self) -> Option<&Way> {
        match self {
            Self::Sqlite(_) => None,
            Self::Postgres(source) => Some(source.way()),
            Self::Mysql(source) => Some(source.way()),
            Self::Redis(source) => Some(source.way()),
        }
    }

    /// Has the server say whether it takes the login that was read last.
    ///
    /// # Errors
    /// The server's reason for a refusal.
    pub(crate) async fn try_login(&self) -> Result<(), String> {
        match self {
            Self::Sqlite(_) => Ok(()),
            Self::Postgres(source) => source.try_login().await,
            Self::Mysql(source) => source.try_login().await,
            Self::Redis(source) => source.try_login().await,
        }
    }

    /// Has the database prepare other statements.
    ///
    /// # Errors
    /// As for those of the start.
    pub(crate) async fn prepare(&self, file: Statements) -> Result<Arc<Catalog>, CatalogError> {
        match self {
            Self::Sqlite(source) => source.prepare(file).map(Arc::new),
            Self::Postgres(source) => source.prepare(file).await,
            Self::Mysql(source) => source.prepare(file).await,
            Self::Redis(source) => source.prepare(file).await,
        }
    }

    /// Does what there is to do, and ends.
    pub(crate) async fn close(self) {
        match self {
            Self::Sqlite(source) => source.close(),
            Self::Postgres(source) => source.close().await,
            Self::Mysql(source) => source.close().await,
            Self::Redis(source) => source.close().await,
        }
    }
}
