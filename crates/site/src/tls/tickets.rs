//! Tickets, by which clients take up an earlier session: sealed under the secrets that the launcher gives to all
//! workers of this site, now and later.
//!
//! Runs in: the site worker. Untrusted input: tickets that clients bring. Must never: open one under a secret that was
//! replaced too often, or tell anybody why it does not open one.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use rustls::server::ProducesTickets;

/// As many as the launcher keeps.
const GENERATIONS: usize = 3;
/// LIMIT: bytes of a session with a client's certificate in it; a longer one is not resumed.
const SESSION_BYTES_MAX: usize = 16 * 1024;
/// How long a client may keep a ticket: until the second secret after its own is made, in seconds.
const LIFETIME: u32 = 16 * 3600;
/// The number of the secret, in front of each ticket.
const NAME: usize = 8;

/// The secrets, the newest last.
#[derive(Default)]
pub struct Tickets(Mutex<VecDeque<(u64, LessSafeKey)>>);

impl fmt::Debug for Tickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tickets({})", self.secrets().len())
    }
}

impl Tickets {
    fn secrets(&self) -> MutexGuard<'_, VecDeque<(u64, LessSafeKey)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the newest secret.
    pub fn learn(&self, generation: u64, secret: &[u8]) -> Result<(), ()> {
        let key = UnboundKey::new(&AES_256_GCM, secret).map_err(|_| ())?;
        let mut secrets = self.secrets();
        secrets.push_back((generation, LessSafeKey::new(key)));
        if secrets.len() > GENERATIONS {
            secrets.pop_front();
        }
        Ok(())
    }

    /// The producer of tickets for as long as these conditions let clients in.
    pub fn under(self: &Arc<Self>, conditions: Option<Vec<u8>>) -> Arc<dyn ProducesTickets> {
        Arc::new(Under { tickets: self.clone(), conditions: conditions.unwrap_or_default() })
    }
}

/// Tickets of clients that were let in under these conditions.
///
/// SECURITY: a ticket stands for a certificate, which is not checked again. Under other authorities, or with other
/// lists of what they have revoked, it is none.
#[derive(Debug)]
struct Under {
    tickets: Arc<Tickets>,
    /// Digests of the files with authorities and lists; empty where nobody asks for certificates.
    conditions: Vec<u8>,
}

impl Under {
    fn bound(&self, name: [u8; NAME]) -> Aad<Vec<u8>> {
        Aad::from([&name[..], &self.conditions].concat())
    }
}

impl ProducesTickets for Under {
    fn enabled(&self) -> bool {
        !self.tickets.secrets().is_empty()
    }

    fn lifetime(&self) -> u32 {
        LIFETIME
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let secrets = self.tickets.secrets();
        let (generation, key) = secrets.back().filter(|_| plain.len() <= SESSION_BYTES_MAX)?;
        let name = generation.to_be_bytes();
        let mut nonce = [0; NONCE_LEN];
        aws_lc_rs::rand::fill(&mut nonce).ok()?;
        let mut sealed = plain.to_vec();
        let nonce_once = Nonce::assume_unique_for_key(nonce);
        let tag = key.seal_in_place_separate_tag(nonce_once, self.bound(name), &mut sealed);
        Some([&name[..], &nonce, &sealed, tag.ok()?.as_ref()].concat())
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let (name, rest) = ticket.split_first_chunk::<NAME>()?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_LEN>()?;
        let secrets = self.tickets.secrets();
        let (_, key) = secrets.iter().find(|(generation, _)| generation.to_be_bytes() == *name)?;
        let mut sealed = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        Some(key.open_in_place(nonce, self.bound(*name), &mut sealed).ok()?.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_worker_opens_what_another_has_sealed() {
        let (old, new) = (Arc::new(Tickets::default()), Arc::new(Tickets::default()));
        assert!(!old.under(None).enabled());
        old.learn(1, &[1; 32]).unwrap();
        let (secrets, old, opener) = (new.clone(), old.under(None), new.under(None));
        let ticket = old.encrypt(b"session").unwrap();
        for (generation, secret) in [(1, [1; 32]), (2, [2; 32]), (3, [3; 32])] {
            secrets.learn(generation, &secret).unwrap();
            assert_eq!(opener.decrypt(&ticket).as_deref(), Some(&b"session"[..]), "after {generation}");
        }
        assert_ne!(old.encrypt(b"session").unwrap(), ticket);
        secrets.learn(4, &[4; 32]).unwrap();
        assert_eq!(opener.decrypt(&ticket), None, "its secret is gone");
    }

    #[test]
    fn a_changed_ticket_is_none() {
        let secrets = Arc::new(Tickets::default());
        secrets.learn(7, &[7; 32]).unwrap();
        let tickets = secrets.under(None);
        let ticket = tickets.encrypt(b"session").unwrap();
        for place in 0..ticket.len() {
            let mut other = ticket.clone();
            other[place] ^= 1;
            assert_eq!(tickets.decrypt(&other), None, "byte {place}");
            assert_eq!(tickets.decrypt(&ticket[..place]), None);
        }
        assert_eq!(tickets.encrypt(&vec![0; SESSION_BYTES_MAX + 1]), None);
        assert!(secrets.learn(8, &[1; 31]).is_err());
    }

    #[test]
    fn a_ticket_is_none_under_other_authorities() {
        let secrets = Arc::new(Tickets::default());
        secrets.learn(7, &[7; 32]).unwrap();
        let ticket = secrets.under(Some(vec![1; 32])).encrypt(b"session").unwrap();
        assert_eq!(secrets.under(Some(vec![1; 32])).decrypt(&ticket).as_deref(), Some(&b"session"[..]));
        assert_eq!(secrets.under(Some(vec![2; 32])).decrypt(&ticket), None);
        assert_eq!(secrets.under(Some(vec![1; 33])).decrypt(&ticket), None);
        assert_eq!(secrets.under(None).decrypt(&ticket), None);
    }
}
