//! Bans clients for a while that have offended too often within a minute.
//!
//! Runs in: gates, filters; pure. Sees: addresses of clients. Never: bans those that the operator exempts, or takes
//! more memory the more offenders there are.
//!
//! A client's minute begins with an offence; offences after it begin another one.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::address::ClientOrigin;
use crate::network::Exempt;
use crate::recent::Recent;

/// LIMIT: offenders that are known; about 6 MiB. The one that was not heard of for longest is forgotten.
const CLIENTS_MAX: u32 = 65_536;
/// How long offences count.
const MINUTE: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct Offender {
    /// When its minute began.
    since: Instant,
    offences: u32,
    banned_until: Option<Instant>,
}

/// See the file's head.
#[derive(Debug)]
pub struct Bans {
    after: u32,
    time: Duration,
    exempt: Exempt,
    offenders: Recent<Offender>,
    /// Bans that were spoken.
    pub bans: u64,
    /// Times that a client was found to be banned.
    pub banned: u64,
}

impl Bans {
    /// Bans for `time`, `after` so many offences within a minute, never if that is 0, and none of `exempt`.
    pub fn new(after: u32, time: Duration, exempt: Exempt) -> Self {
        Self { after, time, exempt, offenders: Recent::new(CLIENTS_MAX), bans: 0, banned: 0 }
    }

    /// Notes an offence; whether `address` is banned by it.
    pub fn offences(&mut self, address: IpAddr, now: Instant) -> bool {
        if self.after == 0 || self.exempt.contains(address) {
            return false;
        }
        let new = || Offender { since: now, offences: 0, banned_until: None };
        let offender = self.offenders.touch(ClientOrigin::from(address), new);
        if offender.banned_until.is_some_and(|until| now < until) {
            return false;
        }
        if offender.offences == 0 || now.duration_since(offender.since) >= MINUTE {
            *offender = new();
        }
        offender.offences += 1;
        if offender.offences < self.after {
            return false;
        }
        *offender = Offender { since: now, offences: 0, banned_until: Some(now + self.time) };
        self.bans += 1;
        true
    }

    /// Whether `address` is banned.
    pub fn is_banned(&mut self, address: IpAddr, now: Instant) -> bool {
        let origin = ClientOrigin::from(address);
        let until = self.offenders.get(origin).and_then(|offender| offender.banned_until);
        if until.is_none_or(|until| until <= now) {
            return false;
        }
        // One that goes on is not forgotten.
        self.offenders.touch(origin, || Offender { since: now, offences: 0, banned_until: until });
        self.banned += 1;
        true
    }

    /// Bans `address` until then, whatever it has done here; whom the operator exempts is for the caller to know.
    pub fn ban(&mut self, address: IpAddr, until: Instant, now: Instant) {
        let new = || Offender { since: now, offences: 0, banned_until: None };
        self.offenders.touch(ClientOrigin::from(address), new).banned_until = Some(until);
        self.bans += 1;
    }

    /// Makes an end of a ban.
    pub fn pardon(&mut self, address: IpAddr, now: Instant) {
        let origin = ClientOrigin::from(address);
        if self.offenders.get(origin).is_some() {
            let new = || Offender { since: now, offences: 0, banned_until: None };
            let offender = self.offenders.touch(origin, new);
            (offender.offences, offender.banned_until) = (0, None);
        }
    }

    /// How many are banned.
    pub fn banned_now(&self, now: Instant) -> usize {
        self.offenders
            .values()
            .filter(|offender| offender.banned_until.is_some_and(|until| now < until))
            .count()
    }
}
