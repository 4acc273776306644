//! Sockets in stock: each connects to its target with the first bytes that are written to it.
//!
//! Runs in: site workers. Untrusted input: none that it looks at. Must never: keep a socket that nobody has wanted for
//! a second.
//!
//! Nobody at the other end hears of one before it is used, so that it takes no process of a server's, as a connection
//! made in advance would.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use sys::foreign::Foreign;
use tokio::time::{Instant, sleep};

/// A target is busy whose last connection was wanted so lately: there are sockets in stock for busy ones alone. They go
/// when nobody has wanted one for as long.
const BUSY: Duration = Duration::from_secs(1);
/// More are asked for when no more than so many are left.
const LOW: usize = 4;
/// LIMIT: sockets of one target.
const SOCKETS_MAX: usize = 40;
/// How long none are asked for when there were none, or when one has found nobody.
const PAUSE: Duration = Duration::from_secs(10);

/// The sockets of one target.
#[derive(Debug, Default)]
pub(crate) struct Stock {
    sockets: RefCell<Vec<Foreign>>,
    /// When one was wanted last.
    wanted: Cell<Option<Instant>>,
    /// Until when none are asked for.
    pause: Cell<Option<Instant>>,
    /// Whether some were asked for, and have not come.
    is_asked: Cell<bool>,
    /// Whether there is a task that closes those that nobody wants.
    is_watched: Cell<bool>,
}

impl Stock {
    /// A socket, if there is one, and whether more are to be asked for.
    pub fn take(&self) -> (Option<Foreign>, bool) {
        let now = Instant::now();
        let is_busy = self.wanted.replace(Some(now)).is_some_and(|last| now.duration_since(last) < BUSY);
        let is_pause = self.pause.get().is_some_and(|until| now < until);
        let socket = self.sockets.borrow_mut().pop();
        let is_low = self.sockets.borrow().len() <= LOW;
        (socket, is_busy && is_low && !is_pause && !self.is_asked.get())
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.sockets.borrow().is_empty()
    }

    /// Some were asked for.
    pub fn ask(&self) {
        self.is_asked.set(true);
    }

    /// Stores the sockets that have come in answer; returns how many of them were not asked for.
    pub fn put(self: &Rc<Self>, sockets: impl Iterator<Item = Foreign>) -> u32 {
        let was_asked = self.is_asked.replace(false);
        let room = if was_asked { SOCKETS_MAX - self.sockets.borrow().len() } else { 0 };
        let before = self.sockets.borrow().len();
        self.sockets.borrow_mut().extend(sockets.take(room));
        if self.sockets.borrow().len() == before {
            self.pause.set(Some(Instant::now() + PAUSE));
        } else if !self.is_watched.replace(true) {
            tokio::task::spawn_local(self.clone().watch());
        }
        u32::from(!was_asked)
    }

    /// Closes all, and asks for no more for a while: the last one has found nobody.
    pub fn give_up(&self) {
        self.clear();
        self.pause.set(Some(Instant::now() + PAUSE));
    }

    /// Closes all: they lead to where the target is no more.
    pub fn clear(&self) {
        self.sockets.borrow_mut().clear();
    }

    async fn watch(self: Rc<Self>) {
        while self.wanted.get().is_some_and(|last| last.elapsed() < BUSY) {
            sleep(BUSY).await;
        }
        self.is_watched.set(false);
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sockets(count: usize) -> impl Iterator<Item = Foreign> {
        (0..count).map(|_| sys::seqpacket::stream_pair().unwrap().0.into())
    }

    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        tokio::task::LocalSet::new().block_on(&runtime.unwrap(), test);
    }

    #[test]
    fn only_busy_targets_have_them_and_not_for_long() {
        run(async {
            let stock = Rc::new(Stock::default());
            assert!(matches!(stock.take(), (None, false)));
            sleep(BUSY).await;
            assert!(matches!(stock.take(), (None, false)));
            assert!(matches!(stock.take(), (None, true)));
            stock.ask();
            assert!(matches!(stock.take(), (None, false)));
            assert_eq!(stock.put(sockets(LOW + 2)), 0);
            assert!(matches!(stock.take(), (Some(_), false)));
            assert!(matches!(stock.take(), (Some(_), true)));
            sleep(3 * BUSY).await;
            assert!(matches!(stock.take(), (None, false)));
        });
    }

    #[test]
    fn there_is_a_pause_after_what_led_nowhere() {
        run(async {
            let stock = Rc::new(Stock::default());
            let is_asked = async || {
                drop(stock.take());
                stock.take().1
            };
            assert!(is_asked().await);
            stock.ask();
            assert_eq!(stock.put(sockets(0)), 0);
            assert!(!is_asked().await);
            sleep(PAUSE).await;
            assert!(is_asked().await);
            stock.ask();
            stock.put(sockets(2));
            stock.give_up();
            assert!(matches!(stock.take(), (None, false)));
            // A socket that was not asked for.
            assert_eq!((stock.put(sockets(1)), stock.take().0.is_none()), (1, true));
        });
    }
}
