//! Decisions by a client's address and by the words of its request: rates, bans, checks.
//!
//! Runs in: the gate. Sees: addresses and heads, which clients choose. Never: grows without a limit. Its caller leaves
//! out listeners behind a load balancer, whose address is that of all of its users.

use std::cell::RefCell;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use conditioning::checks::{self, Setting};
use conditioning::{Bans, Exempt, Priority, Rate, ShareLimits, Shares};
use wire::Conditioning;
use worker::dispatcher::{Dispatcher, setting, share_limits};

/// LIMIT: clients of whom the workers of one partition have said how much they ask for; about 300 KiB.
const HEARD_MAX: u32 = 4096;

/// The policies of a gate.
pub struct Policies {
    /// How long a connection may send nothing at all; without a value, as long as a head may take.
    pub first_byte_timeout: Option<Duration>,
    setting: Setting,
    priority: Priority,
    limits: Option<ShareLimits>,
    exempt: Exempt,
    /// Requests a second of a client, and how many at once.
    rates: (u32, u32),
    rate: RefCell<Rate>,
    bans: RefCell<Bans>,
    /// Offences that make a ban, and how long that lasts.
    banning: (u32, Duration),
}

impl Policies {
    /// The policies of the launcher's order; without an order, no limits by address.
    pub fn new(conditioning: Option<&Conditioning>, exempt: Exempt) -> Self {
        let (rate, burst) =
            conditioning.map_or((0, 0), |conditioning| (conditioning.rate_max, conditioning.rate_burst));
        let (after, time) =
            conditioning.map_or((0, 0), |conditioning| (conditioning.ban_after, conditioning.ban_time_ms));
        Self {
            first_byte_timeout: conditioning
                .map(|conditioning| milliseconds(conditioning.first_byte_timeout_ms)),
            setting: conditioning.map_or(Setting::Lenient, |conditioning| setting(conditioning.checks)),
            priority: if conditioning.is_none_or(|conditioning| conditioning.recency) {
                Priority::Recency
            } else {
                Priority::Fifo
            },
            limits: conditioning.map(share_limits),
            rates: (rate, burst),
            rate: RefCell::new(Rate::new(rate, burst).exempting(exempt.clone())),
            bans: RefCell::new(Bans::new(after, milliseconds(time), exempt.clone())),
            banning: (after, milliseconds(time)),
            exempt,
        }
    }

    /// Sets what holds on the way to one partition, which may have `capacity` connections of ours.
    pub fn set_policy(&self, dispatcher: &Dispatcher, capacity: u32) {
        let shares = self.limits.map(|limits| Shares::new(limits, capacity, self.exempt.clone()));
        dispatcher.set_policy(self.priority, shares);
    }

    /// Whether a whole head is what no honest client sends.
    ///
    /// # Errors
    /// It is, for this reason.
    pub fn examine(&self, head: &[u8]) -> Result<(), checks::HeadFault> {
        checks::check(head, self.setting)
    }

    /// Whether a client may make one more request now.
    pub fn within_rate(&self, client: IpAddr, now: Instant) -> bool {
        self.rate.borrow_mut().take(client, now)
    }

    /// Whether requests of a client are counted.
    pub fn has_rate(&self) -> bool {
        self.rates.0 > 0
    }

    /// The same limit, for what the workers of one partition say of their clients.
    pub fn rate_of_partition(&self) -> Rate {
        let (rate, burst) = self.rates;
        Rate::new(rate, burst).exempting(self.exempt.clone()).remembering(HEARD_MAX)
    }

    /// The same bans, for what the workers of one partition say of their clients.
    pub fn bans_of_partition(&self) -> Bans {
        let (after, time) = self.banning;
        Bans::new(after, time, self.exempt.clone())
    }

    /// Whether nothing of a client is heard.
    pub fn is_banned(&self, client: IpAddr, now: Instant) -> bool {
        self.bans.borrow_mut().is_banned(client, now)
    }

    /// Notes that a client has sent what no honest one does, or too much.
    pub fn offended(&self, client: IpAddr, now: Instant) {
        self.bans.borrow_mut().offences(client, now);
    }

    /// Writes its part of a report.
    pub fn report(&self, shed: &mut wire::Shed, now: Instant) {
        let bans = self.bans.borrow();
        shed.bans += bans.bans;
        shed.banned += bans.banned;
        shed.banned_now = u32::try_from(bans.banned_now(now)).unwrap_or(u32::MAX);
    }
}

fn milliseconds(count: u32) -> Duration {
    Duration::from_millis(count.into())
}
