//! Soft state of users, sealed under keys that only their cookies hold.
//!
//! Runs in: a service's worker, under that service's uid. Sees: cookies, of which any may be made up; the states
//! that the service puts in. Never: keeps a key or an open state beyond the request that brought it.
//!
//! Source: Krohn, "Building Secure High-Performance Web Services with OKWS", USENIX ATC 2004, 6.2:
//! an adversary who owns a service can read what is in its memory of
//! users. Here it finds there what it cannot open, but for the users whose requests it then sees.
//!
//! A user's cookie holds 32 random bytes. From them follow, by HKDF, the place of the user's entry and the key of
//! its cipher (XChaCha20-Poly1305). A key that is replaced leaves the new key in its own place, sealed, for a short
//! time: requests that still come with the old one find the same state, and none is ever there twice.

mod cookie;
mod key;
mod settings;
mod store;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::fmt;
use std::ops::Deref;
use std::time::Instant;

use http::{HeaderMap, StatusCode};
use zeroize::Zeroizing;

use crate::{Error, Response};
use cookie::Cookie;
#[doc(hidden)]
pub use cookie::fuzz_cookie;
use key::{KeySecret, SealedKind, UserKey};
pub use settings::SealedSettings;
use store::{SealedEntry, Store};

/// How many times a key may have been replaced within one `overlap`.
///
/// LIMIT: none is replaced before it is as old as that, so there is one step, or two if clocks meet.
const STEPS_MAX: usize = 3;

/// A cache of users' states; made by [`crate::Context::sealed_cache`].
///
/// ```
/// use bulkhead_service::{Context, Error, Request, Response, SealedCache, Service};
///
/// struct Notes(SealedCache);
///
/// impl Service for Notes {
///     async fn init(cx: &Context) -> Result<Self, Error> {
///         Ok(Self(cx.sealed_cache("notes", "/notes")?))
///     }
///
///     async fn process(&self, request: Request) -> Response {
///         let mut user = self.0.user(request.headers());
///         let before = user.get().map_or(0, |note| note.len());
///         let mut response = Response::text(format!("{before} bytes so far\n"));
///         match user.put(response.headers_mut(), request.param("note").unwrap_or_default().as_bytes()) {
///             Ok(()) => response,
///             Err(error) => error.into(),
///         }
///     }
/// }
/// ```
#[derive(Debug)]
pub struct SealedCache {
    name: String,
    cookie: Cookie,
    settings: SealedSettings,
    store: RefCell<Store>,
    now: fn() -> Instant,
}

/// The user of one request, and that user's keys; to be dropped with the request.
#[derive(Debug)]
pub struct User<'c> {
    cache: &'c SealedCache,
    /// Keys that the request brought or that were made in its course, as far as they may open anything.
    keys: Vec<UserKey>,
    /// Whether the user has a cookie.
    has_cookie: bool,
}

/// A state that was opened; it is overwritten when dropped.
pub struct Opened(Zeroizing<Vec<u8>>);

/// Why a state could not be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealedError {
    /// It is longer than `entry_bytes_max`; to be answered with 413, if the length is the client's doing.
    #[error("a user's state is {length} bytes long; a sealed cache takes at most {limit}")]
    TooLong {
        /// Its length, in bytes.
        length: usize,
        /// The limit, in bytes.
        limit: usize,
    },
    /// The system gave no random bytes; to be answered with 500.
    #[error("the system gave no random bytes, so nothing can be sealed")]
    NoRandom,
    /// The value of a session has no form as JSON; to be answered with 500.
    #[error("the value of a session cannot be written as JSON")]
    NotSerializable,
}

impl SealedCache {
    /// A cache called `name`, whose cookie is sent with requests below `path`.
    pub(crate) fn new(name: &str, path: &str, settings: SealedSettings) -> Result<Self, Error> {
        settings.check()?;
        let cookie = Cookie::new(name, path, !settings.danger_plaintext)?;
        // Better now than at a user's first request.
        KeySecret::random().map_err(|error| format!("a sealed cache needs random bytes: {error}"))?;
        let store = RefCell::new(Store::new(settings.entries_max, settings.total_bytes_max));
        Ok(Self { name: name.to_owned(), cookie, settings, store, now: Instant::now })
    }

