//! The users that may log in, and a memory of the credentials that were tried.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: the `Authorization` field, and the file, which an
//! operator wrote. Must never: keep or log a password, tell by its time whether there is such a user, or let guesses
//! take the worker's whole time or keep others from theirs.

use std::cell::RefCell;
use std::collections::{HashSet, VecDeque};
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use users::{FILE_BYTES_MAX, credentials};

use super::guesses::{Guesses, Turn, TurnOutcome};
use worker::files;

/// LIMIT: credentials remembered, good and bad ones each.
const REMEMBERED_MAX: usize = 1024;
/// LIMIT: for how long the thread works on a password before others are served.
const SLICE: Duration = Duration::from_millis(1);

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PasswordVerdict {
    /// It is a user with the right password.
    Good,
    /// It is not.
    Bad,
    /// Too many are asking.
    Busy,
}

/// The users of one file.
pub struct Users {
    users: users::Users,
    /// Keyed digests of credentials: what is remembered is of no use elsewhere.
    salt: [u8; 32],
    good: RefCell<KnownCredentials>,
    bad: RefCell<KnownCredentials>,
}

/// Credentials of one verdict; the oldest are forgotten first. Guesses do not drive out what is right.
#[derive(Default)]
struct KnownCredentials {
    keys: HashSet<[u8; 32]>,
    order: VecDeque<[u8; 32]>,
}

impl Users {
    /// Reads the file; the second is what is wrong with it, for the log.
    pub fn read(file: &OwnedFd) -> (Users, Vec<String>) {
        let (bytes, unread) = match files::read(file, FILE_BYTES_MAX) {
            Ok(bytes) => (bytes, None),
            Err(fault) => (Vec::new(), Some(fault)),
        };
        let (users, faults) = Users::parse(&bytes);
        (users, unread.map_or(faults, |fault| vec![fault]))
    }

    /// The users of a file's contents, and what is wrong with it.
    fn parse(bytes: &[u8]) -> (Users, Vec<String>) {
        let (users, faults) = users::Users::parse(bytes);
        let mut salt = [0; 32];
        // INVARIANT: without it digests are still those of secrets, only not keyed.
        let _ = SystemRandom::new().fill(&mut salt);
        let (good, bad) = (RefCell::default(), RefCell::default());
        (Users { users, salt, good, bad }, faults.iter().map(ToString::to_string).collect())
    }

    /// Whether an `Authorization` field, from a client at `address`, names a user and the right password.
    pub async fn verify(&self, guesses: &Rc<Guesses>, address: IpAddr, field: &[u8]) -> PasswordVerdict {
        let Some((name, password)) = credentials(field) else {
            return PasswordVerdict::Bad;
        };
        let key = self.key(&name, &password);
        if let Some(verdict) = self.known(&key) {
            return verdict;
        }
        let mut waiter = guesses.wait(address);
        let turn = loop {
            match waiter.wait().await {
                TurnOutcome::Turn(turn) => break turn,
                TurnOutcome::Crowded => return PasswordVerdict::Busy,
                TurnOutcome::Other => {}
            }
            if let Some(verdict) = self.known(&key) {
                return verdict;
            }
        };
        self.compare(turn, &name, &password, key).await
    }

    /// Compares, and remembers what came of it.
    async fn compare(&self, mut turn: Turn, name: &str, password: &[u8], key: [u8; 32]) -> PasswordVerdict {
        let (mut verification, is_user) = self.users.verify(name, password);
        let same = loop {
            let begun = Instant::now();
            let done = verification.work(SLICE);
            turn.spend(begun.elapsed());
            match done {
                Some(same) => break same,
                None => tokio::task::yield_now().await,
            }
        };
        if same && is_user {
            self.good.borrow_mut().remember(key);
            turn.right();
            return PasswordVerdict::Good;
        }
        self.bad.borrow_mut().remember(key);
        PasswordVerdict::Bad
    }

