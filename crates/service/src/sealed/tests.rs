//! A cache as its users and its enemies see it, with a clock that is set by hand.
//!
//! Runs in: the test. Sees: what the tests make up. Never: runs outside of tests.

use std::cell::Cell;
use std::time::Duration;

use http::HeaderValue;
use http::header::{COOKIE, SET_COOKIE};

use super::*;

const STATE: &[u8] = b"an ode to the west wind";

thread_local! {
    static START: Instant = Instant::now();
    static PASSED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

fn pass(seconds: u64) {
    PASSED.set(PASSED.get() + Duration::from_secs(seconds));
}

fn settings() -> SealedSettings {
    SealedSettings {
        entry_bytes_max: 1000,
        lifetime: Duration::from_secs(1000),
        rotate_after: Duration::from_secs(100),
        rotate_uses: 10,
        overlap: Duration::from_secs(5),
        ..SealedSettings::default()
    }
}

fn cache_with(settings: SealedSettings) -> SealedCache {
    let mut cache = SealedCache::new("test", "/", settings).unwrap();
    cache.now = || START.with(|start| *start) + PASSED.get();
    cache
}

fn cache() -> SealedCache {
    cache_with(settings())
}

/// A browser, as far as it keeps one cookie.
#[derive(Clone, Default)]
struct Browser(Option<String>);

impl Browser {
    fn headers(&self) -> HeaderMap {
        let pair = self.0.iter().map(|pair| (COOKIE, HeaderValue::from_str(pair).unwrap()));
        pair.collect()
    }

    fn take(&mut self, response: &HeaderMap) {
        if let Some(line) = response.get(SET_COOKIE) {
            let pair = line.to_str().unwrap().split("; ").next().unwrap();
            self.0 = Some(pair.to_owned()).filter(|pair| !pair.ends_with('='));
        }
    }

    fn get(&self, cache: &SealedCache) -> Option<Vec<u8>> {
        cache.user(&self.headers()).get().map(|state| state.to_vec())
    }

    fn put(&mut self, cache: &SealedCache, state: &[u8]) {
        let mut response = HeaderMap::new();
        cache.user(&self.headers()).put(&mut response, state).unwrap();
        self.take(&response);
    }

    fn forget(&mut self, cache: &SealedCache) {
        let mut response = HeaderMap::new();
        cache.user(&self.headers()).forget(&mut response);
        self.take(&response);
    }

    fn key(&self) -> Vec<u8> {
        let (_, digits) = self.0.as_ref().unwrap().split_once('=').unwrap();
        (0..32).map(|at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).unwrap()).collect()
    }
}

/// A browser whose state is [`STATE`].
fn user(cache: &SealedCache) -> Browser {
    let mut browser = Browser::default();
    browser.put(cache, STATE);
    browser
}

/// Everything that the cache holds from one request to the next.
fn memory(cache: &SealedCache) -> Vec<u8> {
    let mut store = cache.store.borrow_mut();
    let parts = store.entries_mut().map(|(index, entry)| [&index[..], &entry.sealed].concat());
    parts.collect::<Vec<_>>().concat()
}

fn holds(memory: &[u8], what: &[u8]) -> bool {
    memory.windows(what.len()).any(|window| window == what)
}

#[test]
fn a_state_is_there_for_its_user_only() {
    let cache = cache();
    let (one, mut other) = (user(&cache), user(&cache));
    assert_ne!(one.key(), other.key());
    other.put(&cache, b"other");
    assert_eq!(one.get(&cache).unwrap(), STATE);
    assert_eq!(other.get(&cache).unwrap(), b"other");
    assert_eq!(Browser::default().get(&cache), None);
    let stranger = Browser(Some(format!("__Host-test={}", "ab".repeat(32))));
    assert_eq!(stranger.get(&cache), None);
    assert_eq!(cache.extent().0, 2);
}

#[test]
fn neither_key_nor_state_is_in_memory_between_requests() {
    let cache = cache();
    let mut browser = user(&cache);
    for _ in 0..40 {
        // Also while keys are being replaced.
        pass(3);
        let before = browser.key();
        browser.put(&cache, STATE);
        assert!(browser.get(&cache).is_some());
        let memory = memory(&cache);
        assert!(memory.len() > STATE.len());
        for secret in [&browser.key(), &before] {
            assert!(!holds(&memory, secret));
            assert!(!holds(&memory, &secret[..8]), "nor any part of the key");
            let cipher = UserKey::new(KeySecret::copy_of(secret).unwrap(), "test");
            assert!(holds(&memory, &cipher.index), "the search finds what is there");
        }
        assert!(!holds(&memory, &STATE[..6]));
    }
}

