//! Files that are read again when they have changed: certificates, by the signer; authorities of clients' certificates,
//! lists of revoked ones and users, by workers of their site; statements and what logs in at servers, by data proxies; what this machine says of names, by those who look names up. Opened for them, and looked at from time to time.
//!
//! Runs in: the launcher, as root. Sees: sizes and times of files that the operator named; the signer's verdicts, which
//! are enumerations. Never: reads a byte of them, or wakes anybody for one that is as it was.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use config::{Class, Config, Opener, PathFault, Site};
use wire::data::LauncherToDataProxy;
use wire::tls::{Holding, LauncherToSigner, Objection, Verdict};
use wire::{LauncherToSite, Role, Text};

use crate::components::Component;
use supervisor::Supervisor;
use supervisor::change::plan::{Stamp, plan_files};
use supervisor::change::{Change, FileId};
use supervisor::process::Stage;
use supervisor::restart::Ended;
use supervisor::setup::names::{self, NamesFile};
use supervisor::setup::reloaded_files::{for_data_proxy, for_workers};
use supervisor::setup::stapler;
use sys::file_version::FileVersion;

/// LIMIT: how often the files about names are looked at, at least: who corrects an address there waits for it.
const NAMES_EVERY: Duration = Duration::from_secs(10);

/// LIMIT: a file that was changed so lately when it was read is read once more, as another change might have the same time:
/// two ticks of the slowest clock of a file system.
const SETTLED_AFTER: Duration = Duration::from_millis(20);

/// What is said of a signer that stays, as another one could not take its place.
const GOES_ON: &str = "; the signer goes on with the certificates and keys that it has";

/// What a file is for.
#[derive(Clone, Debug, PartialEq)]
enum Purpose {
    /// It is this certificate of a site, for the signer.
    Certificate { site: u16, number: u16 },
    /// For a site's workers, which are told so.
    Site(u16, LauncherToSite),
    /// For the proxy of this data source of a site, which is told so.
    Data { site: u16, number: u16, told: LauncherToDataProxy },
    /// For those who look names up. A machine may be without.
    Names(NamesFile),
}

impl Purpose {
    /// The name of the file among all that are read again.
    fn id(&self, path: &Path) -> FileId {
        let number = match self {
            Self::Certificate { number, .. }
            | Self::Data { number, .. }
            | Self::Site(_, LauncherToSite::ClientRevoked { number, .. }) => *number,
            Self::Site(_, LauncherToSite::RuleUsers { rule, .. }) => *rule,
            Self::Site(..) | Self::Names(_) => 0,
        };
        let (key, site) = self.named().unzip();
        FileId { key: key.unwrap_or("names"), site, number, path: path.to_owned() }
    }

    /// The key by which the operator has named the file, and the site.
    fn named(&self) -> Option<(&'static str, u16)> {
        match self {
            Self::Certificate { site, .. } => Some(("certificates", *site)),
            Self::Data { site, told, .. } => Some((
                match told {
                    LauncherToDataProxy::Password {} => "password",
                    LauncherToDataProxy::Authorities { .. } => "server_ca",
                    LauncherToDataProxy::Certificate {} => "certificate",
                    LauncherToDataProxy::Key {} => "key",
                    _ => "statements",
                },
                *site,
            )),
            Self::Site(site, LauncherToSite::ClientAuthorities { .. }) => Some(("client_ca", *site)),
            Self::Site(site, LauncherToSite::ClientRevoked { .. }) => Some(("client_crl", *site)),
            Self::Site(site, _) => Some(("users", *site)),
            Self::Names(_) => None,
        }
    }
}

#[derive(Debug)]
struct ReloadedFile {
    purpose: Purpose,
    path: PathBuf,
    /// The file of the key, of a certificate that has one.
    key: Option<PathBuf>,
    /// As they were when they were last given to those who read them.
    given: Option<Stamp>,
    /// Whether any change since then has given them another version.
    is_settled: bool,
    /// The signers that have yet to say what became of it.
    owed: Vec<u64>,
    /// What the signer has said last, if it is for one.
    said: (Verdict, Holding),
    /// Whether a signer has said anything.
    is_judged: bool,
    /// Whether the file has come with a reload, and no line says so yet.
    is_new: bool,
    /// What was said against it, so that each objection is said once.
    objected: Vec<Objection>,
}

