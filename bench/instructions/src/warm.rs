//! What is done before anything is counted: tables and buffers get their size then, and TLS its keys.

use std::pin::pin;
use std::sync::mpsc;

use tokio::sync::oneshot;

/// Requests, or connections, before those that are counted.
const BEFORE: u32 = 50;

/// The client's end.
#[derive(Debug)]
pub struct WarmUp {
    reached: oneshot::Sender<()>,
    go: mpsc::Receiver<()>,
}

/// The end of what is counted.
#[derive(Debug)]
pub struct Start {
    reached: oneshot::Receiver<()>,
    go: mpsc::Sender<()>,
}

/// Both ends.
pub fn warm_up() -> (WarmUp, Start) {
    let (said, reached) = oneshot::channel();
    let (sender, go) = mpsc::channel();
    (WarmUp { reached: said, go }, Start { reached, go: sender })
}

impl WarmUp {
    /// Does `act` so many times that everything is warm, and, once counting has begun, `count` times.
    pub fn then(self, count: u32, mut act: impl FnMut()) {
        (0..BEFORE).for_each(|_| act());
        self.reached.send(()).unwrap();
        self.go.recv().unwrap();
        (0..count).for_each(|_| act());
    }
}

impl Start {
    /// Has `served` go on to its end; what `counted` has grown by since the client was warm.
    pub async fn count(self, served: impl Future<Output = ()>, counted: impl Fn() -> u64) -> u64 {
        let mut served = pin!(served);
        tokio::select! {
            biased;
            () = &mut served => panic!("it ended before it was warm"),
            warm = self.reached => warm.unwrap(),
        }
        let before = counted();
        self.go.send(()).unwrap();
        served.await;
        counted() - before
    }
}
