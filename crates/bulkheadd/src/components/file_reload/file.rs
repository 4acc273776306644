//! One file that is read again when it has changed: what it is for, and how it was when it was read last.
//!
//! Runs in: the launcher, as root. Sees: sizes and times of files that the operator named. Never: reads a byte of them.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use config::{Class, Neighbours, Opener, PathFault, Site, Versions};
use supervisor::change::FileId;
use supervisor::change::plan::Stamp;
use supervisor::setup::names::NamesFile;
use supervisor::setup::reloaded_files::{for_data_proxy, for_workers};
use sys::file_version::FileVersion;
use wire::LauncherToSite;
use wire::data::LauncherToDataProxy;
use wire::tls::{Holding, Verdict};

/// LIMIT: a file that was changed so lately when it was read is read once more, as another change might have the same
/// time: two ticks of the slowest clock of a file system.
const SETTLED_AFTER: Duration = Duration::from_millis(20);

/// What a file is for.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Purpose {
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
    pub(super) fn id(&self, path: &Path) -> FileId {
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
    pub(super) fn named(&self) -> Option<(&'static str, u16)> {
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

/// One of them.
#[derive(Debug)]
pub(super) struct ReloadedFile {
    pub(super) purpose: Purpose,
    pub(super) path: PathBuf,
    /// The file of the key, of a certificate that has one.
    pub(super) key: Option<PathBuf>,
    /// As they were when they were last given to those who read them.
    pub(super) given: Option<Stamp>,
    /// Whether any change since then has given them another version.
    pub(super) is_settled: bool,
    /// The signers that have yet to say what became of it.
    pub(super) owed: Vec<u64>,
    /// The signers that have begun without it, each with the reason.
    pub(super) lacking: Vec<(u64, String)>,
    /// Whether it was given last as a signer before has accepted it.
    pub(super) is_as_accepted: bool,
    /// What the signer has said last, if it is for one.
    pub(super) said: (Verdict, Holding),
    /// Whether a signer has said anything.
    pub(super) is_judged: bool,
    /// Whether the file has come with a reload, and no line says so yet.
    pub(super) is_new: bool,
    /// Until which second since 1970 what clients have against it was said, each objection once; `None` if nothing was
    /// yet.
    pub(super) objected_at: Option<u64>,
}

impl ReloadedFile {
    pub(super) fn new(purpose: Purpose, path: PathBuf) -> Self {
        let said = (Verdict::Unreadable, Holding::NOTHING);
        let (key, given, is_judged, is_settled) = (None, None, false, false);
        Self {
            purpose,
            path,
            key,
            given,
            is_settled,
            owed: Vec::new(),
            lacking: Vec::new(),
            is_as_accepted: false,
            said,
            is_judged,
            is_new: true,
            objected_at: None,
        }
    }

    /// What there was before of the same file; or the file itself, which its reader is sent when it starts, if it is no
    /// certificate.
    pub(super) fn or_as_before(self, before: &mut Vec<Self>, opener: &Opener) -> Self {
        let same =
            |old: &Self| old.purpose == self.purpose && (&old.path, &old.key) == (&self.path, &self.key);
        let is_certificate = matches!(self.purpose, Purpose::Certificate { .. });
        match before.iter().position(same) {
            Some(at) => before.swap_remove(at),
            None if is_certificate => self,
            None => self.given_at_start(opener),
        }
    }

    pub(super) fn is_of_names(&self) -> bool {
        matches!(self.purpose, Purpose::Names(_))
    }

    /// One that its reader is sent when it starts, as the file is now.
    fn given_at_start(self, opener: &Opener) -> Self {
        let given = self.look(&mut opener.versions()).ok();
        Self { given, is_settled: given.as_ref().is_none_or(is_settled), ..self }
    }

    /// What has been read, as far as it is known to be what is there now if it has this version still.
    pub(super) fn known(&self, now: &Stamp) -> Stamp {
        // One that was not there has been read as nothing.
        let is_known = self.is_settled || !is_settled(now);
        self.given.filter(|_| is_known).unwrap_or_default()
    }

    /// As the files are now, without opening them.
    pub(super) fn look(&self, versions: &mut Versions<'_>) -> Result<Stamp, PathFault> {
        if self.is_of_names() {
            return Ok((NamesFile::opener().versions().of(&self.path)?, None));
        }
        Ok((versions.of(&self.path)?, self.key.as_deref().map(|key| versions.of(key)).transpose()?))
    }

    /// The files, and as they are now. Those about names are the machine's.
    pub(super) fn open(&self, neighbours: &Neighbours<'_>) -> Result<(File, Option<File>, Stamp), PathFault> {
        if self.is_of_names() {
            let (file, version) = open(&NamesFile::opener().neighbours(), &self.path)?;
            return Ok((file, None, (version, None)));
        }
        let (key, of_key) = self.key.as_deref().map(|path| open(neighbours, path)).transpose()?.unzip();
        let (file, version) = open(neighbours, &self.path)?;
        Ok((file, key, (version, of_key)))
    }

    /// Whether a signer has found it good last.
    pub(super) fn is_accepted(&self) -> bool {
        self.is_judged && self.said.0 == Verdict::Good
    }

    /// A signer has ended.
    pub(super) fn forget_signer(&mut self, signer: u64) {
        self.owed.retain(|&owing| owing != signer);
        self.lacking.retain(|(lacking, _)| *lacking != signer);
    }

    /// Whether this signer's word was asked for; it is asked for once.
    ///
    /// SECURITY: each word is a line of the log, which one that was taken over would fill.
    pub(super) fn is_owed_by(&mut self, signer: u64) -> bool {
        let found = self.owed.iter().position(|&owing| owing == signer);
        found.map(|at| self.owed.swap_remove(at)).is_some()
    }
}

/// The files of a site.
pub(super) fn files_of(site: u16, about: &Site) -> Vec<ReloadedFile> {
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

/// Whether one more change of the files would be seen.
pub(super) fn is_settled((file, key): &Stamp) -> bool {
    let now = SystemTime::now();
    [Some(file), key.as_ref()].into_iter().flatten().all(|version| version.is_settled(now, SETTLED_AFTER))
}

/// A file, and its version before it was opened: what is written meanwhile is another one.
fn open(neighbours: &Neighbours<'_>, path: &Path) -> Result<(File, FileVersion), PathFault> {
    let found = neighbours.look(Class::Private, path)?;
    found.check_owner()?;
    Ok((found.open_file()?, FileVersion::from(&found.stat)))
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

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