impl ReloadedFile {
    fn new(purpose: Purpose, path: PathBuf) -> Self {
        let said = (Verdict::Unreadable, Holding::NOTHING);
        let (key, given, is_judged, is_settled) = (None, None, false, false);
        Self {
            purpose,
            path,
            key,
            given,
            is_settled,
            owed: Vec::new(),
            said,
            is_judged,
            is_new: true,
            objected: Vec::new(),
        }
    }

    /// What there was before of the same file; or the file itself, which its reader is sent when it starts, if it is no
    /// certificate.
    fn or_as_before(self, before: &mut Vec<Self>, opener: &Opener) -> Self {
        let same =
            |old: &Self| old.purpose == self.purpose && (&old.path, &old.key) == (&self.path, &self.key);
        let is_certificate = matches!(self.purpose, Purpose::Certificate { .. });
        match before.iter().position(same) {
            Some(at) => before.swap_remove(at),
            None if is_certificate => self,
            None => self.given_at_start(opener),
        }
    }

    fn is_of_names(&self) -> bool {
        matches!(self.purpose, Purpose::Names(_))
    }

    /// One that its reader is sent when it starts, as the file is now.
    fn given_at_start(self, opener: &Opener) -> Self {
        let given = self.look(opener).ok();
        Self { given, is_settled: given.as_ref().is_none_or(is_settled), ..self }
    }

    /// What has been read, as far as it is known to be what is there now if it has this version still.
    fn known(&self, now: &Stamp) -> Stamp {
        // One that was not there has been read as nothing.
        let is_known = self.is_settled || !is_settled(now);
        self.given.filter(|_| is_known).unwrap_or_default()
    }

    /// As the files are now, without opening them.
    fn look(&self, opener: &Opener) -> Result<Stamp, PathFault> {
        let opener = &self.opener(opener);
        let look = |path| look(opener, path);
        Ok((look(&self.path)?, self.key.as_deref().map(look).transpose()?))
    }

    /// What opens it: the files about names are the machine's.
    fn opener(&self, opener: &Opener) -> Opener {
        if self.is_of_names() { NamesFile::opener() } else { opener.clone() }
    }

    /// The files, and as they are now.
    fn open(&self, opener: &Opener) -> Result<(File, Option<File>, Stamp), PathFault> {
        let opener = &self.opener(opener);
        let (key, of_key) = self.key.as_deref().map(|path| open(opener, path)).transpose()?.unzip();
        let (file, version) = open(opener, &self.path)?;
        Ok((file, key, (version, of_key)))
    }

    /// Whether this signer's word was asked for; it is asked for once.
    ///
    /// SECURITY: each word is a line of the log, which one that was taken over would fill.
    fn is_owed_by(&mut self, signer: u64) -> bool {
        let found = self.owed.iter().position(|&owing| owing == signer);
        found.map(|at| self.owed.swap_remove(at)).is_some()
    }
}

/// All of them.
#[derive(Debug)]
pub(crate) struct FileReload {
    files: Vec<ReloadedFile>,
    /// Where each certificate is in `files`, by its site and number.
    certificates: BTreeMap<(u16, u16), usize>,
    every: Duration,
    next: Option<Instant>,
    /// When the files about names are looked at.
    next_names: Option<Instant>,
    /// Files that were written since they were read, until the launcher takes notice.
    written: Vec<Change>,
}

impl FileReload {
    pub(crate) fn of(config: &Config) -> Self {
        let (files, certificates, written) = (Vec::new(), BTreeMap::new(), Vec::new());
        let (every, next, next_names) = (Duration::ZERO, None, None);
        let mut none = Self { files, certificates, every, next, next_names, written };
        none.adopt(config);
        // Of those that a server starts with, or has had before an upgrade, nothing is said.
        none.files.iter_mut().for_each(|file| file.is_new = false);
        none
    }

