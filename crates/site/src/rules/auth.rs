//! Users and passwords (RFC 7617), from a file in the form that `htpasswd -B` writes.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: the `Authorization` field, and the file, which an
//! operator wrote. Must never: keep or log a password, tell by its time whether there is such a user, or let guesses
//! take the worker's whole time.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet, VecDeque};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use tokio::sync::Semaphore;

use crate::open_file;

/// LIMIT: bytes of the file; ten thousand users.
const FILE_BYTES_MAX: usize = 1 << 20;
/// LIMIT: the exponent of bcrypt's work: above 14 a verification takes seconds in which nobody else is served.
const COST_MAX: u32 = 14;
/// LIMIT: credentials remembered, good and bad ones each.
const REMEMBERED_MAX: usize = 1024;
/// LIMIT: requests that wait for a verification; beyond them, 503.
const WAITING_MAX: usize = 64;
/// LIMIT: for how many times its own length nothing is verified after a verification: guesses get a fifth of the time.
const REST: u32 = 4;
/// LIMIT: bytes of a field; a name and a password of 72 bytes, the most that bcrypt takes, and room.
const FIELD_BYTES_MAX: usize = 1024;

/// What became of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is a user with the right password.
    Good,
    /// It is not.
    Bad,
    /// Too many are asking.
    Busy,
}

/// The users of one file.
pub struct Users {
    hashes: HashMap<String, String>,
    /// What a name is compared with that no user has.
    nobody: String,
    /// Keyed digests of credentials: what is remembered is of no use elsewhere.
    salt: [u8; 32],
    good: RefCell<Known>,
    bad: RefCell<Known>,
    turn: Semaphore,
    waiting: Semaphore,
}

/// Credentials of one verdict; the oldest are forgotten first. Guesses do not drive out what is right.
#[derive(Default)]
struct Known {
    keys: HashSet<[u8; 32]>,
    order: VecDeque<[u8; 32]>,
}

impl Users {
    /// Reads the file; the second is what is wrong with it, for the log.
    pub fn read(file: &OwnedFd) -> (Users, Vec<String>) {
        let text = open_file::read(file, FILE_BYTES_MAX);
        let text = text.and_then(|text| String::from_utf8(text).map_err(|_| "it is not UTF-8".to_owned()));
        let (users, mut faults) = Users::parse(text.as_deref().unwrap_or_default());
        match text {
            Err(fault) => faults.push(fault),
            Ok(_) if users.hashes.is_empty() => faults.push("there is no user in it".to_owned()),
            Ok(_) => {}
        }
        (users, faults)
    }

    /// The users of a text, and what is wrong with it, by line.
    pub fn parse(text: &str) -> (Users, Vec<String>) {
        let (mut hashes, mut faults) = (HashMap::new(), Vec::new());
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            match line.split_once(':').filter(|(name, _)| !name.is_empty()) {
                Some((name, hash)) if cost(hash).is_some_and(|cost| (4..=COST_MAX).contains(&cost)) => {
                    hashes.insert(name.to_owned(), hash.to_owned());
                }
                _ => faults.push(format!(
                    "line {}: it is no user with a bcrypt hash of a cost from 4 to {COST_MAX} (htpasswd -B)",
                    number + 1
                )),
            }
        }
        let cost = hashes.values().filter_map(|hash| cost(hash)).max().unwrap_or(4);
        // Of no password: nobody knows one that has it.
        let nobody = format!("$2y${cost:02}${}", ".".repeat(53));
        let mut salt = [0; 32];
        // INVARIANT: without it digests are still those of secrets, only not keyed.
        let _ = SystemRandom::new().fill(&mut salt);
        let (turn, waiting) = (Semaphore::new(1), Semaphore::new(WAITING_MAX));
        let (good, bad) = (RefCell::default(), RefCell::default());
        (Users { hashes, nobody, salt, good, bad, turn, waiting }, faults)
    }

    /// Whether an `Authorization` field names a user and the right password.
    pub async fn verify(&self, field: &[u8]) -> Verdict {
        let Some((name, password)) = credentials(field) else {
            return Verdict::Bad;
        };
        let key = self.key(&name, &password);
        if let Some(verdict) = self.known(&key) {
            return verdict;
        }
        let Ok(_place) = self.waiting.try_acquire() else {
            return Verdict::Busy;
        };
        let Ok(_turn) = self.turn.acquire().await else {
            return Verdict::Busy;
        };
        if let Some(verdict) = self.known(&key) {
            return verdict;
        }
        let begun = Instant::now();
        let hash = self.hashes.get(&name);
        let same = bcrypt::verify(&password, hash.unwrap_or(&self.nobody)).unwrap_or(false);
        let good = same && hash.is_some();
        if good {
            self.good.borrow_mut().remember(key);
            return Verdict::Good;
        }
        self.bad.borrow_mut().remember(key);
        // Holding the turn: others that are not known yet wait as well.
        tokio::time::sleep((begun.elapsed() * REST).min(Duration::from_secs(5))).await;
        Verdict::Bad
    }

    fn known(&self, key: &[u8; 32]) -> Option<Verdict> {
        if self.good.borrow().keys.contains(key) {
            return Some(Verdict::Good);
        }
        self.bad.borrow().keys.contains(key).then_some(Verdict::Bad)
    }

    fn key(&self, name: &str, password: &[u8]) -> [u8; 32] {
        let mut data = self.salt.to_vec();
        data.extend_from_slice(&(name.len() as u64).to_le_bytes());
        data.extend_from_slice(name.as_bytes());
        data.extend_from_slice(password);
        let mut key = [0; 32];
        key.copy_from_slice(digest(&SHA256, &data).as_ref());
        key
    }
}

