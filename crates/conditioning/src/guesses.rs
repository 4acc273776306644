//! Which client's password is verified next, where each verification costs much time on purpose.
//!
//! Runs in: site workers; pure. Sees: addresses of clients. Never: lets clients that guess keep one waiting that logs
//! in for the first time, or lets all guesses together have more than their part of the time.
//!
//! Clients wait in a tree, in the order of recency. Each wrong password makes a debt of rest that all share. A client
//! that has guessed wrong within [`MARKED`] waits until the debt is paid. Others do not, as long as the debt is below
//! [`AHEAD_MAX`]: so a new login waits for the verification that is under way, and only guesses from very many
//! addresses make it wait for more. Where there is no room for one more, the heaviest range loses its oldest guess.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::address::{AddressRange, ClientOrigin};
use crate::recent::Recent;
use crate::tree::{ItemKey, Tree};

/// LIMIT: wrong passwords get one of so many parts of the time.
const PARTS: u32 = 5;
/// LIMIT: how long a client counts as one that guesses.
const MARKED: Duration = Duration::from_secs(30);
/// LIMIT: rest that may be owed when the password of a client that is not marked is verified: what 4 s of verifications
/// make, of 16 addresses that guess once each at 250 ms.
const AHEAD_MAX: Duration = Duration::from_secs(20);
/// LIMIT: clients that are marked, and clients whose turn is remembered; from more addresses than that, `AHEAD_MAX` has
/// long held everybody.
const CLIENTS_MAX: u32 = 1024;

/// See the file's head.
#[derive(Debug)]
pub struct Guesses<T> {
    waiting: Tree<T>,
    waiting_max: usize,
    /// Until when a client counts as one that guesses.
    marked: Recent<Instant>,
    /// When the debt will have been paid.
    paid_at: Option<Instant>,
}

impl<T> Guesses<T> {
    /// Nobody waits, and at most `waiting_max` ever will.
    pub fn new(waiting_max: usize) -> Self {
        Self {
            waiting: Tree::remembering(CLIENTS_MAX),
            waiting_max,
            marked: Recent::new(CLIENTS_MAX),
            paid_at: None,
        }
    }

    /// Lets `item` of `address` wait; the item that has to leave for it, which may be itself.
    pub fn wait(&mut self, address: IpAddr, item: T) -> (ItemKey, Option<T>) {
        let key = self.waiting.insert(address.into(), item);
        let crowded = self.waiting.len() > self.waiting_max;
        (key, crowded.then(|| self.waiting.remove_heaviest()).flatten())
    }