    /// Looks at the files of this configuration from here on. Those that it shares with the one before are as they were.
    pub(crate) fn adopt(&mut self, config: &Config) {
        let opener = &Opener::of(&config.dir);
        let mut before = std::mem::take(&mut self.files).into_iter().peekable();
        let are_looked_up =
            stapler::is_wanted(config) || config.sites.iter().any(|site| names::has_named_servers(site));
        let names = NamesFile::ALL.into_iter().filter(|_| are_looked_up);
        let names = names.map(|which| ReloadedFile::new(Purpose::Names(which), which.path().into()));
        // Both are in the order of the sites.
        let mut old = take_of(&mut before, None);
        let mut files: Vec<ReloadedFile> = names.map(|new| new.or_as_before(&mut old, opener)).collect();
        for (site, about) in (0u16..).zip(&config.sites) {
            let mut old = take_of(&mut before, Some(site));
            let new = files_of(site, about).into_iter();
            files.extend(new.map(|new| new.or_as_before(&mut old, opener)));
        }
        self.every = Duration::from_millis(config.tls.reread_ms.into());
        let next = Instant::now() + self.every;
        // Not later than it was to be: whoever reloads all the time does not put it off.
        self.next = (!files.is_empty()).then(|| self.next.map_or(next, |before| before.min(next)));
        let next = Instant::now() + NAMES_EVERY.min(self.every);
        let has_names = files.iter().any(ReloadedFile::is_of_names);
        self.next_names = has_names.then(|| self.next_names.map_or(next, |before| before.min(next)));
        let certificates = files.iter().enumerate().filter_map(|(at, place)| match place.purpose {
            Purpose::Certificate { site, number } => Some(((site, number), at)),
            _ => None,
        });
        self.certificates = certificates.collect();
        self.files = files;
    }

    /// Has the files looked at at once: who has a configuration read again has changed something.
    pub(crate) fn look_soon(&mut self) {
        self.next = self.next.map(|_| Instant::now());
    }

    /// Each certificate: its site and number, its file, and what the signer has said of it.
    pub(crate) fn certificates(&self) -> impl Iterator<Item = ((u16, u16), &Path, Verdict, Holding)> {
        self.certificates.iter().map(|(&id, &at)| {
            let ReloadedFile { path, said: (verdict, holding), .. } = &self.files[at];
            (id, &**path, *verdict, *holding)
        })
    }

    /// Whether a site has a certificate of this number.
    pub(crate) fn has_certificate(&self, id: (u16, u16)) -> bool {
        self.certificates.contains_key(&id)
    }
}

impl Component for FileReload {
    fn deadline(&self) -> Option<Instant> {
        self.next.into_iter().chain(self.next_names).min()
    }

    /// Looks whether files have changed.
    fn on_time(&mut self, supervisor: &mut Supervisor, now: Instant) {
        let is_due =
            |next: Option<Instant>| next.is_some_and(|next| next <= now) && !supervisor.is_stopping();
        let (is_time, names_due) = (is_due(self.next), is_due(self.next_names));
        // What others have opened is looked at when it has come; that is asked for again when it is time.
        let files_due = supervisor.take_opened() || is_time;
        if !files_due && !names_due {
            return;
        }
        if is_time {
            self.next = Some(now + self.every);
        }
        if names_due {
            self.next_names = Some(now + NAMES_EVERY.min(self.every));
        }
        let opener = supervisor.context().opener();
        supervisor.context().opened.take_looked();
        let (mut read, mut there) = (BTreeMap::new(), BTreeMap::new());
        for place in 0..self.files.len() {
            let file = &self.files[place];
            if !(if file.is_of_names() { names_due } else { files_due }) {
                continue;
            }
            match file.look(&opener) {
                Ok(found) => {
                    let id = file.purpose.id(&file.path);
                    read.insert(id.clone(), file.known(&found));
                    there.insert(id, found);
                }
                Err(fault) if fault.is_remote() => {}
                Err(fault) => self.complain(supervisor, place, &fault.to_string()),
            }
            self.object(supervisor, place);
        }
        if is_time {
            let looked = supervisor.context().opened.take_looked();
            supervisor.open_again(looked, now);
        }
        self.written = plan_files(&read, &there);
    }

