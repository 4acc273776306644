//! What a signer, a stapler and a connector say to the sites that they work for, and what such a site asks of them.
//!
//! Runs in: `rogue`, in the place of a signer, a stapler, a connector or a site. Sees: what is asked. Never: answers as
//! it should.

use std::os::fd::{AsFd, OwnedFd};

use sha2::{Digest as _, Sha256};
use wire::stapler::{HASH_BYTES, STAPLE_MAX, SignerToStapler, StaplerToSite};
use wire::tls::{KeyKind, SIGNATURE_MAX, SignerToSite, SiteToSigner};
use wire::{Bytes, FromConnector, ToConnector, Unreachable};

use crate::deeds::{BETWEEN_MS, TOO_MANY};
use crate::hands::{encoded, flood, send, send_wrong, wrong};
use crate::place::Place;

/// How long sites are left with a certificate that the rogue has made up.
const HANDSHAKES_MS: u64 = 2_000;
/// A number that nobody has asked for.
const NOT_ASKED: u64 = 1 << 40;

/// As the signer: answers that nobody asked for, certificates that are none, and then what costs the channel, another
/// way at each site.
pub fn signer_to_sites(place: &mut Place) {
    for channel in &place.clients {
        for ticket in 0..50 {
            send(channel, &encoded(&signed(ticket)), &[]);
            send(channel, &encoded(&SignerToSite::Refused { ticket }), &[]);
        }
        // Parts without a beginning, of a chain that is too long, and of more chains than there can be.
        send(channel, &encoded(&part(0, 3, 4)), &[]);
        send(channel, &encoded(&part(0, 0, u8::MAX)), &[]);
        (0..200).for_each(|number| send(channel, &encoded(&part(number, 0, 1)), &[]));
    }
    place.tell("clients: signatures that nobody asked for, and certificates that are none");
    place.live(HANDSHAKES_MS);
    let kinds = wrong(&encoded(&signed(0)));
    for (index, channel) in place.clients.iter().enumerate() {
        let one = &kinds[index % kinds.len()];
        send_wrong(channel, one, place.pipe());
        place.tell(format_args!("client {index}: {}", one.what));
    }
}

fn signed(ticket: u32) -> SignerToSite {
    SignerToSite::Signed { ticket, signature: Bytes(vec![0x5A; SIGNATURE_MAX]) }
}

fn part(number: u16, index: u8, count: u8) -> SignerToSite {
    SignerToSite::Certificate {
        number,
        version: 1,
        kind: KeyKind::P256,
        index,
        count,
        der: Bytes(vec![0x30; 900]),
    }
}

/// As the stapler: what is no answer of a responder, to the certificates that there are and to those that there are
/// not, and then what costs the channels: of sites, and of the signer, to whom it has nothing to say.
pub fn stapler_to_others(place: &mut Place) {
    let known = certificates(place);
    for channel in &place.clients {
        known.iter().for_each(|(number, hash)| send(channel, &encoded(&staple(*number, hash)), &[]));
        (0..200).for_each(|number| send(channel, &encoded(&staple(number, &[7; HASH_BYTES])), &[]));
    }
    place.tell(format_args!("clients: staples that are none, to {} certificates", known.len()));
    place.live(HANDSHAKES_MS);
    let kinds = wrong(&encoded(&staple(0, &[7; HASH_BYTES])));
    for channel in place.clients.iter().chain(&place.signers) {
        kinds.iter().for_each(|one| send_wrong(channel, one, place.pipe()));
        flood(channel, TOO_MANY, &[]);
    }
    place.tell("clients, signer: more than they put up with");
}

/// The numbers of the certificates that the signer has told of, and their hashes.
fn certificates(place: &mut Place) -> Vec<(u16, Vec<u8>)> {
    let mut known = Vec::new();
    for index in 0..place.signers.len() {
        while let Some((SignerToStapler::Certificate { number, index: part, der, .. }, _)) =
            place.receive(|place| &place.signers[index])
        {
            if part == 0 {
                known.push((number, Sha256::digest(&der.0).to_vec()));
            }
        }
    }
    known
}

fn staple(number: u16, hash: &[u8]) -> StaplerToSite {
    let (certificate, response) = (Bytes(hash.to_vec()), Bytes(vec![0x30; STAPLE_MAX]));
    StaplerToSite::Staple { number, certificate, until: u64::MAX, response }
}

