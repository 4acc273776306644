//! How many requests a client may make of this site: `rate_max`, for every request that the worker has.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: addresses of clients. Must never: tell gates of
//! more clients than they can hear of.
//!
//! Gates count what comes to them, for all sites together; of a connection that stays here, that is the first request.
//! The worker counts all requests of its site, through whichever gate and on whichever connection they came. Of clients
//! that have used more than half of what they may, it tells the gates how much, so that these refuse them before the
//! worker is bothered. They hear that for this site alone.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use conditioning::{Exempt, Rate, RateDecision};
use wire::FromWorker;
use worker::receiver::Receiver;

/// LIMIT: how often gates are told, and of how many clients at once.
const TELL_EVERY: Duration = Duration::from_millis(50);
const TOLD_MAX: usize = 32;

/// The rates of all clients.
pub(crate) struct Rates {
    limited: bool,
    known: Rc<ClientRates>,
}

struct ClientRates {
    rate: RefCell<Rate>,
    /// Clients of whom the gates are to be told.
    low: RefCell<Vec<IpAddr>>,
    /// Whether they will be.
    telling: Cell<bool>,
}

impl Rates {
    /// So many requests a second of each client, any number if that is 0, and so many at once; any number of `exempt`.
    pub fn new((per_second, burst): (u32, u32), exempt: Exempt) -> Self {
        let rate = RefCell::new(Rate::new(per_second, burst).exempting(exempt));
        let known = ClientRates { rate, low: RefCell::default(), telling: Cell::new(false) };
        Self { limited: per_second > 0, known: Rc::new(known) }
    }

    /// Whether there is a limit.
    pub fn limit(&self) -> bool {
        self.limited
    }

    /// Whether a client may make a request now; counts it.
    pub fn allow(&self, client: IpAddr, now: Instant, receiver: &Rc<Receiver>) -> bool {
        let asked = self.known.rate.borrow_mut().ask(client, now);
        if asked != RateDecision::Within {
            self.known.is_low(client, receiver);
        }
        asked != RateDecision::Over
    }

    /// How many requests were refused.
    pub fn refused(&self) -> u64 {
        self.known.rate.borrow().over_rate
    }
}

impl ClientRates {
    /// Has the gates told of a client before long.
    fn is_low(self: &Rc<Self>, client: IpAddr, receiver: &Rc<Receiver>) {
        let mut low = self.low.borrow_mut();
        // One for whom there is no room is told of with one of its next requests.
        if low.len() < TOLD_MAX && !low.contains(&client) {
            low.push(client);
        }
        if !self.telling.replace(true) {
            tokio::task::spawn_local(self.clone().tell(receiver.clone()));
        }
    }

    async fn tell(self: Rc<Self>, receiver: Rc<Receiver>) {
        tokio::time::sleep(TELL_EVERY).await;
        self.telling.set(false);
        let (low, now) = (self.low.take(), Instant::now());
        for client in low {
            let used = self.rate.borrow().used(client, now);
            let (address_high, address_low) = wire::halves(client);
            let used_ms = u32::try_from(used.as_millis()).unwrap_or(u32::MAX);
            receiver.notify_gates(&FromWorker::Rate { address_high, address_low, used_ms });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_client_has_one_bucket_and_the_exempt_have_no_limit() {
        let (receiver, now) = (Receiver::new(10), Instant::now());
        let exempt = Exempt(vec!["203.0.113.0/24".parse().unwrap()]);
        let rates = Rates::new((1, 3), exempt);
        let allowed = |client: &str| {
            let client = client.parse().unwrap();
            (0..10).filter(|_| rates.allow(client, now, &receiver)).count()
        };
        let local = tokio::task::LocalSet::new();
        local
            .run_until(async {
                assert_eq!((allowed("192.0.2.1"), allowed("192.0.2.1"), allowed("192.0.2.2")), (3, 0, 3));
                assert_eq!(allowed("203.0.113.9"), 10);
                assert_eq!((rates.refused(), rates.limit()), (24, true));
                assert_eq!(rates.known.low.borrow().len(), 2);
                assert!(!Rates::new((0, 0), Exempt::default()).limit());
            })
            .await;
    }
}
