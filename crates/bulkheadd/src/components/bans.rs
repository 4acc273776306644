//! Clients whose records failed to decrypt: which site's worker says so of whom, and for how long gates believe it.
//!
//! Runs in: the launcher. Sees: addresses as numbers, from sites that may be compromised. Never: lets one site decide
//! who reaches another, or keep more of them than its share.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

use wire::successor::LauncherToSuccessor;
use wire::{LauncherToAdmin, LauncherToGate, Outcome, Role, Text};

use crate::components::Component;
use supervisor::Supervisor;
use supervisor::upgrade::{Handed, Record};

/// LIMIT: bans of one site at once; the one that ends first makes room. 32 bytes each.
const BANS_MAX: usize = 4096;
/// LIMIT: bans of one site that are told of in the log, in a minute.
const TOLD_MAX: u32 = 10;
const MINUTE: Duration = Duration::from_secs(60);
const LAST: Ipv6Addr = Ipv6Addr::from_bits(u128::MAX);

/// Those of all sites.
#[derive(Debug, Default)]
pub(crate) struct Bans {
    /// By partition and address: until when.
    bans: BTreeMap<(u16, Ipv6Addr), Instant>,
    told: Option<(Instant, u32)>,
}

impl Bans {
    fn of(&self, partition: u16) -> impl Iterator<Item = (&(u16, Ipv6Addr), &Instant)> {
        self.bans.range((partition, Ipv6Addr::UNSPECIFIED)..=(partition, LAST))
    }

    /// Notes one; that which ends first makes room.
    fn add(&mut self, partition: u16, address: Ipv6Addr, until: Instant) {
        if self.of(partition).count() >= BANS_MAX
            && let Some(first) = self.of(partition).min_by_key(|(_, until)| **until).map(|(key, _)| *key)
        {
            self.bans.remove(&first);
        }
        self.bans.insert((partition, address), until);
    }

    /// Whether there is still a place in the log for one more.
    fn may_tell(&mut self, now: Instant) -> bool {
        let (since, count) =
            self.told.filter(|(since, _)| now.duration_since(*since) < MINUTE).unwrap_or((now, 0));
        self.told = Some((since, count.saturating_add(1)));
        count < TOLD_MAX
    }
}

fn message(partition: u16, address: Ipv6Addr, until: Instant, now: Instant) -> LauncherToGate {
    let left = until.saturating_duration_since(now).as_secs();
    let (address_high, address_low) = wire::halves(address.into());
    let seconds = u32::try_from(left).unwrap_or(u32::MAX);
    LauncherToGate::Ban { partition, address_high, address_low, seconds }
}

impl Component for Bans {}

impl Bans {
    /// A site names a client whose records fail to decrypt.
    pub(crate) fn on_tampered(
        &mut self,
        supervisor: &mut Supervisor,
        serial: u64,
        address_high: u64,
        address_low: u64,
    ) {
        let slot = supervisor.processes()[&serial].slot;
        let (role, partition) = (supervisor.spec(slot).role, supervisor.spec(slot).partition);
        let time = Duration::from_millis(supervisor.context().config.tls.tamper_ban_ms.into());
        if role != Role::Site || time.is_zero() {
            return supervisor.protocol_violation(serial);
        }
        let (now, address) = (Instant::now(), wire::address_of(address_high, address_low));
        self.bans.retain(|_, until| *until > now);
        if self.bans.contains_key(&(partition, address)) {
            return;
        }
        self.add(partition, address, now + time);
        for gate in supervisor.hearing(Role::Gate) {
            supervisor.send(gate, &message(partition, address, now + time, now), None);
        }
        if self.may_tell(now) {
            let (name, client) = (supervisor.spec(slot).title(), address.to_canonical());
            let hours = time.as_secs_f64() / 3600.0;
            supervisor.info(format!(
                "{name}: records of {client} failed to decrypt; it gets nothing for {hours:.1} h"
            ));
        }
    }

    /// Writes all of them down.
    pub(crate) fn hand_over(&self, record: &mut Record<'_>) {
        for (&(partition, address), &until) in &self.bans {
            let ((address_high, address_low), left_ms) =
                (wire::halves(address.into()), record.left(Some(until)));
            record.add(LauncherToSuccessor::Ban { partition, address_high, address_low, left_ms });
        }
    }