    /// The user who sent a request with these headers.
    pub fn user(&self, headers: &HeaderMap) -> User<'_> {
        let secrets = self.cookie.secrets(headers);
        let has_cookie = !secrets.is_empty();
        let keys = secrets.into_iter().map(|secret| UserKey::new(secret, &self.name)).collect();
        let mut user = User { cache: self, keys, has_cookie };
        let now = (self.now)();
        if let Some(key) = user.current(now) {
            self.store.borrow_mut().visit(&key.index);
        }
        user
    }

    /// How many entries there are, and how many bytes they count for.
    pub fn extent(&self) -> (usize, usize) {
        self.store.borrow().extent()
    }

    /// The key that has followed `key` last; `None` if there is nothing for it to open.
    fn newest(&self, mut key: UserKey, now: Instant) -> Option<UserKey> {
        let mut store = self.store.borrow_mut();
        for _ in 0..STEPS_MAX {
            let entry = store.find(&key.index, now)?;
            if entry.kind == SealedKind::State {
                return Some(key);
            }
            let successor = key.open(SealedKind::Successor, &entry.sealed)?;
            key = UserKey::new(KeySecret::copy_of(&successor)?, &self.name);
        }
        None
    }

    /// Whether a key is to be replaced.
    fn is_due(&self, key: &UserKey, now: Instant) -> bool {
        let settings = &self.settings;
        self.store.borrow_mut().find(&key.index, now).is_none_or(|entry| {
            let age = now.saturating_duration_since(entry.key_made);
            age >= settings.overlap && (age >= settings.rotate_after || entry.uses >= settings.rotate_uses)
        })
    }
}

impl User<'_> {
    /// This user's state; `None` if there is none, it has expired, or it had to make room.
    pub fn get(&mut self) -> Option<Opened> {
        let cache = self.cache;
        let now = (cache.now)();
        let key = self.current(now)?;
        let mut store = cache.store.borrow_mut();
        let opened = key.open(SealedKind::State, &store.find(&key.index, now)?.sealed);
        if opened.is_none() {
            // Somebody has changed what is in our memory; it will not get better.
            store.remove(&key.index);
        }
        opened.map(Opened)
    }

    /// Keeps `state` for this user, in place of what was there, and puts the cookie into the response's headers.
    ///
    /// The response gets `Cache-Control: no-store`, too. To overwrite `state` itself is up to the caller.
    ///
    /// # Errors
    /// When `state` is too long, or no random bytes are to be had; then what was there stays.
    pub fn put(&mut self, response: &mut HeaderMap, state: &[u8]) -> Result<(), SealedError> {
        let cache = self.cache;
        let limit = cache.settings.entry_bytes_max;
        if state.len() > limit {
            return Err(SealedError::TooLong { length: state.len(), limit });
        }
        let now = (cache.now)();
        let due = self.current(now).is_none_or(|key| cache.is_due(key, now));
        if due {
            self.replace_key(state, now)?;
        } else if let Some(key) = self.keys.first() {
            let sealed = key.seal(SealedKind::State, state)?;
            cache.store.borrow_mut().reseal(&key.index, sealed, now + cache.settings.lifetime, now);
        }
        if let Some(key) = self.keys.first() {
            cache.cookie.issue(response, &key.secret, cache.settings.lifetime);
            self.has_cookie = true;
        }
        Ok(())
    }

    /// Removes this user's state, and the cookie by the response's headers.
    ///
    /// A state that is put in afterwards gets a new key. That is also what to do when somebody logs in: who knew the
    /// key before does not know the new one.
    pub fn forget(&mut self, response: &mut HeaderMap) {
        let cache = self.cache;
        if let Some(key) = self.current((cache.now)()) {
            cache.store.borrow_mut().remove(&key.index);
        }
        self.keys.clear();
        if self.has_cookie {
            cache.cookie.withdraw(response);
        }
    }

    /// The key of this user's entry; from here on it is the only one.
    ///
    /// SECURITY: a key that has no entry is dropped, and never adopted: whoever gave it to the user knows it.
    fn current(&mut self, now: Instant) -> Option<&UserKey> {
        let keys = std::mem::take(&mut self.keys);
        self.keys.extend(keys.into_iter().find_map(|key| self.cache.newest(key, now)));
        self.keys.first()
    }

    /// Puts `state` in under a new key, to which the present one, if any, leads for a while.
    fn replace_key(&mut self, state: &[u8], now: Instant) -> Result<(), SealedError> {
        let SealedCache { name, settings, store, .. } = self.cache;
        let new = UserKey::new(KeySecret::random()?, name);
        let sealed = new.seal(SealedKind::State, state)?;
        let mut store = store.borrow_mut();
        if let Some(old) = self.keys.first() {
            let successor = old.seal(SealedKind::Successor, new.secret.bytes())?;
            store.insert(old.index, SealedEntry::successor(successor, now, now + settings.overlap), now);
        }
        let came_back = !self.keys.is_empty();
        store.insert(new.index, SealedEntry::state(sealed, came_back, now, now + settings.lifetime), now);
        self.keys = vec![new];
        Ok(())
    }
}

impl Deref for Opened {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Opened({} bytes)", self.len())
    }
}

impl From<getrandom::Error> for SealedError {
    fn from(_: getrandom::Error) -> Self {
        Self::NoRandom
    }
}

/// The answer to a request whose state could not be kept.
impl From<SealedError> for Response {
    fn from(error: SealedError) -> Self {
        Self::status_page(match error {
            SealedError::TooLong { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            SealedError::NoRandom | SealedError::NotSerializable => StatusCode::INTERNAL_SERVER_ERROR,
        })
    }
}
