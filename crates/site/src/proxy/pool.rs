//! Connections to a backend that are kept for further requests.
//!
//! Untrusted input: none. Must never: hand out a connection from before the pool was emptied.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// A connection that a pool can keep.
pub(crate) trait Reusable: 'static {
    /// Whether another request can be sent on the connection, as far as is known.
    fn is_reusable(&self) -> bool;

    /// When the connection is closed if nothing is under way on it; none if there is no such time.
    fn until(&self) -> Option<Instant> {
        None
    }
}

/// How many connections a pool keeps, and for how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub connections: usize,
    /// `None`: until the backend closes the connection.
    pub idle: Option<Duration>,
}

/// The connections of one backend; a clone is the same pool.
pub(crate) struct Pool<C>(Rc<IdleConnections<C>>);

struct IdleConnections<C> {
    bounds: Bounds,
    /// With when they are closed; the one that was used last is the last.
    idle: RefCell<Vec<(C, Option<Instant>)>>,
    generation: Cell<u64>,
    /// Whether any are kept.
    is_allowed: Cell<bool>,
    /// Whether one is kept that is put now; always, if nobody has said when.
    keeps: OnceCell<Box<dyn Fn() -> bool>>,
    /// When the task looks again that closes connections in their time, while there is one.
    next_look: Cell<Option<Instant>>,
    /// Has the task look now.
    sooner: Notify,
}

impl<C> Clone for Pool<C> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<C: Reusable> Pool<C> {
    /// An empty pool.
    pub fn new(bounds: Bounds) -> Self {
        let (idle, generation, next_look) = (RefCell::default(), Cell::default(), Cell::default());
        let (is_allowed, sooner) = (Cell::new(true), Notify::new());
        let keeps = OnceCell::new();
        Self(Rc::new(IdleConnections { bounds, idle, generation, is_allowed, keeps, next_look, sooner }))
    }

    /// The connection that was used last, of those that can be used again.
    pub fn take(&self) -> Option<C> {
        let mut idle = self.0.idle.borrow_mut();
        std::iter::from_fn(|| idle.pop()).map(|(one, _)| one).find(C::is_reusable)
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
        if !shared.is_allowed.get()
            || !shared.keeps.get().is_none_or(|keeps| keeps())
            || generation != self.generation()
            || idle.len() >= shared.bounds.connections
            || !connection.is_reusable()
        {
            return;
        }
        let now = Instant::now();
        let idle_until = shared.bounds.idle.map(|time| now + time);
        let until = [idle_until, connection.until()].into_iter().flatten().min();
        if until.is_some_and(|until| until <= now) {
            return;
        }
        idle.push((connection, until));
        let Some(until) = until else { return };
        match shared.next_look.get() {
            None => {
                shared.next_look.set(Some(until));
                tokio::task::spawn_local(self.clone().expire());
            }
            Some(next) if until < next => shared.sooner.notify_one(),
            Some(_) => {}
        }
    }

