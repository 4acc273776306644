//! What messages carry besides themselves: addresses in halves, what certificates are objected to, names, limits.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};

use wire::log::{self, Access, Level, Record};
use wire::tls::{Holding, KeyKind, Objection, Verdict};
use wire::{Message, NUMBERS_MAX, PREREAD_MAX, Shed, ToWorker};

const DAY: u64 = 86_400;

/// How many of these texts differ; an empty one counts for none.
fn different<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> usize {
    let texts: BTreeSet<String> = texts.into_iter().map(|text| text.as_ref().to_owned()).collect();
    texts.iter().filter(|text| !text.is_empty()).count()
}

#[test]
fn an_address_in_halves_is_the_same_address() {
    let address: IpAddr = "2001:db8:1:2:3:4:5:6".parse().unwrap();
    assert_eq!(wire::halves(address), (0x2001_0db8_0001_0002, 0x0003_0004_0005_0006));
    assert_eq!(wire::halves("192.0.2.1".parse().unwrap()), (0, 0xffff_c000_0201));
    for text in ["2001:db8:1:2:3:4:5:6", "::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "::ffff:192.0.2.1"]
    {
        let address: Ipv6Addr = text.parse().unwrap();
        let (high, low) = wire::halves(address.into());
        assert_eq!(wire::address_of(high, low), address);
    }
}

#[test]
fn a_range_is_written_in_its_own_family() {
    let text = |address: &str, bits| {
        let (high, low) = wire::halves(address.parse().unwrap());
        wire::range_text(high, low, bits)
    };
    assert_eq!(text("10.0.0.0", 96 + 8), "10.0.0.0/8");
    assert_eq!(text("192.0.2.1", 128), "192.0.2.1/32");
    assert_eq!(text("2001:db8::", 32), "2001:db8::/32");
    // Wider than all of IPv4, it is a range of IPv6.
    assert_eq!(text("0.0.0.0", 95), "::ffff:0.0.0.0/95");
}

#[test]
fn every_count_of_a_shed_has_its_own_name_and_value() {
    let mut shed = Shed::default();
    (shed.admitted, shed.late_head, shed.bans, shed.banned_now) = (1, 2, 3, 4);
    let counts: Vec<_> = shed.counts().collect();
    assert_eq!(different(counts.iter().map(|(name, _)| name)), counts.len());
    let named = |name: &str| counts.iter().find(|(known, _)| *known == name).unwrap().1;
    assert_eq!(["admitted", "late_head", "bans", "banned_now", "malformed"].map(named), [1, 2, 3, 4, 0]);
}

#[test]
fn a_certificate_is_objected_to_by_its_dates_and_its_names() {
    let now = 1000 * DAY;
    let objections = |not_before, not_after, named| -> Vec<Objection> {
        Holding { kind: KeyKind::Rsa, not_before, not_after, named }.objections(now).collect()
    };
    assert_eq!(objections(0, now + 14 * DAY, true), []);
    assert_eq!(objections(now, now + 400 * DAY, true), [], "from this second on it is valid");
    assert_eq!(objections(0, now + 14 * DAY - 1, true), [Objection::EndsIn(13)]);
    assert_eq!(objections(0, now + 2 * DAY, true), [Objection::EndsIn(2)]);
    assert_eq!(objections(0, now + 1, true), [Objection::EndsIn(0)]);
    assert_eq!(objections(0, now, true), [Objection::Expired]);
    assert_eq!(objections(0, now - 1, true), [Objection::Expired]);
    assert_eq!(objections(now + 1, now + 90 * DAY, true), [Objection::NotYet]);
    assert_eq!(objections(0, now + 90 * DAY, false), [Objection::OtherName]);
    assert_eq!(objections(0, now, false), [Objection::Expired, Objection::OtherName]);
    assert_eq!(Holding::NOTHING.objections(now).count(), 0, "nothing is held");
}

#[test]
fn people_are_told_what_is_the_matter_and_what_to_do() {
    let days = |days| Objection::EndsIn(days).words();
    assert_eq!([days(0), days(1), days(2)], ["ends within a day", "ends in 1 day", "ends in 2 days"]);
    let all = [Objection::Expired, Objection::NotYet, Objection::OtherName, Objection::EndsIn(3)];
    assert_eq!(different(all.map(Objection::words)), all.len());
    assert_eq!(different(all.map(Objection::remedy)), 3, "what ends or has ended is to be renewed");
    let kinds = [KeyKind::P256, KeyKind::P384, KeyKind::Ed25519, KeyKind::Rsa];
    assert_eq!(kinds.map(KeyKind::name), ["ECDSA P-256", "ECDSA P-384", "Ed25519", "RSA"]);
    let verdicts = [
        Verdict::Good,
        Verdict::Unreadable,
        Verdict::NoKey,
        Verdict::BadKey,
        Verdict::NoCertificate,
        Verdict::BadCertificate,
        Verdict::Mismatch,
    ];
    assert_eq!(different(verdicts.map(Verdict::words)), verdicts.len());
}

/// The numbers of docs/internals/limits.md.
#[test]
fn limits_are_where_they_are() {
    assert_eq!((wire::MESSAGE_MAX, PREREAD_MAX), (66 << 10, 64 << 10));
    assert_eq!((wire::tls::CERTIFICATE_MAX, wire::stapler::STAPLE_MAX), (16 << 10, 16 << 10));
    assert_eq!((log::BATCH_MAX, log::RECORD_MAX), (48 << 10, 16 + 2048 + 255 + 2 * 512 + 128));
}

#[test]
fn the_longest_record_is_within_its_limit() {
    let long = vec![b'x'; 10_000];
    let record = Record::Access(Access {
        time_us: u64::MAX,
        duration_us: u32::MAX,
        site: u16::MAX,
        peer: "[2001:db8::1]:65535".parse().unwrap(),
        status: 599,
        body_bytes: u64::MAX,
        version: 255,
        method: &long,
        target: &long,
        host: &long,
        referer: &long,
        agent: &long,
    });
    let event = Record::Event { time_us: u64::MAX, level: Level::Info, text: &long };
    for record in [record, event] {
        let mut out = Vec::new();
        log::append(&mut out, &record);
        assert!(out.len() <= log::RECORD_MAX, "{} bytes", out.len());
    }
}

#[test]
fn numbers_are_taken_up_to_their_limit_and_only_if_they_are_there() {
    let message = wire::FromWorker::Returns { credits: 1, done: (0..NUMBERS_MAX as u64).collect() };
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    assert_eq!(wire::FromWorker::decode(&bytes), Ok(message));
    bytes.pop();
    assert!(wire::FromWorker::decode(&bytes).is_err(), "the last number is cut");
    assert!(ToWorker::decode(&[]).is_err());
}
