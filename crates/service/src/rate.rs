//! How often something may be done, for each client or any other key.
//!
//! Runs in: a service's worker. Sees: addresses of clients, and keys that they may have made up. Never: takes more
//! memory the more keys there are; keeps a key itself.

use std::cell::RefCell;
use std::hash::{BuildHasher as _, RandomState};
use std::time::{Duration, Instant};

use conditioning::{Buckets, ClientOrigin};
use http::StatusCode;
use http::header::RETRY_AFTER;

use crate::{Request, Response};

/// LIMIT: clients and keys that are known; about 5 MiB. One that was not heard of for longest may do everything again.
const KEYS_MAX: u32 = 65_536;

/// A limit to how often each client, or each of any other keys, may do something: a bucket of tokens for each.
///
/// ```
/// use bulkhead_service::{RateLimit, Request, Response};
///
/// struct Login(RateLimit);
///
/// impl Login {
///     fn new() -> Self {
///         Self(RateLimit::per_minute(10).burst(3))
///     }
///
///     fn log_in(&self, request: &Request, name: &str) -> Result<Response, Response> {
///         self.0.check(request)?;                  // by the client's address
///         self.0.check_key(name)?;                 // whoever tries to be this user
///         Ok(Response::text("welcome\n"))
///     }
/// }
/// # assert!(Login::new().log_in(&Request::get("/"), "ann").is_ok());
/// ```
#[derive(Debug)]
pub struct RateLimit {
    interval: Duration,
    buckets: RefCell<Buckets<BucketKey>>,
    hashers: [RandomState; 2],
}

/// Whose bucket it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum BucketKey {
    Client(ClientOrigin),
    /// A key as two numbers, whose seeds nobody knows: so no key is long, and no two are found that are alike.
    Other(u64, u64),
}

/// It was done too often; converts into 429 with `Retry-After`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many requests; the next one may come in {} ms", retry_after.as_millis())]
pub struct TooMany {
    /// After this time, it may be done once more.
    pub retry_after: Duration,
}

impl RateLimit {
    /// So many times a second (at least one), up to as many at once.
    pub fn per_second(count: u32) -> Self {
        Self::new(count, Duration::from_secs(1))
    }

    /// So many times a minute (at least one), up to as many at once.
    pub fn per_minute(count: u32) -> Self {
        Self::new(count, Duration::from_secs(60))
    }

    fn new(count: u32, time: Duration) -> Self {
        let count = count.max(1);
        let interval = time / count;
        let buckets = RefCell::new(Buckets::new(interval, count, KEYS_MAX));
        Self { interval, buckets, hashers: [RandomState::new(), RandomState::new()] }
    }

    /// The same with so many at once (at least one), after a time without any.
    #[must_use]
    pub fn burst(self, burst: u32) -> Self {
        let buckets = RefCell::new(Buckets::new(self.interval, burst, KEYS_MAX));
        Self { buckets, ..self }
    }

    /// Counts once for the client who sent `request`: by its address, or the /64 of its IPv6 address.
    ///
    /// # Errors
    /// That is too often. The error converts into the [`Response`] to be given.
    pub fn check(&self, request: &Request) -> Result<(), TooMany> {
        self.take(BucketKey::Client(request.client().ip().into()))
    }

    /// Counts once for `key`: the name of a user, a token, the address of a letter.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub fn check_key(&self, key: &str) -> Result<(), TooMany> {
        let [one, other] = &self.hashers;
        self.take(BucketKey::Other(one.hash_one(key), other.hash_one(key)))
    }

    fn take(&self, key: BucketKey) -> Result<(), TooMany> {
        let outcome = self.buckets.borrow_mut().take(key, Instant::now());
        outcome.map(drop).map_err(|retry_after| TooMany { retry_after })
    }
}

impl From<TooMany> for Response {
    fn from(error: TooMany) -> Self {
        let seconds = error.retry_after.as_millis().div_ceil(1000).max(1);
        Self::status_page(StatusCode::TOO_MANY_REQUESTS).with_header(RETRY_AFTER, &seconds.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::Client;

    fn from(address: &str) -> Request {
        let mut request = Request::get("/");
        request.extensions_mut().insert(Client(format!("{address}:1").parse().unwrap()));
        request
    }

    #[test]
    fn each_client_and_each_key_has_its_own() {
        let limit = RateLimit::per_minute(2);
        for address in ["192.0.2.1", "192.0.2.2", "[2001:db8::1]"] {
            assert!(limit.check(&from(address)).is_ok() && limit.check(&from(address)).is_ok());
            assert!(limit.check(&from(address)).is_err());
        }
        assert!(limit.check(&from("[2001:db8::2]")).is_err(), "one client has a whole /64");
        assert!(limit.check(&from("[2001:db8:0:1::1]")).is_ok());
        assert!(limit.check_key("192.0.2.1").is_ok() && limit.check_key("ann").is_ok());
    }

    #[test]
    fn a_refusal_says_when_to_come_back() {
        let limit = RateLimit::per_minute(6).burst(1);
        assert_eq!(limit.check_key("ann"), Ok(()));
        let error = limit.check_key("ann").unwrap_err();
        assert!((9..=10).contains(&error.retry_after.as_secs()), "{error}");
        let response = Response::from(error);
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(response.headers()[RETRY_AFTER], "10");
        let soon = TooMany { retry_after: Duration::from_millis(3) };
        assert_eq!(Response::from(soon).headers()[RETRY_AFTER], "1");
        assert!(RateLimit::per_second(0).burst(0).check_key("ann").is_ok(), "one is always possible");
    }

    #[test]
    fn tokens_come_back() {
        let limit = RateLimit::per_second(50).burst(1);
        let begun = Instant::now();
        limit.check_key("ann").unwrap();
        while limit.check_key("ann").is_err() {
            std::thread::yield_now();
        }
        assert!(begun.elapsed() >= Duration::from_millis(20));
    }
}
