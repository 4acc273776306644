//! What the sites of all files have that no other site may have: whether a new one has any of it is asked for each key,
//! and not for each site.
//!
//! Runs in: the launcher (root). Input: sites that were found right beside each other. Must never: miss what `check`
//! would find. What it finds may be nothing: two keys can have one number, and two sites one host on different
//! listeners. So whoever asks looks at all sites then, and reports nothing by this.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher, Hash, Hasher};
use std::path::Path;

use crate::needs::Needs;
use crate::raw::RawListener;
use crate::raw::site::{RawSite, SitePaths};
use crate::tls;
use crate::worker::log_of;

/// Something of which there is one, or which must not be where another is.
#[derive(Hash)]
enum Key<'s> {
    Name(&'s str),
    Route(&'s str, &'s str),
    Log(Cow<'s, str>),
    /// An account, and one whose site shares it with nobody.
    User(&'s str),
    LoneUser(&'s str),
    /// A folder that is opened; and one that has a private key somewhere in it.
    Opened(&'s Path),
    Secret(&'s Path),
    /// A host that another site must do TLS for.
    Front(&'s str),
}

/// The numbers of keys, which are as good as random already.
#[derive(Default)]
struct Same(u64);

impl Hasher for Same {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

/// See the file's head.
#[cfg_attr(test, derive(Clone))]
#[derive(Default)]
pub(crate) struct TakenNames {
    counts: HashMap<u64, u32, BuildHasherDefault<Same>>,
    needs: Needs,
}

impl TakenNames {
    /// How many uids these sites need.
    pub(crate) fn needs(&self) -> Needs {
        self.needs
    }

    /// Adds a site; `None` if its paths have never been followed.
    pub(crate) fn add(&mut self, site: &RawSite, listeners: &[RawListener]) -> Option<()> {
        for key in keys(site, site.resolved.get()?, listeners) {
            *self.counts.entry(number(&key)).or_default() += 1;
        }
        self.needs.add(site);
        Some(())
    }

    /// Removes a site that was added.
    pub(crate) fn remove(&mut self, site: &RawSite, listeners: &[RawListener]) -> Option<()> {
        for key in keys(site, site.resolved.get()?, listeners) {
            let number = number(&key);
            let count = self.counts.get_mut(&number)?;
            *count = count.checked_sub(1)?;
            if *count == 0 {
                self.counts.remove(&number);
            }
        }
        self.needs.remove(site);
        Some(())
    }

    /// Whether another site has, or may have, what this one must have alone.
    pub(crate) fn meets(&self, site: &RawSite, listeners: &[RawListener]) -> bool {
        let Some(resolved) = site.resolved.get() else { return true };
        keys(site, resolved, listeners).iter().any(|key| match key {
            Key::User(user) => {
                let shares = site.worker.danger_shared_user;
                self.has(&Key::LoneUser(user)) || !shares && self.has(key)
            }
            Key::LoneUser(_) => false,
            // What is opened must have no key in it, and a key must be in nothing that is opened.
            Key::Opened(folder) => self.has(&Key::Secret(folder)),
            Key::Secret(folder) => self.has(&Key::Opened(folder)),
            // Whether there is a site that does TLS for it is a matter of all of them.
            Key::Front(_) => true,
            Key::Name(_) | Key::Route(..) | Key::Log(_) => self.has(key),
        })
    }

    /// Whether another site may need this one, which goes, to do TLS for it.
    pub(crate) fn leans_on(&self, site: &RawSite) -> bool {
        site.tls.is_some() && site.hosts.iter().any(|host| self.has(&Key::Front(&host.value)))
    }

    fn has(&self, key: &Key<'_>) -> bool {
        self.counts.contains_key(&number(key))
    }
}

fn number(key: &Key<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}

/// What a site has.
fn keys<'s>(site: &'s RawSite, resolved: &'s SitePaths, listeners: &[RawListener]) -> Vec<Key<'s>> {
    let mut keys: Vec<Key<'s>> = site.name.iter().map(|name| Key::Name(name)).collect();
    let path = site.path.as_deref().unwrap_or_default();
    keys.extend(site.hosts.iter().map(|host| Key::Route(&host.value, path)));
    keys.extend(log_of(&site.worker, site.name.as_deref()).map(Key::Log));
    if let Some(user) = &site.worker.user {
        keys.push(Key::User(&user.value));
        keys.extend((!site.worker.danger_shared_user).then_some(Key::LoneUser(&user.value)));
    }
    keys.extend(resolved.opened.iter().map(|folder| Key::Opened(folder)));
    keys.extend(resolved.keys.iter().flat_map(|file| file.ancestors()).map(Key::Secret));
    if tls::needs_front(site, listeners) {
        keys.extend(site.hosts.iter().map(|host| Key::Front(&host.value)));
    }
    keys
}
