//! The data proxy: carries out named statements on one database, for the services that may call them.
//!
//! Runs in: one `dataproxy` process per data source of a site, under a uid of its own, with the folder of its database
//! and nothing else. Sees: names of statements and values of parameters from services, which may be compromised; the
//! operator's file of statements. Never: takes SQL from a service, prepares a statement for one, or puts a value into
//! SQL's text.
//!
//! Source: Krohn, "Building Secure High-Performance Web Services with OKWS", USENIX ATC 2004, 3.3 and 4.4: typed calls
//! in place of SQL, a token that says which of them a service may make, statements prepared only at the start, a few
//! threads that hide the blocking client library, many calls on one channel.
//!
//! A service is taken over sooner or later: it parses what clients send. Then its rights to the database are those of
//! the statements that were granted to it, not those of the database's user.

mod answer;
mod catalog;
pub mod check;
mod client;
mod database;
mod describe;
pub mod fuzzing;
mod job;
mod mysql;
mod postgres;
mod queue;
mod redis;
mod remote;
mod renewal;
mod serve;
mod server;
mod setup;
mod source;
mod sql;
mod sqlite;
mod told;

pub use catalog::{Catalog, CatalogEntry, CatalogError};
pub use job::{AnswerPart, Budget, Job, Replies};
pub use queue::{Lane, Queue, Work};
pub use serve::serve;
pub use sqlite::SqliteSource;