#[test]
fn a_key_that_is_not_ours_is_not_adopted() {
    let cache = cache();
    let given = Browser(Some(format!("__Host-test={}", "ab".repeat(32))));
    let mut victim = given.clone();
    victim.put(&cache, STATE);
    assert_ne!(victim.0, given.0);
    assert_eq!(given.get(&cache), None);
    assert_eq!(victim.get(&cache).unwrap(), STATE);
}

#[test]
fn a_wrong_key_and_a_changed_byte_open_nothing() {
    let key = |byte| UserKey::new(KeySecret::copy_of(&[byte; 32]).unwrap(), "test");
    let sealed = key(1).seal(SealedKind::State, STATE).unwrap();
    assert_eq!(key(1).open(SealedKind::State, &sealed).unwrap().as_slice(), STATE);
    assert!(key(2).open(SealedKind::State, &sealed).is_none());
    assert!(key(1).open(SealedKind::Successor, &sealed).is_none());
    let elsewhere = UserKey::new(KeySecret::copy_of(&[1; 32]).unwrap(), "other");
    assert!(elsewhere.open(SealedKind::State, &sealed).is_none());
    for at in 0..sealed.len() {
        let mut changed = sealed.clone();
        changed[at] ^= 1;
        assert!(key(1).open(SealedKind::State, &changed).is_none(), "byte {at}");
        assert!(key(1).open(SealedKind::State, &sealed[..at]).is_none(), "{at} bytes");
    }
    assert_ne!(sealed, key(1).seal(SealedKind::State, STATE).unwrap(), "no nonce is used twice");
}

/// An attacker that can write into the memory cannot pass one user's state off as another's.
#[test]
fn changed_and_swapped_entries_are_dropped() {
    let cache = cache();
    let (mut one, other) = (user(&cache), user(&cache));
    {
        let mut store = cache.store.borrow_mut();
        let mut entries = store.entries_mut().map(|(_, entry)| entry);
        let (first, second) = (entries.next().unwrap(), entries.next().unwrap());
        std::mem::swap(&mut first.sealed, &mut second.sealed);
    }
    assert_eq!((one.get(&cache), other.get(&cache)), (None, None));
    assert_eq!(cache.extent(), (0, 0));
    one.put(&cache, STATE);
    for (_, entry) in cache.store.borrow_mut().entries_mut() {
        entry.kind = SealedKind::Successor;
    }
    assert_eq!(one.get(&cache), None);
}

#[test]
fn a_state_expires() {
    let cache = cache();
    let browser = user(&cache);
    pass(999);
    assert_eq!(browser.get(&cache).unwrap(), STATE);
    pass(1);
    assert_eq!(browser.get(&cache), None);
    assert_eq!(cache.extent(), (0, 0));
}

#[test]
fn a_key_is_replaced_after_its_time() {
    let cache = cache();
    let mut browser = user(&cache);
    let old = browser.clone();
    pass(99);
    browser.put(&cache, b"2");
    assert_eq!(browser.0, old.0, "its time has not come");
    pass(1);
    browser.put(&cache, b"3");
    assert_ne!(browser.0, old.0);
    assert_eq!(browser.get(&cache).unwrap(), b"3");
    assert_eq!(cache.extent().0, 2);
    pass(5);
    assert_eq!(old.get(&cache), None, "the old key has had its time");
    assert_eq!(browser.get(&cache).unwrap(), b"3");
    assert_eq!(cache.extent().0, 1);
}

#[test]
fn a_key_is_replaced_after_its_uses() {
    let cache = cache();
    let mut browser = user(&cache);
    let old = browser.clone();
    for _ in 0..20 {
        browser.get(&cache).unwrap();
    }
    browser.put(&cache, b"2");
    assert_eq!(browser.0, old.0, "never before the overlap is over");
    pass(5);
    browser.put(&cache, b"3");
    assert_ne!(browser.0, old.0);
}