/// As a connector: answers to what was never asked, what is no connection for what was, and the same once more.
pub fn connector_to_site(place: &mut Place) {
    let Ok(null) = rustix::stdio::stdin().try_clone_to_owned() else { return };
    let asked = std::mem::take(&mut place.asked);
    for channel in &place.clients {
        for id in NOT_ASKED..NOT_ASKED + 5 {
            send(channel, &encoded(&FromConnector::Connected { id }), &[null.as_fd()]);
            send(channel, &encoded(&FromConnector::Failed { id, why: Unreachable::Late }), &[]);
        }
        for &id in &asked {
            let connected = encoded(&FromConnector::Connected { id });
            // No descriptor, a pipe, its own channel to the launcher; then a replay.
            send(channel, &connected, &[]);
            send(channel, &connected, &[place.pipe()]);
            send(channel, &connected, &[place.control.as_fd()]);
            send(channel, &encoded(&FromConnector::Failed { id, why: Unreachable::Refused }), &[]);
        }
    }
    place.tell(format_args!("clients: what is no connection, for {} requests", asked.len()));
    let kinds = wrong(&encoded(&FromConnector::Failed { id: 0, why: Unreachable::Late }));
    for index in 0..place.clients.len() {
        kinds.iter().for_each(|one| send_wrong(&place.clients[index], one, place.pipe()));
        place.live(BETWEEN_MS);
        flood(&place.clients[index], TOO_MANY, &[]);
    }
    place.tell("clients: more than they put up with");
}

/// As the worker of a site: keys and targets that are not its own, then nonsense.
pub fn site_to_helpers(place: &mut Place) {
    for index in 0..place.signers.len() {
        let Ok(signer) = place.signers[index].try_clone() else { continue };
        for number in [1, 63, u16::MAX] {
            send(&signer, &encoded(&sign(number, b"a certificate, a mail or a token")), &[]);
            send(&signer, &encoded(&sign(number, &verify())), &[]);
        }
        place.live(BETWEEN_MS * 10);
        let (mut signed, mut refused) = (0, 0);
        while let Some((answer, _)) = place.receive(|place| &place.signers[index]) {
            signed += i32::from(matches!(answer, SignerToSite::Signed { .. }));
            refused += i32::from(matches!(answer, SignerToSite::Refused { .. }));
        }
        place.tell(format_args!("signer: {signed} signed, {refused} refused"));
        finish(place, &signer, &encoded(&sign(0, b"")), "signer");
    }
    ask_connectors(place);
}

/// As the worker of a site, or a data proxy: targets that are not its own, then nonsense.
pub fn ask_connectors(place: &mut Place) {
    for index in 0..place.connectors.len() {
        let Ok(connector) = place.connectors[index].try_clone() else { continue };
        for target in [7, 999, u16::MAX] {
            send(&connector, &encoded(&ToConnector::Connect { id: target.into(), target }), &[]);
            send(&connector, &encoded(&ToConnector::Cancel { id: NOT_ASKED }), &[]);
        }
        place.live(BETWEEN_MS * 10);
        let (mut connected, mut unknown) = (0, 0);
        while let Some((answer, _)) = place.receive(|place| &place.connectors[index]) {
            connected += i32::from(matches!(answer, FromConnector::Connected { .. }));
            unknown += i32::from(matches!(answer, FromConnector::Failed { why: Unreachable::Unknown, .. }));
        }
        place.tell(format_args!("connector: {connected} connected, {unknown} unknown"));
        finish(place, &connector, &encoded(&ToConnector::Cancel { id: 1 }), "connector");
    }
}

/// What is wrong, and then so much of it that the channel is closed.
fn finish(place: &mut Place, channel: &OwnedFd, good: &[u8], whom: &str) {
    wrong(good).iter().for_each(|one| send_wrong(channel, one, place.pipe()));
    place.live(BETWEEN_MS);
    flood(channel, TOO_MANY, &[]);
    place.tell(format_args!("{whom}: what is not this site's, and more than it puts up with"));
}

/// What has the shape of a step of a handshake.
fn verify() -> Vec<u8> {
    [&[b' '; 64][..], b"TLS 1.3, server CertificateVerify\0", &[7; 32]].concat()
}

fn sign(number: u16, message: &[u8]) -> SiteToSigner {
    SiteToSigner::Sign { ticket: 1, number, version: 1, scheme: 0x0403, message: Bytes(message.to_vec()) }
}

impl Place {
    /// Hears what sites ask. A signer answers another question, and then this one with the signature of no key; a
    /// connector keeps the numbers.
    pub fn hear_clients(&mut self) {
        for index in 0..self.clients.len() {
            if self.role == wire::Role::Signer {
                while let Some((SiteToSigner::Sign { ticket, .. }, _)) =
                    self.receive(|place| &place.clients[index])
                {
                    for ticket in [ticket.wrapping_add(1), ticket] {
                        send(&self.clients[index], &encoded(&signed(ticket)), &[]);
                    }
                }
            } else {
                while let Some((message, _)) = self.receive(|place| &place.clients[index]) {
                    if let ToConnector::Connect { id, .. } = message {
                        self.asked.push(id);
                    }
                }
            }
        }
    }
}
