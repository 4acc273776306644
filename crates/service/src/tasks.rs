//! Work in the background, and the order to retire, as the service sees it.
//!
//! Runs in: a service's worker. Sees no untrusted bytes. Never: keeps a worker that has retired and has nothing left to
//! do.

use std::rc::Rc;

use tokio::sync::watch;
use tokio::task::spawn_local;

use crate::Context;

/// The state that the tasks of a worker and its end share.
#[derive(Clone, Debug)]
pub(crate) struct Tasks(Rc<TasksState>);

#[derive(Debug)]
struct TasksState {
    /// Whether the worker retires.
    draining: watch::Sender<bool>,
    /// How many tasks have not ended.
    running: watch::Sender<usize>,
}

/// A task that has not ended.
struct RunningTask(Tasks);

impl Drop for RunningTask {
    fn drop(&mut self) {
        self.0.0.running.send_modify(|running| *running -= 1);
    }
}

impl Tasks {
    pub(crate) fn new() -> Self {
        Self(Rc::new(TasksState { draining: watch::Sender::new(false), running: watch::Sender::new(0) }))
    }

    /// The worker retires.
    pub(crate) fn drain(&self) {
        self.0.draining.send_replace(true);
    }

    /// Waits until no task runs.
    pub(crate) async fn ended(&self) {
        // INVARIANT: the sender lives as long as `self`.
        let _ = self.0.running.subscribe().wait_for(|running| *running == 0).await;
    }

    fn drained(&self) -> impl Future<Output = ()> + use<> {
        let mut draining = self.0.draining.subscribe();
        // A worker that is gone retires no more.
        async move { drop(draining.wait_for(|draining| *draining).await) }
    }

    fn spawn(&self, work: impl Future<Output = ()> + 'static) {
        self.0.running.send_modify(|running| *running += 1);
        let running = RunningTask(self.clone());
        spawn_local(async move {
            work.await;
            drop(running);
        });
    }
}

impl Context {
    /// Does `work` in the background. A worker that retires ends after it, within `drain_timeout` of the configuration:
    /// work without an end has to watch [`Self::drained`], or is for [`Self::spawn_until_drained`].
    pub fn spawn(&self, work: impl Future<Output = ()> + 'static) {
        self.tasks().spawn(work);
    }

    /// Does `work` in the background, and drops it where it waits when the worker retires: for what goes on for ever.
    pub fn spawn_until_drained(&self, work: impl Future<Output = ()> + 'static) {
        let drained = self.drained();
        self.spawn(async move {
            tokio::select! {
                biased;
                () = drained => {}
                () = work => {}
            }
        });
    }

    /// Waits until the worker retires: another one has taken its place, or the server stops. Requests that it has
    /// received are still answered.
    pub fn drained(&self) -> impl Future<Output = ()> + use<> {
        self.tasks().drained()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::cell::Cell;
    use std::time::Duration;

    use tokio::task::{LocalSet, yield_now};

    /// Runs a test with a context, of which a service has the same.
    fn run<F: Future<Output = ()>>(test: impl FnOnce(Context) -> F) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        LocalSet::new().block_on(&runtime, test(Context::for_test(&[])));
    }

    #[test]
    fn the_end_waits_for_tasks_and_for_what_they_spawn() {
        run(|cx| async move {
            let done = Rc::new(Cell::new(0));
            let (inner, count) = (cx.clone(), done.clone());
            cx.spawn(async move {
                inner.drained().await;
                count.set(count.get() + 1);
                inner.spawn(async move {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    count.set(count.get() + 1);
                });
            });
            yield_now().await;
            assert_eq!(done.get(), 0);
            cx.tasks().drain();
            cx.tasks().ended().await;
            assert_eq!(done.get(), 2);
            // A later call returns as well.
            cx.drained().await;
        });
    }

    #[test]
    fn work_without_an_end_is_dropped() {
        run(|cx| async move {
            let held = Rc::new(());
            let (turns, ours) = (Rc::new(Cell::new(0)), held.clone());
            let count = turns.clone();
            cx.spawn_until_drained(async move {
                let _held = ours;
                loop {
                    count.set(count.get() + 1);
                    yield_now().await;
                }
            });
            while turns.get() < 3 {
                yield_now().await;
            }
            cx.tasks().drain();
            cx.tasks().ended().await;
            assert_eq!(Rc::strong_count(&held), 1);
        });
    }
}
