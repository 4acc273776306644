//! The HTTP and static-file half of a site worker: heads, files, their cache, and the life of one connection.
//!
//! Runs in: the site worker, under the site's own uid, inside its jail, as one current-thread runtime.
//! Untrusted input: everything a client sends. Must never: open a path outside the site's root, answer a
//! request of another partition, or hold a lock.

pub mod config;
pub mod connection;
pub mod context;
pub mod files;
pub mod http;
pub mod http1;
pub mod http2;
pub mod proxy;
pub mod router;
pub mod tls;
pub mod worker;

pub use conditioning::MinRate;

pub use self::config::limits::ClientLimits;
pub use self::connection::{AcceptedClient, ConnectionEnd, serve};
pub use self::context::SiteContext;
pub use self::context::state::{RouteOwner, WorkerState};
pub use self::http::access_record::AccessRecord;
pub use self::http::body::{BodyError, BoundedBody, BoxError, ResponseBody};
pub use self::http::conn_info::ConnInfo;
pub use request::{head, target};
