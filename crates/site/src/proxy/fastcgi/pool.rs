//! Connections to the FastCGI servers of one target that are kept for further requests.
//!
//! Untrusted input: none. Must never: hold more of a server's processes than its limits.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use http::StatusCode;

use super::ahead::Held;
use crate::proxy::connect::Dialer;
use crate::proxy::stream::BackendStream;

/// LIMIT: connections kept for further requests. Each holds a process of the server's that nobody else can use, so they
/// are few, and not kept for long.
const IDLE_MAX: usize = 4;
const IDLE_TIME: Duration = Duration::from_secs(1);

/// Connections to one target.
#[derive(Clone)]
pub(crate) struct Pool {
    dialer: Rc<Dialer>,
    target: u16,
    idle: Rc<RefCell<Vec<BackendStream>>>,
    /// Bytes that were read of answers before their clients took them.
    pub held: Held,
}

impl Pool {
    /// Of the servers of `target`, to which `dialer` connects.
    pub fn new(dialer: Rc<Dialer>, target: u16) -> Self {
        Self { dialer, target, idle: Rc::default(), held: Held::default() }
    }

    /// A kept connection, or a new one; and which it is.
    pub async fn get(&self, fresh: bool) -> Result<(BackendStream, bool), StatusCode> {
        let kept = self.idle.borrow_mut().pop();
        match kept {
            Some(stream) if !fresh => Ok((stream, true)),
            // One that is kept goes for the new one: if it holds the server's last process, nobody else would answer.
            kept => {
                drop(kept);
                Ok((self.dialer.connect(self.target).await?, false))
            }
        }
    }

    /// Keeps a connection whose request is over, for a while.
    pub fn put(&self, stream: BackendStream) {
        let mut idle = self.idle.borrow_mut();
        if idle.len() >= IDLE_MAX || stream.is_deaf() {
            return;
        }
        idle.push(stream);
        let idle = Rc::downgrade(&self.idle);
        // The oldest goes first: whoever is used stays at the end.
        tokio::task::spawn_local(async move {
            tokio::time::sleep(IDLE_TIME).await;
            if let Some(idle) = idle.upgrade()
                && !idle.borrow().is_empty()
            {
                idle.borrow_mut().remove(0);
            }
        });
    }
}
