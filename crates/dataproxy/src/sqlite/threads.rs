//! The threads of a database: one that writes, some that read, and one that sees to it that calls end in time.
//!
//! Sees: no value. Never: waits for a thread that works for longer than its call may take, or lets those that do become
//! many.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use wire::data::{GIVEN_UP_MAX, READERS};

use super::watch::Watch;
use crate::queue::{LOOK_EVERY, Lane, Queue};

/// LIMIT: how long calls pause from their beginning after one was long.
const LONG_FOR: Duration = Duration::from_secs(10);

/// The work of a thread until there are no more calls, or another thread has taken its place.
pub(super) type Life = fn(&Path, Lane, &Arc<Queue>, &Watch);

struct Thread {
    lane: Lane,
    watch: Watch,
    handle: JoinHandle<()>,
}

/// See the file's head.
pub(super) struct Threads {
    path: PathBuf,
    queue: Arc<Queue>,
    life: Life,
    threads: Vec<Thread>,
    are_long: Arc<AtomicBool>,
    /// When a long call was seen last.
    long_seen: Option<Instant>,
}

impl Threads {
    /// Starts them; who keeps them ends when they have.
    pub(super) fn start(path: &Path, queue: &Arc<Queue>, life: Life) -> std::io::Result<JoinHandle<()>> {
        let (path, queue) = (path.to_owned(), queue.clone());
        let mut all =
            Self { path, queue, life, threads: Vec::new(), are_long: Arc::default(), long_seen: None };
        for lane in [Lane::Write].into_iter().chain([Lane::Read; READERS]) {
            let thread = all.spawn(lane)?;
            all.threads.push(thread);
        }
        std::thread::Builder::new().spawn(move || all.keep())
    }

    fn spawn(&self, lane: Lane) -> std::io::Result<Thread> {
        let (path, queue, life) = (self.path.clone(), self.queue.clone(), self.life);
        let watch = Watch::new(&self.are_long);
        let own = watch.clone();
        let handle = std::thread::Builder::new().spawn(move || life(&path, lane, &queue, &own))?;
        Ok(Thread { lane, watch, handle })
    }

    /// Sees to it that calls end in time, until no more come.
    fn keep(mut self) {
        while self.queue.wait_for_work() {
            self.look(Instant::now());
            sleep(LOOK_EVERY);
        }
        // Those that were given up end with the process; what they have changed is undone.
        let left = self.threads.into_iter().filter(|thread| !thread.watch.is_replaced());
        left.for_each(|thread| drop(thread.handle.join()));
    }

    fn look(&mut self, now: Instant) {
        self.queue.expire(now);
        self.look_for_long(now);
        self.threads.retain(|thread| !(thread.watch.is_replaced() && thread.handle.is_finished()));
        let mut new = Vec::new();
        for thread in &self.threads {
            thread.watch.keep(now, || {
                // There is one connection that writes: another would wait for its lock.
                let given_up = self.threads.len() + new.len() - (1 + READERS);
                let replacement = (thread.lane == Lane::Read && given_up < GIVEN_UP_MAX)
                    .then(|| self.spawn(Lane::Read).ok())
                    .flatten();
                let is_replaced = replacement.is_some();
                new.extend(replacement);
                is_replaced
            });
        }
        self.threads.extend(new);
    }

    /// Has long calls pause, and for a while all others from their beginning.
    fn look_for_long(&mut self, now: Instant) {
        for thread in &self.threads {
            if thread.watch.pause_if_long(now) {
                self.long_seen = Some(now);
            }
        }
        let are_long = self.long_seen.is_some_and(|seen| now.duration_since(seen) < LONG_FOR);
        self.are_long.store(are_long, Ordering::Relaxed);
    }
}
