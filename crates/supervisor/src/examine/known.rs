//! Certificates that the signer has read, and that are still as they were: nobody has to read them to know that they
//! can be used.
//!
//! Runs in: the launcher, as root, and its copies. Sees: versions of files. Never: takes a file for one that the signer
//! has found good if it has another version, or might have had another content under this one.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use config::Versions;
use sys::file_version::FileVersion;
use wire::tls::KeyKind;

use crate::change::plan::Stamp;

/// A certificate that the signer has read.
#[derive(Clone, Copy, Debug)]
pub struct KnownCertificate<'k> {
    /// Its file.
    pub path: &'k Path,
    /// The file of its key, if that is another one.
    pub key: Option<&'k Path>,
    /// As both were when the signer has read them.
    pub stamp: Stamp,
    /// The kind of its key.
    pub kind: KeyKind,
}

/// Some of them.
#[derive(Debug, Default)]
pub struct KnownCertificates<'k> {
    known: HashMap<(&'k Path, Option<&'k Path>), (Stamp, KeyKind)>,
    of_others: OfOthers,
}

/// The treatment of certificates that are not known as they are now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum OfOthers {
    /// They are read.
    #[default]
    Read,
    /// They are left to the signer, and of those that are known one of each kind of key is read.
    LeftToSigner,
}

impl<'k> KnownCertificates<'k> {
    /// All of these.
    pub fn of(known: impl IntoIterator<Item = KnownCertificate<'k>>) -> Self {
        let known = known.into_iter().map(|one| ((one.path, one.key), (one.stamp, one.kind)));
        Self { known: known.collect(), of_others: OfOthers::Read }
    }

    /// The same for the trial of a signer of another version, which has to show that it can read keys of each kind. A
    /// file that has changed since says nothing of the program: its site alone hears of that, from the signer.
    pub fn for_trial(known: impl IntoIterator<Item = KnownCertificate<'k>>) -> Self {
        Self { of_others: OfOthers::LeftToSigner, ..Self::of(known) }
    }

    /// Whether a certificate has to be read, with the file of its key; asked of one after the other.
    pub(super) fn unread(&self, versions: &mut Versions<'_>) -> impl FnMut(&Path, Option<&Path>) -> bool {
        let mut kinds = HashSet::new();
        move |path, key| match self.of_others {
            OfOthers::Read => self.kind(versions, path, key).is_none(),
            OfOthers::LeftToSigner => self.kind(versions, path, key).is_some_and(|kind| kinds.insert(kind)),
        }
    }

    /// The kind of the key, if a certificate and its key are known as they are now.
    fn kind(&self, versions: &mut Versions<'_>, path: &Path, key: Option<&Path>) -> Option<KeyKind> {
        let ((own, of_key), kind) = self.known.get(&(path, key))?;
        let mut is_as =
            |path: &Path, known: &FileVersion| versions.of(path).is_ok_and(|version| version == *known);
        let is_known =
            is_as(path, own) && key.zip(of_key.as_ref()).is_none_or(|(key, known)| is_as(key, known));
        is_known.then_some(*kind)
    }
}

#[cfg(test)]
mod tests {
    use config::Opener;

    use super::*;

    #[test]
    fn what_has_changed_is_not_known_and_one_of_each_kind_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let paths = ["a", "b", "c"].map(|name| folder.path().join(name));
        paths.iter().for_each(|path| std::fs::write(path, "one").unwrap());
        let version = |path: &Path| FileVersion::of(&path.metadata().unwrap());
        let [a, b, c] = &paths;
        let certificates = || {
            let one = |path, kind| KnownCertificate { path, key: None, stamp: (version(path), None), kind };
            let key = (Some(&**c), (version(b), Some(version(c))));
            let two = KnownCertificate { path: b, key: key.0, stamp: key.1, kind: KeyKind::Rsa };
            [one(a, KeyKind::P256), one(c, KeyKind::P256), two]
        };
        let opener = Opener::of(folder.path());
        let unread = |known: &KnownCertificates<'_>| {
            let all = [(&**a, None), (&**c, None), (&**b, Some(&**c)), (&**b, None)];
            let mut versions = opener.versions();
            let mut is_unread = known.unread(&mut versions);
            let places = all.iter().enumerate().filter(|(_, (path, key))| is_unread(path, *key));
            places.map(|(place, _)| place).collect::<Vec<_>>()
        };
        assert_eq!(unread(&KnownCertificates::of(certificates())), [3]);
        assert_eq!(unread(&KnownCertificates::for_trial(certificates())), [0, 2]);
        let before = certificates();
        std::fs::write(c, "other").unwrap();
        assert_eq!(unread(&KnownCertificates::of(before)), [1, 2, 3]);
        assert_eq!(unread(&KnownCertificates::for_trial(before)), [0]);
        assert_eq!(unread(&KnownCertificates::default()), [0, 1, 2, 3]);
    }
}
