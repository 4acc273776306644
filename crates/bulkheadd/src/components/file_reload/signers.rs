//! What a signer is given, and what it says of it.
//!
//! Runs in: the launcher, as root. Sees: the signer's verdicts, which are enumerations and times. Never: has a line of
//! the log for a word that nobody asked for.

use std::time::{SystemTime, UNIX_EPOCH};

use supervisor::Supervisor;
use supervisor::process::Stage;
use wire::Text;
use wire::tls::{Holding, LauncherToSigner, Objection, Verdict};

use super::file::Purpose;
use super::giving::{Giving, Next};
use super::table::FilePlace;
use super::{Culprit, FileReload, Lacking, Unusable};

impl FileReload {
    /// Begins to give a new signer every certificate, the channels being made elsewhere. Returns what cannot be opened,
    /// and would go with the signer before it.
    pub(crate) fn configure_signer(
        &mut self,
        supervisor: &mut Supervisor,
        (signer, lacking): (u64, Lacking),
    ) -> Vec<Unusable> {
        let sites = 0..supervisor.context().config.sites.len() as u16;
        name_sites(supervisor, signer, sites);
        self.giving.insert(signer, Giving::of(self.files.certificates().map(|(id, _)| id)));
        self.give_more(supervisor, (signer, lacking))
    }

    /// Gives a new signer more certificates, as far as it has said what became of those before, and has it begin after
    /// the last. Returns what cannot be opened.
    fn give_more(&mut self, supervisor: &mut Supervisor, (signer, lacking): (u64, Lacking)) -> Vec<Unusable> {
        let mut unread = Vec::new();
        let opener = supervisor.context().opener();
        let neighbours = opener.neighbours();
        while let Some(giving) = self.giving.get_mut(&signer) {
            let id = match giving.next() {
                Next::Certificate(id) => id,
                Next::Answer => break,
                Next::Nothing => {
                    self.giving.remove(&signer);
                    supervisor.send(signer, &LauncherToSigner::Begin {}, None);
                    break;
                }
            };
            // It may have gone with its site meanwhile.
            let Some(place) = self.files.certificate(id) else { continue };
            if let Err(why) = self.give(supervisor, &neighbours, place, &[signer]) {
                let file = &mut self.files[place];
                (file.said, file.is_judged) = ((Verdict::Unreadable, Holding::NOTHING), true);
                let why = format!("the file cannot be opened: {why}");
                unread.extend(self.lack(supervisor, (place, Culprit::File), (signer, lacking), &why));
            }
            if self.files[place].owed.contains(&signer)
                && let Some(giving) = self.giving.get_mut(&signer)
            {
                giving.given();
            }
        }
        unread
    }

    /// Whether a signer has yet to be given certificates.
    pub(crate) fn is_giving(&self) -> bool {
        !self.giving.is_empty()
    }

    /// Tells a signer of these sites, and gives it their certificates. Returns what cannot be opened.
    pub(crate) fn tell_signer(
        &mut self,
        supervisor: &mut Supervisor,
        signer: u64,
        sites: &[u16],
    ) -> Vec<Unusable> {
        name_sites(supervisor, signer, sites.iter().copied());
        let certificates = sites.iter().flat_map(|&site| self.files.places_of(site));
        let is_certificate =
            |place: &FilePlace| matches!(self.files[*place].purpose, Purpose::Certificate { .. });
        let certificates: Vec<FilePlace> = certificates.filter(is_certificate).collect();
        let opener = supervisor.context().opener();
        let neighbours = opener.neighbours();
        let mut unread = Vec::new();
        for place in certificates {
            let Err(why) = self.give(supervisor, &neighbours, place, &[signer]) else { continue };
            self.complain(supervisor, place, &why);
            let what = format!("{}: {why}", self.about(supervisor, place).unwrap_or_default());
            unread.extend(self.site_of(place).map(|site| Unusable { site, what, fault: Culprit::File }));
        }
        unread
    }

    /// Says what is new of what clients have against a certificate: at the start, when it is read again, and in its
    /// last days.
    pub(super) fn object(&mut self, supervisor: &mut Supervisor, place: FilePlace) {
        let file = &mut self.files[place];
        if !file.is_judged {
            return;
        }
        let (_, holding) = file.said;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let before = file.objected_at.replace(now);
        let before: Vec<Objection> = before.map_or_else(Vec::new, |at| holding.objections(at).collect());
        for objection in holding.objections(now).filter(|one| !before.contains(one)) {
            self.complain(supervisor, place, &format!("it {}; {}", objection.words(), objection.remedy()));
        }
    }