#[test]
fn a_request_with_the_old_key_finds_and_changes_the_same_state() {
    let cache = cache();
    let mut browser = user(&cache);
    let mut late = browser.clone();
    // Its request begins before the key is replaced, and it goes on after that.
    let headers = late.headers();
    let mut under_way = cache.user(&headers);
    pass(100);
    browser.put(&cache, b"2");
    assert_eq!(late.get(&cache).unwrap(), b"2");
    let mut response = HeaderMap::new();
    under_way.put(&mut response, b"3").unwrap();
    late.take(&response);
    assert_eq!(late.0, browser.0, "it is told the new key");
    assert_eq!(browser.get(&cache).unwrap(), b"3");
    assert_eq!(under_way.get().unwrap()[..], *b"3");
}

#[test]
fn what_is_forgotten_is_gone_for_every_key() {
    let cache = cache();
    let mut browser = user(&cache);
    let first = browser.clone();
    pass(100);
    browser.put(&cache, b"2");
    let second = browser.clone();
    browser.forget(&cache);
    assert_eq!(browser.0, None);
    assert_eq!((first.get(&cache), second.get(&cache)), (None, None));
    browser.put(&cache, b"3");
    assert!(browser.0 != first.0 && browser.0 != second.0);
    let mut response = HeaderMap::new();
    cache.user(&HeaderMap::new()).forget(&mut response);
    assert!(response.is_empty(), "who has no cookie needs none taken away");
}

#[test]
fn a_new_key_is_made_on_log_in() {
    let cache = cache();
    let mut browser = user(&cache);
    let known_to_others = browser.clone();
    let mut response = HeaderMap::new();
    let mut user = cache.user(&browser.headers());
    user.forget(&mut response);
    user.put(&mut response, b"private").unwrap();
    assert_eq!(response.get_all(SET_COOKIE).iter().count(), 1);
    browser.take(&response);
    assert_eq!(known_to_others.get(&cache), None);
    assert_eq!(browser.get(&cache).unwrap(), b"private");
}

#[test]
fn limits_hold() {
    let cache = cache_with(SealedSettings { entries_max: 4, ..settings() });
    let mut browser = user(&cache);
    let mut response = HeaderMap::new();
    let error = cache.user(&browser.headers()).put(&mut response, &[0; 1001]).unwrap_err();
    assert_eq!(error, SealedError::TooLong { length: 1001, limit: 1000 });
    assert!(response.is_empty());
    assert_eq!(browser.get(&cache).unwrap(), STATE, "what was there stays");
    browser.put(&cache, &[7; 1000]);
    for _ in 0..100 {
        user(&cache);
    }
    assert_eq!(cache.extent().0, 4);
    assert_eq!(browser.get(&cache).unwrap(), [7; 1000], "strangers displace each other");
}

#[test]
fn one_of_several_cookies_may_be_the_right_one() {
    let cache = cache();
    let browser = user(&cache);
    let mut headers = HeaderMap::new();
    let wrong = format!("__Host-test={}; x=y", "00".repeat(32));
    headers.append(COOKIE, HeaderValue::from_str(&wrong).unwrap());
    headers.extend(browser.headers());
    assert_eq!(cache.user(&headers).get().unwrap()[..], *STATE);
}

#[test]
fn contradictory_settings_are_refused() {
    let refused = |settings: SealedSettings, word: &str| {
        let error = SealedCache::new("test", "/", settings).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    };
    refused(SealedSettings { total_bytes_max: 1751, ..settings() }, "at least 1752");
    refused(SealedSettings { entry_bytes_max: usize::MAX, ..settings() }, "`total_bytes_max`");
    refused(SealedSettings { entries_max: 1, ..settings() }, "at least 2");
    refused(SealedSettings { lifetime: Duration::ZERO, ..settings() }, "at least 1 s");
    refused(SealedSettings { lifetime: Duration::MAX, ..settings() }, "400 days");
    refused(SealedSettings { rotate_after: Duration::MAX, ..settings() }, "400 days");
    refused(SealedSettings { overlap: Duration::from_secs(101), ..settings() }, "`overlap`");
    assert!(SealedCache::new("test", "/", SealedSettings { total_bytes_max: 1752, ..settings() }).is_ok());
}

#[test]
fn nothing_secret_is_printed() {
    let cache = cache();
    let browser = user(&cache);
    let headers = browser.headers();
    let mut user = cache.user(&headers);
    let printed = format!("{user:?} {:?}", user.get());
    let digits = browser.0.unwrap();
    assert!(!printed.contains(&digits[digits.len() - 8..]) && !printed.contains("wind"), "{printed}");
}