    fn on_exit(&mut self, supervisor: &mut Supervisor, ended: &mut Ended) {
        // There may be thousands of files.
        if supervisor.spec(ended.process.slot).role == Role::Signer {
            self.files.iter_mut().for_each(|place| place.owed.retain(|&signer| signer != ended.serial));
        }
    }
}

impl FileReload {
    /// The files that were written since they were read, once.
    pub(crate) fn take_written(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.written)
    }

    /// Has those who use a file read it again.
    pub(crate) fn reread(&mut self, supervisor: &mut Supervisor, file: &FileId) {
        let place = self.files.iter().position(|known| known.purpose.id(&known.path) == *file);
        if let Some(place) = place {
            let _ = self.give(supervisor, place, &self.readers(supervisor, place));
        }
    }

    /// Gives a new signer every certificate, the channels being made elsewhere. Returns what cannot be opened.
    pub(crate) fn configure_signer(&mut self, supervisor: &mut Supervisor, signer: u64) -> Vec<String> {
        let unread = self.tell_signer(supervisor, signer, &|_| true);
        supervisor.send(signer, &LauncherToSigner::Begin {}, None);
        unread
    }

    /// Tells a signer of these sites, and gives it their certificates. Returns what cannot be opened.
    pub(crate) fn tell_signer(
        &mut self,
        supervisor: &mut Supervisor,
        signer: u64,
        is_meant: &dyn Fn(u16) -> bool,
    ) -> Vec<String> {
        let sites = (0u16..).zip(&supervisor.context().config.sites);
        let sites = sites.filter(|(site, about)| about.tls.is_some() && is_meant(*site));
        let hosts = sites.clone().flat_map(|(site, about)| {
            about.hosts.iter().map(move |host| LauncherToSigner::Host { site, host: Text::new(host) })
        });
        let named = sites
            .clone()
            .map(|(site, about)| LauncherToSigner::Name { site, name: Text::new(about.name.as_str()) });
        for message in named.chain(hosts).collect::<Vec<_>>() {
            supervisor.send(signer, &message, None);
        }
        let is_its =
            |purpose: &Purpose| matches!(purpose, Purpose::Certificate { site, .. } if is_meant(*site));
        self.give_all(supervisor, signer, is_its)
    }

    fn give_all(
        &mut self,
        supervisor: &mut Supervisor,
        reader: u64,
        fits: impl Fn(&Purpose) -> bool,
    ) -> Vec<String> {
        let places = (0..self.files.len()).filter(|&place| fits(&self.files[place].purpose));
        let places = places.collect::<Vec<_>>().into_iter();
        places.filter_map(|place| self.give(supervisor, place, &[reader]).err()).collect()
    }

    /// Those who read a file.
    fn readers(&self, supervisor: &Supervisor, place: usize) -> Vec<u64> {
        match &self.files[place].purpose {
            Purpose::Certificate { .. } => supervisor.active(Role::Signer, None),
            Purpose::Names(_) => supervisor.users_of_names(),
            Purpose::Data { site, number, .. } => {
                let proxies = supervisor.active(Role::DataProxy, None).into_iter();
                let is_its = |proxy: &u64| {
                    let spec = supervisor.spec_of(*proxy);
                    (spec.site, spec.index) == (*site, usize::from(*number))
                };
                proxies.filter(is_its).collect()
            }
            Purpose::Site(site, _) => {
                let workers = supervisor.active(Role::Site, None).into_iter();
                workers.filter(|worker| supervisor.spec_of(*worker).site == *site).collect()
            }
        }
    }

    /// Opens a file and hands it over; whatever is wrong with it, the others go on.
    fn give(&mut self, supervisor: &mut Supervisor, place: usize, readers: &[u64]) -> Result<(), String> {
        let purpose = self.files[place].purpose.clone();
        let opener = supervisor.context().opener();
        match self.files[place].open(&opener) {
            Ok(first) => {
                self.files[place].is_settled = is_settled(&first.2);
                self.files[place].given = Some(first.2);
                let mut first = Some(first);
                for &reader in readers {
                    // Each reads from the beginning: copies of a descriptor have one place in the file.
                    let opened = first.take().or_else(|| self.files[place].open(&opener).ok());
                    let Some((file, key, _)) = opened else { continue };
                    let file = Some(OwnedFd::from(file));
                    match &purpose {
                        &Purpose::Certificate { site, number } => {
                            self.files[place].owed.push(reader);
                            if let Some(key) = key {
                                let message = LauncherToSigner::Key { site, number };
                                supervisor.send(reader, &message, Some(key.into()));
                            }
                            supervisor.send(reader, &LauncherToSigner::Certificate { site, number }, file);
                        }
                        Purpose::Site(_, message) => supervisor.send(reader, message, file),
                        Purpose::Data { told, .. } => supervisor.send(reader, told, file),
                        Purpose::Names(which) => {
                            file.into_iter().for_each(|file| supervisor.hand_names(reader, *which, file));
                        }
                    }
                }
                Ok(())
            }
            // It is given when it has been opened, which is begun with the next look.
            Err(fault) if fault.is_remote() => {
                self.look_soon();
                Ok(())
            }
            Err(error) => {
                self.complain(supervisor, place, &error.to_string());
                Err(format!("{}: {error}", self.about(supervisor, place).unwrap_or_default()))
            }
        }
    }

    /// Says what is wrong with a file, if it is one that the operator has named.
    fn complain(&mut self, supervisor: &mut Supervisor, place: usize, what: &str) {
        if let Some(about) = self.about(supervisor, place) {
            supervisor.warn(format!("{about}: {what}"));
        }
    }

    fn about(&self, supervisor: &Supervisor, place: usize) -> Option<String> {
        let ReloadedFile { purpose, path, key: private, .. } = &self.files[place];
        let (key, site) = purpose.named()?;
        let name = &supervisor.context().config.sites[usize::from(site)].name;
        let key = if private.is_some() { "certificate" } else { key };
        let private = private.iter().map(|private| format!(" with the key {}", private.display()));
        Some(format!("`{key}` {}{} of site {name}", path.display(), private.collect::<String>()))
    }

    /// Says what is new of what clients have against a certificate: at the start, when it is read again, and in its
    /// last days.
    fn object(&mut self, supervisor: &mut Supervisor, place: usize) {
        let ReloadedFile { said: (_, holding), objected, .. } = &mut self.files[place];
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let found: Vec<Objection> = holding.objections(now).collect();
        let before = std::mem::replace(objected, found.clone());
        for objection in found.into_iter().filter(|one| !before.contains(one)) {
            self.complain(supervisor, place, &format!("it {}; {}", objection.words(), objection.remedy()));
        }
    }

    /// Takes a signer's word about a file. What is wrong, if the signer cannot use a file of which no other signer has said
    /// so, or is to take the place of another: that one goes on with what it has, which would go with it.
    pub(crate) fn on_certificate(
        &mut self,
        supervisor: &mut Supervisor,
        serial: u64,
        id: (u16, u16),
        verdict: Verdict,
        holding: Holding,
    ) -> Option<String> {
        let place = self.certificates.get(&id).copied();
        let place = place.filter(|&place| self.files[place].is_owed_by(serial));
        let is_successor = supervisor.is_successor(serial);
        let (mut worse, mut is_news) = (None, false);
        if let Some(place) = place {
            let file = &mut self.files[place];
            // A new signer reads all files, most of which are as they were: of them there is nothing to say.
            is_news = supervisor.process(serial).is_some_and(|signer| signer.stage == Stage::Serving)
                || verdict == Verdict::Good && std::mem::take(&mut file.is_new)
                || file.is_judged && file.said != (verdict, holding);
            let was_bad = file.is_judged && file.said.0 != Verdict::Good;
            (file.said, file.is_judged) = ((verdict, holding), true);
            if verdict != Verdict::Good && (is_successor || !was_bad) {
                let about = self.about(supervisor, place).unwrap_or_default();
                worse = Some(match is_successor {
                    true => format!("{about} {}{GOES_ON}", verdict.words()),
                    false => format!("{about}: the file {}", verdict.words()),
                });
            }
        }
        match place {
            Some(place) if verdict == Verdict::Good && !is_news => self.object(supervisor, place),
            Some(place) if verdict == Verdict::Good => {
                if let Some(about) = self.about(supervisor, place).filter(|_| supervisor.is_announced()) {
                    supervisor.info(format!("{about} is in use"));
                }
                self.files[place].objected.clear();
                self.object(supervisor, place);
            }
            Some(_) if is_successor => worse.iter().for_each(|what| supervisor.warn(what.clone())),
            Some(place) => {
                let what =
                    format!("the file {}; the site goes on without it, or with what it had", verdict.words());
                self.complain(supervisor, place, &what);
            }
            // Nobody asked.
            None => supervisor.protocol_violation(serial),
        }
        worse
    }
}

