//! Handles messages of workers to a dispatcher, and connections whose channel ends.

use std::rc::Rc;
use std::time::Duration;

use sys::foreign::Foreign;
use wire::FromWorker;

use super::Dispatcher;
use super::destination::{CREDITS_MAX, Destination, SendCondition};

impl Dispatcher {
    /// Hears a worker until it is gone.
    pub(super) async fn listen(self: Rc<Self>, destination: Rc<Destination>) {
        let whom = std::fmt::from_fn(|f| write!(f, "{}: its worker", self.name.borrow()));
        let take = |arrived| match arrived {
            Ok((message, descriptor)) => self.handle(&destination, message, descriptor),
            Err(_) => self.protocol_violation(&destination, "a malformed message"),
        };
        destination.channel.receive_all(whom, take).await;
        if !destination.refuses() {
            self.lose(&destination);
        }
    }

    /// A channel is gone, and what was sent on it.
    fn lose(self: &Rc<Self>, destination: &Rc<Destination>) {
        self.destinations.borrow_mut().retain(|other| !Rc::ptr_eq(other, destination));
        for (_, (client, _)) in destination.sent.take() {
            self.release(client);
        }
        self.count_workers();
        self.want_worker();
    }

    /// Does what a worker says; how much of it was nonsense.
    fn handle(
        self: &Rc<Self>,
        destination: &Destination,
        message: FromWorker,
        descriptor: Option<Foreign>,
    ) -> u32 {
        match (message, descriptor) {
            (FromWorker::Returns { credits, done }, None) => {
                let mut unknown = false;
                for id in done {
                    let ended = destination.sent.borrow_mut().remove(&id);
                    match ended {
                        Some((client, _)) => self.release(client),
                        None => unknown = true,
                    }
                }
                let mut violations = 0;
                if unknown {
                    violations +=
                        self.protocol_violation(destination, "the end of a connection that it does not hold");
                }
                destination.has_heard();
                let credits = destination.credits.get().saturating_add(credits.into());
                if credits > CREDITS_MAX {
                    violations +=
                        self.protocol_violation(destination, "more credits than a worker may grant");
                }
                destination.credits.set(credits.min(CREDITS_MAX));
                self.serve_queue();
                self.note_full();
                violations
            }
            // One that another source had sent, which is gone, has no number here. A worker can make up a connection,
            // as any client can; it is treated as one.
            (FromWorker::Back { id, preread }, Some(stream)) => {
                let client = destination.sent.borrow().get(&id).map(|(_, peer)| *peer);
                self.owner.handed_back(stream, preread.0, client);
                0
            }
            (FromWorker::Rate { address_high, address_low, used_ms }, None) => {
                let client = wire::address_of(address_high, address_low).to_canonical();
                match self.owner.rate_used(client, Duration::from_millis(used_ms.into())) {
                    true => 0,
                    false => self.protocol_violation(destination, "a client's rate, which is for gates"),
                }
            }
            (FromWorker::Offence { address_high, address_low }, None) => {
                match self.owner.offended(wire::address_of(address_high, address_low).to_canonical()) {
                    true => 0,
                    false => self.protocol_violation(destination, "a client's offence, which is for gates"),
                }
            }
            (FromWorker::Drain {}, None) => {
                destination.drain();
                self.count_workers();
                self.want_worker();
                0
            }
            _ => self
                .protocol_violation(destination, "a descriptor where none belongs, or none where one does"),
        }
    }

    /// Tells the first nonsense of a worker.
    fn protocol_violation(&self, destination: &Destination, what: &str) -> u32 {
        if !destination.violation_logged.replace(true) {
            eprintln!("warning: {}: its worker sent {what}", self.name.borrow());
        }
        1
    }

    /// Sends as long as a channel without credits has room, until nobody is at its other end.
    pub(super) async fn watch_room(self: Rc<Self>, destination: Rc<Destination>) {
        loop {
            self.serve_queue();
            tokio::select! {
                // Nothing is ever said on it.
                _ = destination.channel.receive() => break,
                _ = async {
                    destination.full.notified().await;
                    destination.channel.room().await
                } => destination.credits.set(CREDITS_MAX),
            }
        }
        if let SendCondition::Server(guarded, dispatcher) = &destination.kind {
            guarded.lost(dispatcher);
        }
        self.lose(&destination);
    }
}