    /// How many are kept.
    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.0.idle.borrow().len()
    }

    /// Closes all connections; those that are in use are not kept after it.
    pub fn clear(&self) {
        self.0.generation.set(self.generation() + 1);
        self.0.idle.borrow_mut().clear();
    }

    /// Keeps connections from now on, or none.
    pub fn allow(&self, is_allowed: bool) {
        self.0.is_allowed.set(is_allowed);
    }

    /// Keeps connections only while `condition` holds; said once.
    pub fn keep_while(&self, condition: impl Fn() -> bool + 'static) {
        let _ = self.0.keeps.set(Box::new(condition));
    }

    /// Closes so many of the connections that are kept, those first that were used longest ago.
    pub fn close(&self, count: usize) {
        let mut idle = self.0.idle.borrow_mut();
        let count = count.min(idle.len());
        idle.drain(..count);
    }

    /// Closes each connection in its time, until none is left that has one.
    async fn expire(self) {
        let shared = &*self.0;
        loop {
            let now = Instant::now();
            shared.idle.borrow_mut().retain(|(_, until)| until.is_none_or(|until| until > now));
            let next = shared.idle.borrow().iter().filter_map(|(_, until)| *until).min();
            shared.next_look.set(next);
            let Some(next) = next else { return };
            // Either way, the connections tell what to do.
            let _ = timeout_at(next, shared.sooner.notified()).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct FakeConnection(u32, bool, Option<Instant>);

    impl Reusable for FakeConnection {
        fn is_reusable(&self) -> bool {
            self.1
        }

        fn until(&self) -> Option<Instant> {
            self.2
        }
    }

    fn good(number: u32) -> FakeConnection {
        FakeConnection(number, true, None)
    }

    fn taken(pool: &Pool<FakeConnection>) -> Option<u32> {
        pool.take().map(|connection| connection.0)
    }

    #[test]
    fn the_last_one_is_used_first_and_broken_ones_are_not() {
        let pool = Pool::new(Bounds { connections: 2, idle: None });
        (1..=3).for_each(|number| pool.put(good(number), 0));
        pool.put(FakeConnection(4, false, None), 0);
        assert_eq!([taken(&pool), taken(&pool), taken(&pool)], [Some(2), Some(1), None]);
    }

    #[test]
    fn nothing_from_before_it_was_emptied_is_kept() {
        let pool = Pool::new(Bounds { connections: 2, idle: None });
        pool.put(good(1), pool.generation());
        let before = pool.generation();
        pool.clear();
        pool.put(good(2), before);
        assert_eq!(taken(&pool), None);
        pool.put(good(3), pool.generation());
        assert_eq!(taken(&pool), Some(3));
        pool.allow(false);
        pool.put(good(4), pool.generation());
        assert_eq!(taken(&pool), None);
    }

    #[test]
    fn places_are_given_up_for_those_who_wait() {
        let pool = Pool::new(Bounds { connections: 4, idle: None });
        let is_full = Rc::new(Cell::new(false));
        let seen = is_full.clone();
        pool.keep_while(move || !seen.get());
        (1..=3).for_each(|number| pool.put(good(number), 0));
        pool.close(1);
        is_full.set(true);
        pool.put(good(4), 0);
        assert_eq!([taken(&pool), taken(&pool), taken(&pool)], [Some(3), Some(2), None]);
        is_full.set(false);
        pool.put(good(5), 0);
        pool.close(9);
        assert_eq!(taken(&pool), None);
    }

    #[test]
    fn what_is_idle_for_too_long_is_closed() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        tokio::task::LocalSet::new().block_on(&runtime.unwrap(), async {
            let pool = Pool::new(Bounds { connections: 2, idle: Some(Duration::from_secs(4)) });
            pool.put(good(1), 0);
            tokio::time::sleep(Duration::from_secs(3)).await;
            pool.put(good(2), 0);
            tokio::time::sleep(Duration::from_secs(2)).await;
            assert_eq!([taken(&pool), taken(&pool)], [Some(2), None]);
            tokio::time::sleep(Duration::from_secs(4)).await;
            assert_eq!(pool.0.next_look.get(), None);
        });
    }

    #[test]
    fn each_is_closed_in_its_own_time() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        tokio::task::LocalSet::new().block_on(&runtime.unwrap(), async {
            let pool = Pool::new(Bounds { connections: 9, idle: None });
            let begun = Instant::now();
            let until =
                |number: u32| FakeConnection(number, true, Some(begun + Duration::from_secs(number.into())));
            // The first that is put is not the first that is closed, and one comes in after its time.
            [4, 1, 3, 2, 0].into_iter().for_each(|number| pool.put(until(number), 0));
            pool.put(good(9), 0);
            let left = || pool.0.idle.borrow().iter().map(|(one, _)| one.0).collect::<Vec<_>>();
            assert_eq!(left(), [4, 1, 3, 2, 9]);
            tokio::time::sleep(Duration::from_millis(2500)).await;
            assert_eq!(left(), [4, 3, 9]);
            tokio::time::sleep(Duration::from_secs(2)).await;
            assert_eq!((left(), pool.0.next_look.get()), (vec![9], None));
        });
    }
}
