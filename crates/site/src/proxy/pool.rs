//! Connections to a backend that are kept for further requests.
//!
//! Untrusted input: none. Must never: hand out a connection from before the pool was emptied.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use tokio::time::Instant;

/// A connection that a pool can keep.
pub(crate) trait Reusable: 'static {
    /// Whether another request can be sent on the connection, as far as is known.
    fn is_reusable(&self) -> bool;
}

/// How many connections a pool keeps, and for how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub connections: usize,
    /// `None`: until the backend closes the connection.
    pub idle: Option<Duration>,
}

/// The connections of one backend; a clone is the same pool.
pub(crate) struct Pool<C>(Rc<Shared<C>>);

struct Shared<C> {
    bounds: Bounds,
    /// The one that was used last is the last.
    idle: RefCell<VecDeque<(C, Instant)>>,
    generation: Cell<u64>,
    /// Whether a task closes what is idle for too long.
    expiring: Cell<bool>,
}

impl<C> Clone for Pool<C> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<C: Reusable> Pool<C> {
    /// An empty pool.
    pub fn new(bounds: Bounds) -> Self {
        let (idle, generation, expiring) = (RefCell::default(), Cell::default(), Cell::default());
        Self(Rc::new(Shared { bounds, idle, generation, expiring }))
    }

    /// The connection that was used last, of those that can be used again.
    pub fn take(&self) -> Option<C> {
        let mut idle = self.0.idle.borrow_mut();
        std::iter::from_fn(|| idle.pop_back()).map(|(one, _)| one).find(C::is_reusable)
    }

    /// Counts how often the pool was emptied.
    pub fn generation(&self) -> u64 {
        self.0.generation.get()
    }

    /// Keeps a connection that was made in `generation`, or after it, if there is room.
    pub fn put(&self, connection: C, generation: u64) {
        let shared = &self.0;
        let mut idle = shared.idle.borrow_mut();
        if idle.len() >= shared.bounds.connections {
            idle.retain(|(one, _)| one.is_reusable());
        }
        if generation != self.generation()
            || idle.len() >= shared.bounds.connections
            || !connection.is_reusable()
        {
            return;
        }
        idle.push_back((connection, Instant::now()));
        if let Some(time) = shared.bounds.idle
            && !shared.expiring.replace(true)
        {
            tokio::task::spawn_local(self.clone().expire(time));
        }
    }

    /// Closes all connections; those that are in use are not kept after it.
    pub fn clear(&self) {
        self.0.generation.set(self.generation() + 1);
        self.0.idle.borrow_mut().clear();
    }

    /// Closes what is idle for longer than `time`, until nothing is.
    async fn expire(self, time: Duration) {
        loop {
            let oldest = self.0.idle.borrow().front().map(|(_, since)| *since);
            let Some(since) = oldest else { break };
            tokio::time::sleep_until(since + time).await;
            self.0.idle.borrow_mut().retain(|(_, since)| since.elapsed() < time);
        }
        self.0.expiring.set(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Connection(u32, bool);

    impl Reusable for Connection {
        fn is_reusable(&self) -> bool {
            self.1
        }
    }

    fn taken(pool: &Pool<Connection>) -> Option<u32> {
        pool.take().map(|connection| connection.0)
    }

    #[test]
    fn the_last_one_is_used_first_and_broken_ones_are_not() {
        let pool = Pool::new(Bounds { connections: 2, idle: None });
        (1..=3).for_each(|number| pool.put(Connection(number, true), 0));
        pool.put(Connection(4, false), 0);
        assert_eq!([taken(&pool), taken(&pool), taken(&pool)], [Some(2), Some(1), None]);
    }

    #[test]
    fn nothing_from_before_it_was_emptied_is_kept() {
        let pool = Pool::new(Bounds { connections: 2, idle: None });
        pool.put(Connection(1, true), pool.generation());
        let before = pool.generation();
        pool.clear();
        pool.put(Connection(2, true), before);
        assert_eq!(taken(&pool), None);
        pool.put(Connection(3, true), pool.generation());
        assert_eq!(taken(&pool), Some(3));
    }

    #[test]
    fn what_is_idle_for_too_long_is_closed() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        tokio::task::LocalSet::new().block_on(&runtime.unwrap(), async {
            let pool = Pool::new(Bounds { connections: 2, idle: Some(Duration::from_secs(4)) });
            pool.put(Connection(1, true), 0);
            tokio::time::sleep(Duration::from_secs(3)).await;
            pool.put(Connection(2, true), 0);
            tokio::time::sleep(Duration::from_secs(2)).await;
            assert_eq!([taken(&pool), taken(&pool)], [Some(2), None]);
            tokio::time::sleep(Duration::from_secs(4)).await;
            assert!(!pool.0.expiring.get());
        });
    }
}
