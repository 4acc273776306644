//! The HTTP and static-file half of a site worker: heads, files, their cache, and the life of one connection.
//!
//! Runs in: the site worker, under the site's own uid, inside its jail, as one current-thread runtime.
//! Untrusted input: everything a client sends. Must never: open a path outside the site's root, answer a
//! request of another partition, or hold a lock.

pub mod answer;
pub mod body;
pub mod cache;
pub mod clock;
mod closing;
pub mod compress;
pub mod conditions;
mod dispatch;
mod error_page;
mod exchange;
pub mod fast;
pub mod fastcgi;
pub mod files;
mod gather;
mod handshake;
pub mod hook;
pub mod http;
pub mod http2;
mod limit;
pub mod limits;
mod listing;
pub mod mime;
pub mod negotiate;
pub mod open_file;
pub mod own;
mod pace;
pub mod partition;
mod peer;
mod proxy;
pub mod range;
mod rates;
pub mod relay;
pub mod roots;
pub mod rules;
mod seats;
mod sending;
pub mod serve;
pub mod settings;
pub mod setup;
mod socket;
mod stream;
pub mod tls;
mod tls_stream;
pub mod upgrade;
pub mod upstream;

mod statics;
pub mod watch;
mod wire_io;
pub mod worker_main;

pub use conditioning::MinRate;

pub use body::{BodyError, BoundedBody, BoxError, ResponseBody};
pub use http::access_record::Access;
pub use http::conn_info::Ends;
pub use limits::Limits;
pub use partition::{Partition, Site};
pub use request::{head, target};
pub use serve::{Client, Ended, serve};