    fn known(&self, key: &[u8; 32]) -> Option<PasswordVerdict> {
        if self.good.borrow().keys.contains(key) {
            return Some(PasswordVerdict::Good);
        }
        self.bad.borrow().keys.contains(key).then_some(PasswordVerdict::Bad)
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

impl KnownCredentials {
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

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const THERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(198, 51, 100, 7));
    /// ann:secret
    const RIGHT: &[u8] = b"Basic YW5uOnNlY3JldA==";

    fn users() -> (Users, Rc<Guesses>) {
        let hash = bcrypt::hash_with_salt("secret", 8, [7; 16]).unwrap().to_string();
        (Users::parse(format!("ann:{hash}").as_bytes()).0, Guesses::new())
    }

    /// The field of a user whom there is not.
    fn wrong(number: u32) -> Vec<u8> {
        use base64ct::{Base64, Encoding as _};
        format!("Basic {}", Base64::encode_string(format!("bob:{number}").as_bytes())).into_bytes()
    }

    async fn polled<T>(future: &mut (impl Future<Output = T> + Unpin)) -> Option<T> {
        std::future::poll_fn(|cx| match std::pin::Pin::new(&mut *future).poll(cx) {
            std::task::Poll::Ready(done) => std::task::Poll::Ready(Some(done)),
            std::task::Poll::Pending => std::task::Poll::Ready(None),
        })
        .await
    }

    #[tokio::test]
    async fn only_who_knows_passes() {
        let (users, guesses) = users();
        for _ in 0..2 {
            assert_eq!(users.verify(&guesses, HERE, RIGHT).await, PasswordVerdict::Good);
            // ann:wrong, bob:secret
            assert_eq!(users.verify(&guesses, HERE, b"Basic YW5uOndyb25n").await, PasswordVerdict::Bad);
            assert_eq!(users.verify(&guesses, HERE, b"Basic Ym9iOnNlY3JldA==").await, PasswordVerdict::Bad);
            assert_eq!(users.verify(&guesses, HERE, b"Basic !").await, PasswordVerdict::Bad);
        }
        assert_eq!((users.good.borrow().keys.len(), users.bad.borrow().keys.len()), (1, 2));
    }

    #[tokio::test]
    async fn a_new_login_waits_for_no_more_than_the_guess_under_way() {
        let (users, guesses) = users();
        let fields: Vec<Vec<u8>> = (0..60).map(wrong).collect();
        let mut others: Vec<_> =
            fields.iter().map(|field| Box::pin(users.verify(&guesses, HERE, field))).collect();
        for other in &mut others {
            assert_eq!(polled(other).await, None);
        }
        // The first of them has been answered, and the others rest.
        assert_eq!((&mut others[0]).await, PasswordVerdict::Bad);
        assert_eq!(users.verify(&guesses, THERE, RIGHT).await, PasswordVerdict::Good);
        assert_eq!((users.good.borrow().keys.len(), users.bad.borrow().keys.len()), (1, 1));
    }

    #[tokio::test]
    async fn what_has_gone_waits_no_more() {
        let (users, guesses) = users();
        let fields: Vec<Vec<u8>> = (0..60).map(wrong).collect();
        let mut others: Vec<_> =
            fields.iter().map(|field| Box::pin(users.verify(&guesses, HERE, field))).collect();
        for other in &mut others {
            polled(other).await;
        }
        assert_eq!(guesses.len(), 59, "one has its turn");
        // Among them the one whose turn it is.
        drop(others);
        assert_eq!(guesses.len(), 0);
        assert_eq!(users.verify(&guesses, THERE, RIGHT).await, PasswordVerdict::Good);
    }

    #[tokio::test]
    async fn who_makes_too_many_wait_is_told_so_and_nobody_else() {
        let (users, guesses) = users();
        let fields: Vec<Vec<u8>> = (0..66).map(wrong).collect();
        let mut others: Vec<_> =
            fields.iter().map(|field| Box::pin(users.verify(&guesses, HERE, field))).collect();
        for other in &mut others {
            assert_eq!(polled(other).await, None);
        }
        // The first has its turn; the one after it had to make room.
        assert_eq!(polled(&mut others[1]).await, Some(PasswordVerdict::Busy));
        let mut elsewhere = Box::pin(users.verify(&guesses, THERE, RIGHT));
        assert_eq!(polled(&mut elsewhere).await, None);
        assert_eq!(polled(&mut others[2]).await, Some(PasswordVerdict::Busy), "for the one from elsewhere");
        assert_eq!((&mut others[0]).await, PasswordVerdict::Bad);
        assert_eq!(elsewhere.await, PasswordVerdict::Good);
    }

    #[tokio::test]
    async fn the_same_credentials_are_verified_once() {
        let (users, guesses) = users();
        let mut all: Vec<_> = (0..20).map(|_| Box::pin(users.verify(&guesses, HERE, RIGHT))).collect();
        for one in &mut all {
            assert_eq!(polled(one).await, None);
        }
        for one in &mut all {
            assert_eq!(one.await, PasswordVerdict::Good);
        }
        assert_eq!(guesses.len(), 0);
    }

    #[tokio::test]
    async fn others_are_served_while_a_password_is_verified() {
        let (users, guesses) = users();
        let verified = Rc::new(std::cell::Cell::new(false));
        let local = tokio::task::LocalSet::new();
        let turns = Rc::new(std::cell::Cell::new(0));
        let (done, counted) = (verified.clone(), turns.clone());
        local.spawn_local(async move {
            while !done.get() {
                counted.set(counted.get() + 1);
                tokio::task::yield_now().await;
            }
        });
        let verdict = local.run_until(users.verify(&guesses, HERE, RIGHT)).await;
        verified.set(true);
        assert_eq!(verdict, PasswordVerdict::Good);
        assert!(turns.get() > 3, "{} turns of another task", turns.get());
    }
}
