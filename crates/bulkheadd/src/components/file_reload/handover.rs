//! What the signer has said of certificates outlasts an upgrade, and who knows of it has fewer read.
//!
//! Runs in: the launcher, as root. Sees: the record of the launcher before. Never: takes over what was said of files
//! that the configuration does not name so.

use config::Config;
use supervisor::change::plan::Stamp;
use supervisor::examine::KnownCertificate;
use supervisor::upgrade::{Handed, Record};
use sys::file_version::FileVersion;
use wire::Text;
use wire::successor::{LauncherToSuccessor, NONE};
use wire::tls::Verdict;

use super::FileReload;
use super::file::{Purpose, ReloadedFile};

impl FileReload {
    /// Writes down what is known of each certificate that a signer has read.
    pub(crate) fn hand_over(&self, record: &mut Record<'_>) {
        for file in self.files.iter().filter(|file| file.is_judged) {
            let Purpose::Certificate { site, number } = file.purpose else { continue };
            let (verdict, holding) = file.said;
            record.add(LauncherToSuccessor::Certificate {
                site,
                number,
                path: Text::new(file.path.to_string_lossy()),
                key: Text::new(file.key.iter().map(|key| key.to_string_lossy()).collect::<String>()),
                given: file.given.as_ref().map_or_else(Vec::new, numbers),
                is_settled: file.is_settled,
                verdict,
                holding,
                owed: file.owed.clone(),
                objected_at: file.objected_at.unwrap_or(NONE),
            });
        }
    }

    /// Those of a configuration, and what the launcher before knew of them.
    pub(crate) fn resume(handed: &Handed, config: &Config) -> Self {
        let mut known = Self::of(config);
        for item in handed.items() {
            let LauncherToSuccessor::Certificate { site, number, path, key, .. } = item else { continue };
            let Some(place) = known.files.certificate((*site, *number)) else { continue };
            let file = &mut known.files[place];
            let is_key = match &file.key {
                Some(path) => path.as_os_str() == key.as_str(),
                None => key.as_str().is_empty(),
            };
            if is_key && file.path.as_os_str() == path.as_str() {
                file.take_over(item);
            }
        }
        known
    }

    /// Those of which the signer has said that they are good, as long as they are as they were then.
    pub(crate) fn known(&self) -> impl Iterator<Item = KnownCertificate<'_>> {
        let good = self.files.iter().filter(|file| {
            file.is_judged && file.said.0 == Verdict::Good && file.is_settled && file.owed.is_empty()
        });
        good.filter_map(|file| match (&file.purpose, file.given) {
            (Purpose::Certificate { .. }, Some(stamp)) => {
                let (path, key, kind) = (&*file.path, file.key.as_deref(), file.said.1.kind);
                Some(KnownCertificate { path, key, stamp, kind })
            }
            _ => None,
        })
    }
}

/// The same of a record, for whoever has no configuration yet.
pub(crate) fn known(handed: &Handed) -> impl Iterator<Item = KnownCertificate<'_>> {
    handed.items().filter_map(|item| match item {
        LauncherToSuccessor::Certificate {
            path,
            key,
            given,
            is_settled: true,
            verdict: Verdict::Good,
            holding,
            owed,
            ..
        } if owed.is_empty() => {
            let key = Some(key.as_str()).filter(|key| !key.is_empty()).map(AsRef::as_ref);
            let (path, stamp) = (path.as_str().as_ref(), stamp(given)?);
            Some(KnownCertificate { path, key, stamp, kind: holding.kind })
        }
        _ => None,
    })
}

impl ReloadedFile {
    fn take_over(&mut self, item: &LauncherToSuccessor) {
        let LauncherToSuccessor::Certificate {
            given, is_settled, verdict, holding, owed, objected_at, ..
        } = item
        else {
            return;
        };
        (self.said, self.is_judged) = ((*verdict, *holding), true);
        (self.given, self.is_settled) = (stamp(given), *is_settled);
        self.owed.clone_from(owed);
        self.objected_at = Some(*objected_at).filter(|at| *at != NONE);
    }
}

fn numbers((file, key): &Stamp) -> Vec<u64> {
    [Some(file), key.as_ref()].into_iter().flatten().flat_map(FileVersion::numbers).collect()
}

/// What these numbers stand for; nothing, if they are too few or too many.
fn stamp(numbers: &[u64]) -> Option<Stamp> {
    let version = |numbers: &[u64]| Some(FileVersion::of_numbers(numbers.try_into().ok()?));
    match numbers.len() {
        5 => Some((version(numbers)?, None)),
        10 => Some((version(&numbers[..5])?, Some(version(&numbers[5..])?))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_numbers_in_a_record() {
        let version = |first: u64| FileVersion::of_numbers([first, 2, 3, u64::MAX, 5]);
        for stamp_of in [(version(1), None), (version(1), Some(version(7)))] {
            assert_eq!(stamp(&numbers(&stamp_of)), Some(stamp_of));
        }
        assert_eq!([0, 1, 4, 6, 9, 11].map(|count| stamp(&vec![1; count])), [None; 6]);
    }
}
