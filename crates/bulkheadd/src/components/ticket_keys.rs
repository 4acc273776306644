//! The secrets that sites encrypt tickets under: made here, so that a site's worker can read what the one before it
//! wrote.
//!
//! Runs in: the launcher. Sees nothing. Never: writes one anywhere, or gives it to another site's worker.

use std::collections::VecDeque;
use std::collections::btree_map::{BTreeMap, Entry};
use std::sync::Arc;
use std::time::{Duration, Instant};

use config::{Config, Resumption, SharedList, Site};
use wire::successor::LauncherToSuccessor;
use wire::tls::TICKET_KEY_BYTES;
use wire::{Bytes, LauncherToSite, Role};

use crate::components::Component;
use crate::secret::random;
use supervisor::Supervisor;
use supervisor::error::Error;
use supervisor::upgrade::{Handed, Record};

/// How long tickets are written under one secret.
const ROTATE: Duration = Duration::from_secs(8 * 3600);
/// How many are kept: a ticket is good for 16 to 24 hours.
const GENERATIONS: usize = 3;

/// One secret.
struct Secret {
    generation: u64,
    bytes: [u8; TICKET_KEY_BYTES],
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Secret({})", self.generation)
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.bytes.fill(0);
        // What nobody reads again need not be written, says the compiler otherwise.
        std::hint::black_box(&mut self.bytes);
    }
}

/// Those of all sites that have certificates.
#[derive(Debug, Default)]
pub(crate) struct TicketKeys {
    /// By site, the newest last.
    secrets: BTreeMap<u16, VecDeque<Secret>>,
    /// The sites of which those with certificates have some, by number.
    sites: SharedList<Arc<Site>>,
    generation: u64,
    next: Option<Instant>,
}

impl TicketKeys {
    pub(crate) fn of(config: &Config) -> Result<Self, Error> {
        let mut tickets = Self::default();
        tickets.adopt(config)?;
        Ok(tickets)
    }

    /// Writes all of them down, in memory that ends with the record.
    pub(crate) fn hand_over(&self, record: &mut Record<'_>) {
        let (generation, next_ms) = (self.generation, record.left(self.next));
        record.add(LauncherToSuccessor::Tickets { generation, next_ms });
        for (&site, secrets) in &self.secrets {
            for Secret { generation, bytes } in secrets {
                let (generation, secret) = (*generation, Bytes(bytes.to_vec()));
                record.add(LauncherToSuccessor::TicketKey { site, generation, secret });
            }
        }
    }

    /// Those of the launcher before; new ones for sites that had none.
    pub(crate) fn resume(handed: &Handed, config: &Config) -> Result<Self, Error> {
        let mut tickets = Self::default();
        for item in handed.items() {
            match item {
                LauncherToSuccessor::Tickets { generation, next_ms } => {
                    (tickets.generation, tickets.next) = (*generation, handed.after(*next_ms));
                }
                LauncherToSuccessor::TicketKey { site, generation, secret } => {
                    let wrong = |_| Error::record("a secret of tickets has another length");
                    let bytes = secret.0.as_slice().try_into().map_err(wrong)?;
                    let secret = Secret { generation: *generation, bytes };
                    tickets.secrets.entry(*site).or_default().push_back(secret);
                }
                _ => {}
            }
        }
        tickets.secrets.retain(|site, _| usize::from(*site) < config.sites.len());
        tickets.adopt(config)?;
        Ok(tickets)
    }

    /// Makes secrets for sites that are new, and forgets those of sites that have gone.
    ///
    /// SECURITY: a site that was changed is a new one: a ticket may be of a session that it would refuse now.
    pub(crate) fn adopt(&mut self, config: &Config) -> Result<(), Error> {
        if config.tls.resumption != Resumption::Tickets {
            (self.secrets, self.sites) = Default::default();
        } else {
            for site in self.sites.differing(&config.sites, Arc::ptr_eq) {
                let has = config.sites.get(site).is_some_and(|about| about.tls.is_some());
                match self.secrets.entry(site as u16) {
                    Entry::Occupied(known) if !has => drop(known.remove()),
                    Entry::Vacant(place) if has => {
                        let newest = Secret { generation: self.generation, bytes: random()? };
                        place.insert(VecDeque::from([newest]));
                    }
                    _ => {}
                }
            }
            self.sites = config.sites.clone();
        }
        self.next = (!self.secrets.is_empty()).then(|| self.next.unwrap_or_else(|| Instant::now() + ROTATE));
        Ok(())
    }

    fn rotate(&mut self) -> Result<(), Error> {
        self.generation += 1;
        for secrets in self.secrets.values_mut() {
            secrets.push_back(Secret { generation: self.generation, bytes: random()? });
            if secrets.len() > GENERATIONS {
                secrets.pop_front();
            }
        }
        self.next = Some(Instant::now() + ROTATE);
        Ok(())
    }

    /// What a worker of `site` is told, the newest last.
    pub(crate) fn messages(&self, site: u16) -> Vec<LauncherToSite> {
        self.secrets.get(&site).into_iter().flatten().map(message).collect()
    }
}

fn message(secret: &Secret) -> LauncherToSite {
    LauncherToSite::TicketKey { generation: secret.generation, secret: Bytes(secret.bytes.to_vec()) }
}

impl Component for TicketKeys {
    fn deadline(&self) -> Option<Instant> {
        self.next
    }

    /// Makes new secrets when it is time, and gives them to the workers.
    fn on_time(&mut self, supervisor: &mut Supervisor, now: Instant) {
        if self.next.is_none_or(|next| next > now) {
            return;
        }
        if let Err(error) = self.rotate() {
            self.next = Some(now + ROTATE);
            return supervisor.warn(format!("sites keep their secrets for tickets: {error}"));
        }
        for serial in supervisor.active(Role::Site, None) {
            let site = supervisor.spec_of(serial).site;
            if let Some(newest) = self.messages(site).pop() {
                supervisor.send(serial, &newest, None);
            }
        }
    }
}
