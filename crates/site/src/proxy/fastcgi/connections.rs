//! The state that the connections to the FastCGI servers of one target share.
//!
//! Untrusted input: none. Must never: hold more of a server's processes than its limits.

use std::time::Duration;

use tokio::time::Instant;

use super::ahead::BufferedBytes;
use crate::proxy::pool::{Bounds, Pool, Reusable};
use crate::proxy::stream::BackendStream;

/// LIMIT: how long a connection is of use, from when it was made. Others that use the same pool of processes wait so
/// long for their turn while this target has requests all the time; a new connection costs a percent of what it
/// carries.
const AGE_MAX: Duration = Duration::from_millis(250);

/// One connection.
pub(super) struct FastCgiConnection {
    pub stream: BackendStream,
    /// When it is to be closed.
    until: Instant,
    /// How often the pool had been emptied when the connection was taken.
    pub generation: u64,
}

impl FastCgiConnection {
    /// One that was made at this time.
    pub fn since(begun: Instant, stream: BackendStream, generation: u64) -> Self {
        Self { stream, until: begun + AGE_MAX, generation }
    }
}

impl Reusable for FastCgiConnection {
    fn is_reusable(&self) -> bool {
        self.stream.is_reusable()
    }

    fn until(&self) -> Option<Instant> {
        Some(self.until)
    }
}

/// The state that the connections of one target share.
#[derive(Clone)]
pub(super) struct Connections {
    pool: Pool<FastCgiConnection>,
    /// Bytes that were read of responses before their clients took them.
    pub held: BufferedBytes,
}

impl Connections {
    /// For a target that has so many requests at once; 0 if the operator has not said.
    ///
    /// LIMIT: as many are kept. Each holds a process of the server's that nobody else can use, so that none is where
    /// the operator has not said how many of its processes are this site's: others may wait for them, and only the
    /// server sees its queue.
    pub fn new(requests: u32) -> Self {
        let connections = requests as usize;
        Self { pool: Pool::new(Bounds { connections, idle: None }), held: BufferedBytes::default() }
    }

    /// A connection that was made just now.
    pub fn begin(&self, stream: BackendStream) -> FastCgiConnection {
        FastCgiConnection::since(Instant::now(), stream, self.pool.generation())
    }

    /// One that was kept.
    pub fn take(&self) -> Option<FastCgiConnection> {
        self.pool.take()
    }

    /// Keeps a connection on which nothing is under way.
    pub fn put(&self, connection: FastCgiConnection) {
        let generation = connection.generation;
        self.pool.put(connection, generation);
    }

    /// How many are kept.
    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.pool.count()
    }

    /// Closes all that are kept, and keeps none of those that are in use.
    pub fn clear(&self) {
        self.pool.clear();
    }
}