    /// Takes the item called `key` out, if it still waits.
    pub fn remove(&mut self, key: ItemKey) -> Option<T> {
        self.waiting.remove(key)
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The next whose password is to be verified, if that may be now.
    pub fn next(&mut self, now: Instant) -> Option<T> {
        let Self { waiting, marked, paid_at, .. } = self;
        let may = |range: AddressRange| match range.origin() {
            Some(origin) => may_at(marked, *paid_at, origin).is_none_or(|at| at <= now),
            None => true,
        };
        waiting.next_where(may)
    }

    /// When a password of `address` may be verified, if nobody else is before it; at any time if there is no answer.
    pub fn may_at(&self, address: IpAddr) -> Option<Instant> {
        may_at(&self.marked, self.paid_at, address.into())
    }

    /// Notes that a verification for `address` took `time` and found no user.
    pub fn wrong(&mut self, address: IpAddr, time: Duration, now: Instant) {
        *self.marked.touch(address.into(), || now) = now + MARKED;
        let begun = now.checked_sub(time).unwrap_or(now);
        self.paid_at = Some(self.paid_at.map_or(begun, |at| at.max(begun)) + time * PARTS);
    }
}

fn may_at(marked: &Recent<Instant>, paid_at: Option<Instant>, origin: ClientOrigin) -> Option<Instant> {
    let paid_at = paid_at?;
    let ahead = paid_at.checked_sub(AHEAD_MAX);
    match marked.get(origin) {
        // When it is not marked any more, or there is no debt, whichever is first.
        Some(until) => Some(paid_at.min(ahead.map_or(*until, |ahead| ahead.max(*until)))),
        None => ahead,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const COST: Duration = Duration::from_millis(250);

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_new_client_waits_for_nobody_who_guesses() {
        let (mut guesses, mut now) = (Guesses::new(64), Instant::now());
        let (bad, good) = (address("192.0.2.1"), address("198.51.100.7"));
        for number in 0..10 {
            guesses.wait(bad, number);
        }
        assert_eq!(guesses.next(now), Some(0));
        now += COST;
        guesses.wrong(bad, COST, now);
        assert_eq!(guesses.next(now), None, "it rests");
        guesses.wait(good, 100);
        assert_eq!(guesses.next(now), Some(100), "nobody else does");
        assert_eq!(guesses.may_at(bad), Some(now + COST * 4));
        assert_eq!(guesses.next(now + COST * 4 - MS), None);
        assert_eq!(guesses.next(now + COST * 4), Some(1));
    }

    #[test]
    fn wrong_passwords_get_a_fifth_of_the_time_however_many_guess() {
        for clients in [1, 3, 40, 5000] {
            let (mut guesses, begun) = (Guesses::new(64), Instant::now());
            let (mut now, mut spent, mut number) = (begun, Duration::ZERO, 0_u32);
            let end = begun + Duration::from_secs(600);
            while now < end {
                while guesses.len() < 50 {
                    number += 1;
                    let client = IpAddr::from((0x0a00_0000 + number % clients).to_be_bytes());
                    guesses.wait(client, client);
                }
                match guesses.next(now) {
                    Some(client) => {
                        now += COST;
                        spent += COST;
                        guesses.wrong(client, COST, now);
                    }
                    None => now += MS * 10,
                }
            }
            let most = Duration::from_secs(600) / 5 + AHEAD_MAX / PARTS + COST;
            assert!(spent <= most, "{clients}: {spent:?}");
            assert!(spent >= Duration::from_secs(110), "{clients}: {spent:?}: nobody is starved");
        }
    }

    #[test]
    fn a_new_client_is_the_next_even_if_very_many_guess() {
        let (mut guesses, mut now) = (Guesses::new(64), Instant::now());
        for number in 0..200_u32 {
            guesses.wait(IpAddr::from((0x0a00_0000 + number).to_be_bytes()), number);
            while let Some(number) = guesses.next(now) {
                now += COST;
                guesses.wrong(IpAddr::from((0x0a00_0000 + number).to_be_bytes()), COST, now);
            }
        }
        let client = address("198.51.100.7");
        guesses.wait(client, 1000);
        let wait = guesses.may_at(client).unwrap().saturating_duration_since(now);
        assert!(wait <= COST * 4, "{wait:?}");
        assert_eq!(guesses.next(now + wait), Some(1000));
    }

    #[test]
    fn a_mark_passes() {
        let (mut guesses, now) = (Guesses::<()>::new(64), Instant::now());
        let client = address("192.0.2.1");
        guesses.wrong(client, COST, now);
        for _ in 0..19 {
            guesses.wrong(address("192.0.2.2"), COST, now);
        }
        let after = |ms| Some(now + MS * ms);
        assert_eq!(guesses.may_at(client), after(24_750), "the debt is paid before the mark has passed");
        guesses.wrong(address("192.0.2.2"), COST * 8, now);
        assert_eq!(guesses.may_at(client), after(30_000));
        guesses.wrong(address("192.0.2.2"), COST * 40, now);
        assert_eq!(guesses.may_at(client), after(64_750), "it waits as others that are new");
    }

    #[test]
    fn where_it_is_crowded_the_heaviest_range_pays() {
        let (mut guesses, now) = (Guesses::new(64), Instant::now());
        for number in 0..64 {
            assert_eq!(guesses.wait(address("192.0.2.1"), number).1, None);
        }
        let (key, gone) = guesses.wait(address("192.0.2.2"), 100);
        assert_eq!(gone, Some(0));
        assert_eq!(guesses.wait(address("192.0.2.1"), 65).1, Some(1));
        assert_eq!(guesses.len(), 64);
        assert_eq!(guesses.remove(key), Some(100));
        assert_eq!(guesses.remove(key), None);
        assert_eq!(guesses.next(now), Some(2));
    }
}
