//! Logs refused wishes: enough for an operator who forgot a grant, and no flood.
//!
//! Runs in: the connector of a service. Sees: addresses that the service chooses. Never: keeps or tells more of them
//! than a limit.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::Instant;
use wire::log::Level;
use worker::log::Log;

use crate::grants::remedy;

/// How often the same is told.
const AGAIN: Duration = Duration::from_secs(60);
/// LIMIT: different ones that are told within that time.
const LOGGED_MAX: usize = 32;

/// The recent refusals; a socket of TCP or UDP without an address.
#[derive(Debug, Default)]
pub(crate) struct Refusals(RefCell<HashMap<(bool, Option<SocketAddr>), Instant>>);

impl Refusals {
    /// A socket was refused.
    pub fn socket(&self, log: &Log, datagram: bool) {
        if self.is_news((datagram, None)) {
            let (kind, grant) = if datagram { ("UDP", "\"udp\"") } else { ("TCP", "\"tcp:PORT\"") };
            log.event(
                Level::Warning,
                format!("a {kind} socket was refused; add {grant} to `network` of the service to allow it"),
            );
        }
    }

    /// A connection was refused.
    pub fn connection(&self, log: &Log, datagram: bool, address: SocketAddr) {
        if self.is_news((datagram, Some(address))) {
            let grant = remedy(datagram, address);
            log.event(
                Level::Warning,
                format!(
                    "a connection to {address} was refused; add {grant} to `network` of the service to allow it"
                ),
            );
        }
    }

    fn is_news(&self, what: (bool, Option<SocketAddr>)) -> bool {
        let (mut logged, now) = (self.0.borrow_mut(), Instant::now());
        if logged.len() >= LOGGED_MAX {
            logged.retain(|_, at| now.duration_since(*at) < AGAIN);
        }
        match logged.get(&what) {
            Some(at) if now.duration_since(*at) < AGAIN => false,
            None if logged.len() >= LOGGED_MAX => false,
            _ => {
                logged.insert(what, now);
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_told_once_and_not_all_that_there_is() {
        let refusals = Refusals::default();
        let at = |port: u16| (false, Some(SocketAddr::from(([127, 0, 0, 1], port))));
        assert!(refusals.is_news(at(0)) && !refusals.is_news(at(0)));
        assert_eq!((0..100).filter(|port| refusals.is_news(at(*port))).count(), LOGGED_MAX - 1);
    }
}
