//! Certificates without which a signer begins: whose fault that is, who may want it, and what is said of them.
//!
//! Runs in: the launcher, as root. Sees: the signer's verdicts, which are enumerations. Never: has the file of one site
//! keep the signer of all from being replaced, but where that was not ordered so.

use config::LeftOut;
use supervisor::Supervisor;
use supervisor::process::Stage;
use wire::{Role, StandIn};

use super::FileReload;
use super::file::{Purpose, ReloadedFile};
use super::table::FilePlace;

/// The end of a line about a signer that stays, as another one could not take its place.
const GOES_ON: &str = "; the signer goes on with the certificates and keys that it has; \
                       `bulkhead relaunch signer --leave-out` replaces it without this one";
/// The end of a line about a certificate without which a signer begins.
const LEFT_OUT: &str = "; the signer begins without it, and handshakes with the site fail until the file is \
                        right: it is read again when it has changed";

/// The fate of a new signer if it cannot use a certificate that the one before it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lacking {
    /// It does not take the place of the one before.
    Refused,
    /// It serves all others.
    LeftOut,
}

/// Why a new signer cannot use a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Culprit {
    /// The file is not as it was when a signer has accepted it.
    File,
    /// The file is: the program is another.
    Program,
}

/// A file that cannot be used.
#[derive(Debug)]
pub(crate) struct Unusable {
    /// The site that names it, by number.
    pub(crate) site: u16,
    /// Its mistake.
    pub(crate) what: String,
    /// Whose fault that is.
    pub(crate) fault: Culprit,
}

impl FileReload {
    /// A new signer cannot use a certificate: says so, and what comes of it. `None` if the signer before it has none
    /// either: nothing gets worse.
    pub(super) fn lack(
        &mut self,
        supervisor: &mut Supervisor,
        (place, fault): (FilePlace, Culprit),
        (signer, lacking): (u64, Lacking),
        why: &str,
    ) -> Option<Unusable> {
        let about = self.about(supervisor, place)?;
        let site = self.site_of(place)?;
        let before = supervisor.current_of(signer).filter(|before| *before != signer);
        let file = &mut self.files[place];
        let is_news = !before.is_some_and(|before| file.is_lacking(before));
        file.lacking.retain(|(lacking, _)| *lacking != signer);
        file.lacking.push((signer, why.to_owned()));
        let comes_of_it = match (before, lacking, fault) {
            (Some(_), Lacking::Refused, _) | (Some(_), _, Culprit::Program) => GOES_ON,
            (_, Lacking::LeftOut, _) => LEFT_OUT,
            // A reload that makes the first signer is undone.
            (None, Lacking::Refused, _) => "",
        };
        let what = format!("{about}: {why}{comes_of_it}");
        if is_news {
            supervisor.warn(&what);
        }
        is_news.then_some(Unusable { site, what, fault })
    }

    /// The certificates that a signer does not have.
    pub(crate) fn left_out_of(&self, supervisor: &Supervisor, signer: u64) -> Vec<LeftOut> {
        let sites = &supervisor.context().config.sites;
        let left_out = self.files.iter().filter_map(|file| {
            let Purpose::Certificate { site, .. } = file.purpose else { return None };
            let (_, why) = file.lacking.iter().find(|(lacking, _)| *lacking == signer)?;
            let (about, key) = (sites.get(usize::from(site))?, file.key.as_deref());
            let key = key.map(|key| format!(" (`key` is {})", key.display())).unwrap_or_default();
            Some(LeftOut {
                file: file.path.clone(),
                stand_in: StandIn::NoCertificate,
                sites: vec![about.name.clone()],
                hosts: about.hosts.clone(),
                is_whole: true,
                reason: format!("certificate of site {}{key}: {why}", about.name),
            })
        });
        left_out.collect()
    }

    /// The same of the newest signer that serves.
    pub(crate) fn left_out(&self, supervisor: &Supervisor) -> Vec<LeftOut> {
        let signers = supervisor.active(Role::Signer, None).into_iter();
        let is_there =
            |signer: &u64| supervisor.process(*signer).is_some_and(|process| process.stage == Stage::Serving);
        signers.filter(is_there).max().map_or_else(Vec::new, |signer| self.left_out_of(supervisor, signer))
    }
}

impl ReloadedFile {
    /// Whether a signer has begun without it, and has none yet.
    pub(super) fn is_lacking(&self, signer: u64) -> bool {
        self.lacking.iter().any(|(lacking, _)| *lacking == signer)
    }
}