    /// Takes a signer's word about a file, and gives it more. What is wrong, if the signer cannot use a file of which
    /// no other signer has said so, or is to take the place of another, which has what it lacks; and what cannot be
    /// opened.
    pub(crate) fn on_certificate(
        &mut self,
        supervisor: &mut Supervisor,
        (signer, lacking): (u64, Lacking),
        id: (u16, u16),
        verdict: Verdict,
        holding: Holding,
    ) -> Vec<Unusable> {
        let place = self.files.certificate(id);
        let unusable = match place.filter(|&place| self.files[place].is_owed_by(signer)) {
            Some(place) => self.judged(supervisor, (signer, lacking), place, (verdict, holding)),
            // Nobody asked.
            None => {
                supervisor.protocol_violation(signer);
                None
            }
        };
        self.giving.get_mut(&signer).into_iter().for_each(Giving::answered);
        unusable.into_iter().chain(self.give_more(supervisor, (signer, lacking))).collect()
    }

    /// A signer has said what it thinks of a file.
    fn judged(
        &mut self,
        supervisor: &mut Supervisor,
        (signer, lacking): (u64, Lacking),
        place: FilePlace,
        said: (Verdict, Holding),
    ) -> Option<Unusable> {
        let verdict = said.0;
        let has_begun = supervisor.process(signer).is_some_and(|signer| signer.stage == Stage::Serving);
        let file = &mut self.files[place];
        // A new signer reads all files, most of which are as they were: of them there is nothing to say.
        let is_news = has_begun
            || verdict == Verdict::Good && std::mem::take(&mut file.is_new)
            || file.is_judged && file.said != said;
        let was_bad = file.is_judged && file.said.0 != Verdict::Good;
        (file.said, file.is_judged) = (said, true);
        let why = format!("the file {}", verdict.words());
        match verdict {
            Verdict::Good => {
                file.lacking.retain(|(lacking, _)| *lacking != signer);
                self.accepted(supervisor, place, is_news);
                None
            }
            _ if !has_begun || supervisor.is_successor(signer) => {
                let fault = if file.is_as_accepted { Culprit::Program } else { Culprit::File };
                let why = format!("{why}; {}", verdict.remedy());
                self.lack(supervisor, (place, fault), (signer, lacking), &why)
            }
            _ => {
                let about = self.about(supervisor, place).unwrap_or_default();
                self.complain(
                    supervisor,
                    place,
                    &format!("{why}; the site goes on without it, or with what it had"),
                );
                let what = format!("{about}: {why}");
                (!was_bad).then_some(Unusable { site: self.site_of(place)?, what, fault: Culprit::File })
            }
        }
    }

    /// A certificate is in use; whether that is said depends on what was known.
    fn accepted(&mut self, supervisor: &mut Supervisor, place: FilePlace, is_news: bool) {
        if is_news {
            if let Some(about) = self.about(supervisor, place).filter(|_| supervisor.is_announced()) {
                supervisor.info(format!("{about} is in use"));
            }
            self.files[place].objected_at = None;
        }
        self.object(supervisor, place);
    }

    /// The site that names a file, by number.
    pub(super) fn site_of(&self, place: FilePlace) -> Option<u16> {
        self.files[place].purpose.named().map(|(_, site)| site)
    }
}

/// Tells a signer what these sites are called, and their hosts.
fn name_sites(supervisor: &mut Supervisor, signer: u64, sites: impl Iterator<Item = u16> + Clone) {
    let all = &supervisor.context().config.sites;
    let sites = sites.map(|site| (site, &all[usize::from(site)])).filter(|(_, about)| about.tls.is_some());
    let hosts = sites.clone().flat_map(|(site, about)| {
        about.hosts.iter().map(move |host| LauncherToSigner::Host { site, host: Text::new(host) })
    });
    let named = sites
        .clone()
        .map(|(site, about)| LauncherToSigner::Name { site, name: Text::new(about.name.as_str()) });
    for message in named.chain(hosts).collect::<Vec<_>>() {
        supervisor.send(signer, &message, None);
    }
}
