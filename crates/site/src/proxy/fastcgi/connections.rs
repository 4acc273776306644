//! What the connections to the FastCGI servers of one target share.
//!
//! Untrusted input: none. Must never: hold more of a server's processes than its limits.

use std::time::Duration;

use super::ahead::Held;
use crate::proxy::pool::{Bounds, Pool};
use crate::proxy::stream::BackendStream;

/// LIMIT: connections of one target that are kept for further requests. Each holds a process of the server's that nobody
/// else can use, so they are few, and not kept for long.
const IDLE_MAX: usize = 4;
const IDLE_TIMEOUT: Duration = Duration::from_secs(1);

/// What the connections of one target share.
#[derive(Clone)]
pub(super) struct Connections {
    pub pool: Pool<BackendStream>,
    /// Bytes that were read of responses before their clients took them.
    pub held: Held,
}

impl Default for Connections {
    fn default() -> Self {
        Self {
            pool: Pool::new(Bounds { connections: IDLE_MAX, idle: Some(IDLE_TIMEOUT) }),
            held: Held::default(),
        }
    }
}