impl Known {
    fn remember(&mut self, key: [u8; 32]) {
        while self.order.len() >= REMEMBERED_MAX {
            let Some(oldest) = self.order.pop_front() else { break };
            self.keys.remove(&oldest);
        }
        if self.keys.insert(key) {
            self.order.push_back(key);
        }
    }
}

/// The cost of a bcrypt hash, if it is one.
fn cost(hash: &str) -> Option<u32> {
    let rest = ["$2y$", "$2b$", "$2a$"].iter().find_map(|kind| hash.strip_prefix(kind))?;
    let (cost, rest) = rest.split_once('$')?;
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"./".contains(&byte);
    (cost.len() == 2 && rest.len() == 53 && rest.bytes().all(good)).then(|| cost.parse().ok()).flatten()
}

/// The name and the password of a `Basic` field.
fn credentials(field: &[u8]) -> Option<(String, Vec<u8>)> {
    let (scheme, encoded) = field.split_at_checked(6)?;
    if !scheme.eq_ignore_ascii_case(b"basic ") || field.len() > FIELD_BYTES_MAX {
        return None;
    }
    let decoded = base64(encoded.trim_ascii())?;
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    let name = String::from_utf8(decoded[..colon].to_vec()).ok()?;
    let password = decoded[colon + 1..].to_vec();
    // bcrypt ends at a NUL, and looks at no more than 72 bytes.
    (!password.contains(&0) && password.len() <= 72).then_some((name, password))
}

/// RFC 4648 4, with or without padding.
fn base64(text: &[u8]) -> Option<Vec<u8>> {
    let padded = text.iter().rev().take_while(|byte| **byte == b'=').count();
    let text = &text[..text.len() - padded];
    if padded > 2 || text.len() % 4 == 1 {
        return None;
    }
    let mut out = Vec::with_capacity(text.len() * 3 / 4);
    for group in text.chunks(4) {
        let mut bits = 0_u32;
        for byte in group {
            bits = bits << 6 | value(*byte)?;
        }
        bits <<= 6 * (4 - group.len());
        out.extend_from_slice(&bits.to_be_bytes()[1..group.len()]);
    }
    Some(out)
}

fn value(byte: u8) -> Option<u32> {
    let value = match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    };
    Some(value.into())
}

/// The entry for fuzzing.
pub fn fuzz_authorization(field: &[u8]) {
    if let Some((name, password)) = credentials(field) {
        assert!(!name.contains(':') && password.len() <= 72 && !password.contains(&0));
    }
    if let Ok(text) = std::str::from_utf8(field) {
        let _ = Users::parse(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields() {
        let read = |field: &str| credentials(field.as_bytes());
        let aladdin = Some(("Aladdin".to_owned(), b"open sesame".to_vec()));
        assert_eq!(read("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="), aladdin);
        assert_eq!(read("basic  QWxhZGRpbjpvcGVuIHNlc2FtZQ"), aladdin);
        assert_eq!(read("Basic YTpiOmM="), Some(("a".to_owned(), b"b:c".to_vec())));
        for bad in ["", "Basic", "Basic ", "Bearer QTpi", "Basic QQ==", "Basic Q", "Basic Q:==", "Basic YToA"]
        {
            assert_eq!(read(bad), None, "{bad}");
        }
    }

    #[test]
    fn files() {
        let hash = bcrypt::hash_with_salt("secret", 4, [7; 16]).unwrap().to_string();
        let (users, faults) = Users::parse(&format!("# users\n\nann:{hash}\nbob:plain\n:x\n"));
        assert_eq!((users.hashes.len(), faults.len()), (1, 2));
        assert!(faults[0].contains("line 4"), "{faults:?}");
        assert!(cost(&users.nobody).is_some(), "{}", users.nobody);
        assert!(
            bcrypt::verify("x", &users.nobody).is_ok_and(|same| !same),
            "it is compared, and not refused at once"
        );
    }

    #[tokio::test]
    async fn only_who_knows_passes() {
        let hash = bcrypt::hash_with_salt("secret", 4, [7; 16]).unwrap().to_string();
        let (users, _) = Users::parse(&format!("ann:{hash}"));
        for _ in 0..2 {
            assert_eq!(users.verify(b"Basic YW5uOnNlY3JldA==").await, Verdict::Good);
            // ann:wrong, bob:secret
            assert_eq!(users.verify(b"Basic YW5uOndyb25n").await, Verdict::Bad);
            assert_eq!(users.verify(b"Basic Ym9iOnNlY3JldA==").await, Verdict::Bad);
            assert_eq!(users.verify(b"Basic !").await, Verdict::Bad);
        }
        assert_eq!((users.good.borrow().keys.len(), users.bad.borrow().keys.len()), (1, 2));
    }
}