/// The files of a site.
fn files_of(site: u16, about: &Site) -> Vec<ReloadedFile> {
    let certificates = (0u16..).zip(about.tls.iter().flat_map(|tls| &tls.certificates));
    let certificates = certificates.map(|(number, files)| {
        let purpose = Purpose::Certificate { site, number };
        let file = ReloadedFile::new(purpose, files.certificate.clone());
        ReloadedFile { key: files.key.clone(), ..file }
    });
    let others = for_workers(about).into_iter();
    let others = others.map(|(told, path)| ReloadedFile::new(Purpose::Site(site, told), path));
    let of_data = (0u16..).zip(&about.data).flat_map(|(number, data)| {
        let files = for_data_proxy(data).into_iter();
        files.map(move |(told, path)| ReloadedFile::new(Purpose::Data { site, number, told }, path))
    });
    certificates.chain(others).chain(of_data).collect()
}

/// Those that are next, as far as they are of this site, or of none.
fn take_of(
    files: &mut std::iter::Peekable<impl Iterator<Item = ReloadedFile>>,
    site: Option<u16>,
) -> Vec<ReloadedFile> {
    let is_of_site = |file: &ReloadedFile| file.purpose.named().map(|(_, site)| site) <= site;
    std::iter::from_fn(|| files.next_if(is_of_site)).collect()
}

