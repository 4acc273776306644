//! The conditions under which a connection is used again.
//!
//! Untrusted input: none.

use crate::proxy::pool::Pool;
use crate::proxy::stream::BackendStream;

/// Where a connection goes once its response is over.
pub(crate) struct Keep {
    pub pool: Pool<BackendStream>,
    pub generation: u64,
}

impl Keep {
    pub(super) fn put(self, stream: BackendStream) {
        self.pool.put(stream, self.generation);
    }
}