    /// Those of the launcher before.
    pub(crate) fn resume(handed: &Handed) -> Self {
        let mut bans = Self::default();
        for item in handed.items() {
            if let LauncherToSuccessor::Ban { partition, address_high, address_low, left_ms } = item {
                let address = wire::address_of(*address_high, *address_low);
                handed.after(*left_ms).into_iter().for_each(|until| bans.add(*partition, address, until));
            }
        }
        bans
    }

    /// Has the bans of a partition hold for the one that takes its place, or for none.
    pub(crate) fn move_to(&mut self, supervisor: &mut Supervisor, from: u16, to: Option<u16>) {
        let moved: Vec<_> = self.of(from).map(|((_, address), until)| (*address, *until)).collect();
        self.bans.retain(|(partition, _), _| *partition != from);
        let now = Instant::now();
        let Some(to) = to else { return };
        for (address, until) in moved {
            self.bans.insert((to, address), until);
            for gate in supervisor.hearing(Role::Gate) {
                supervisor.send(gate, &message(to, address, until, now), None);
            }
        }
    }

    /// Lists them for the administrator.
    pub(crate) fn list_bans(&mut self, supervisor: &mut Supervisor, admin: u64, ticket: u32) {
        let now = Instant::now();
        self.bans.retain(|_, until| *until > now);
        let bans: Vec<_> = self.bans.iter().map(|(key, until)| (*key, *until)).collect();
        for ((partition, address), until) in bans {
            let slot = supervisor.slots_of_partition(partition).first().copied();
            let name = Text::new(slot.map_or("", |slot| supervisor.spec(slot).name.as_str()));
            let (address_high, address_low) = wire::halves(address.into());
            let seconds = u32::try_from(until.saturating_duration_since(now).as_secs()).unwrap_or(u32::MAX);
            let line = LauncherToAdmin::Ban { ticket, name, address_high, address_low, seconds };
            supervisor.send(admin, &line, None);
        }
        supervisor.send(admin, &LauncherToAdmin::BansEnd { ticket }, None);
    }

    /// Makes an end of a client's bans at all sites.
    pub(crate) fn unban(
        &mut self,
        supervisor: &mut Supervisor,
        ticket: u32,
        address_high: u64,
        address_low: u64,
    ) {
        let (now, address) = (Instant::now(), wire::address_of(address_high, address_low));
        let keys: Vec<_> = self.bans.keys().copied().filter(|(_, of)| *of == address).collect();
        for (partition, _) in &keys {
            self.bans.remove(&(*partition, address));
            for gate in supervisor.hearing(Role::Gate) {
                supervisor.send(gate, &message(*partition, address, now, now), None);
            }
        }
        match keys.is_empty() {
            true => supervisor.answer(ticket, Outcome::Failed, "no site refuses this client"),
            false => supervisor.answer(ticket, Outcome::Done, ""),
        }
    }

    /// Tells a new gate of all of them.
    pub(crate) fn send_bans(&mut self, supervisor: &mut Supervisor, gate: u64) {
        let now = Instant::now();
        let told: Vec<_> = self
            .bans
            .iter()
            .map(|((partition, address), until)| message(*partition, *address, *until, now))
            .collect();
        told.iter().for_each(|message| supervisor.send(gate, message, None));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_has_so_many_bans_and_the_first_to_end_makes_room() {
        let (mut bans, now) = (Bans::default(), Instant::now());
        let address = |number: usize| Ipv6Addr::from_bits(number as u128);
        bans.add(2, address(0), now);
        for number in 0..BANS_MAX + 10 {
            bans.add(1, address(number), now + Duration::from_secs(number as u64));
        }
        assert_eq!((bans.of(1).count(), bans.of(2).count()), (BANS_MAX, 1), "no site pays for another");
        assert!(!bans.bans.contains_key(&(1, address(9))) && bans.bans.contains_key(&(1, address(10))));
    }

    #[test]
    fn the_log_tells_of_some_of_them() {
        let (mut bans, now) = (Bans::default(), Instant::now());
        let told = (0..100).filter(|_| bans.may_tell(now)).count();
        assert_eq!(told, TOLD_MAX as usize);
        assert!(bans.may_tell(now + MINUTE));
    }
}