/// Whether one more change of the files would be seen.
fn is_settled((file, key): &Stamp) -> bool {
    let now = SystemTime::now();
    [Some(file), key.as_ref()].into_iter().flatten().all(|version| version.is_settled(now, SETTLED_AFTER))
}

/// As a file is now, without opening it.
fn look(opener: &Opener, path: &Path) -> Result<FileVersion, PathFault> {
    Ok(FileVersion::from(&opener.look(Class::Private, path)?.stat))
}

/// A file, and its version before it was opened: what is written meanwhile is another one.
fn open(opener: &Opener, path: &Path) -> Result<(File, FileVersion), PathFault> {
    let found = opener.look(Class::Private, path)?;
    found.check_owner()?;
    Ok((found.open_file()?, FileVersion::from(&found.stat)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_read_in_the_tick_of_its_change_is_read_once_more() {
        let changed_at = |changed_ns| (FileVersion { changed_ns, ..FileVersion::default() }, None);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as i64;
        let mut file = ReloadedFile::new(Purpose::Names(NamesFile::ALL[0]), "file".into());
        for (version, was_settled, is_read) in [
            (changed_at(1), true, true),
            (changed_at(1), false, false),
            // It waits until it can be told.
            (changed_at(now + 1_000_000_000), false, true),
        ] {
            (file.given, file.is_settled) = (Some(version), was_settled);
            assert_eq!(file.known(&version) == version, is_read);
        }
    }
}
