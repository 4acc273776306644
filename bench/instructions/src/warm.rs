//! Warming up, and counting each request by itself.

use std::pin::pin;
use std::sync::mpsc;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Requests, or connections, before those that are counted: tables and buffers get their size, and TLS its keys.
const BEFORE: u32 = 50;
/// Requests before each one that is counted: what is done once a second, or for many at a time, is done with these.
/// Counting one takes seconds.
const BETWEEN: u32 = 3;

/// The client's end.
#[derive(Debug)]
pub struct WarmUp {
    reached: UnboundedSender<()>,
    go: mpsc::Receiver<()>,
}

/// The end of what is counted.
#[derive(Debug)]
pub struct Start {
    reached: UnboundedReceiver<()>,
    go: mpsc::SyncSender<()>,
}

/// Both ends.
pub fn warm_up() -> (WarmUp, Start) {
    let (said, reached) = unbounded_channel();
    // One that has no memory allocated later.
    let (sender, go) = mpsc::sync_channel(1);
    (WarmUp { reached: said, go }, Start { reached, go: sender })
}

impl WarmUp {
    /// Does `act` so many times that everything is warm, and then `count` times between two marks, some more before
    /// each.
    pub fn then(self, count: u32, mut act: impl FnMut()) {
        (0..BEFORE).for_each(|_| act());
        for _ in 0..count {
            (0..BETWEEN).for_each(|_| act());
            self.mark();
            act();
            self.mark();
        }
    }

    fn mark(&self) {
        self.reached.send(()).unwrap();
        self.go.recv().unwrap();
    }
}

impl Start {
    /// Has `served` go on for `count` requests; what `counted` grows by with each of them.
    pub async fn count(
        mut self,
        count: u32,
        served: impl Future<Output = ()>,
        counted: impl Fn() -> u64,
    ) -> Vec<u64> {
        let mut served = pin!(served);
        let mut marks = Vec::with_capacity(2 * count as usize);
        for _ in 0..2 * count {
            tokio::select! {
                biased;
                () = &mut served => panic!("it ended before the last request"),
                reached = self.reached.recv() => reached.unwrap(),
            }
            marks.push(counted());
            self.go.send(()).unwrap();
        }
        marks.chunks(2).map(|two| two[1] - two[0]).collect()
    }
}
