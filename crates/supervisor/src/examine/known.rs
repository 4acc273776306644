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
pub struct KnownCertificates<'k>(HashMap<(&'k Path, Option<&'k Path>), Stamp>);

impl<'k> KnownCertificates<'k> {
    /// All of these.
    pub fn of(known: impl IntoIterator<Item = KnownCertificate<'k>>) -> Self {
        Self(known.into_iter().map(|one| ((one.path, one.key), one.stamp)).collect())
    }

    /// The same for a signer of another version, which has yet to show that it can read keys of each kind: one of each
    /// is left out.
    pub fn but_one_of_each_kind(known: impl IntoIterator<Item = KnownCertificate<'k>>) -> Self {
        let mut seen = HashSet::new();
        Self::of(known.into_iter().filter(|one| !seen.insert(one.kind)))
    }

    /// Whether a certificate and its key are known as they are now.
    pub(super) fn has(&self, versions: &mut Versions<'_>, path: &Path, key: Option<&Path>) -> bool {
        let Some((own, of_key)) = self.0.get(&(path, key)) else { return false };
        let mut is_as =
            |path: &Path, known: &FileVersion| versions.of(path).is_ok_and(|version| version == *known);
        is_as(path, own) && key.zip(of_key.as_ref()).is_none_or(|(key, known)| is_as(key, known))
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
        let found = |known: &KnownCertificates<'_>| {
            [(a, None), (c, None), (b, Some(&**c)), (b, None)]
                .map(|(path, key)| known.has(&mut opener.versions(), path, key))
        };
        assert_eq!(found(&KnownCertificates::of(certificates())), [true, true, true, false]);
        let some = KnownCertificates::but_one_of_each_kind(certificates());
        assert_eq!(found(&some), [false, true, false, false]);
        let before = certificates();
        std::fs::write(c, "other").unwrap();
        assert_eq!(found(&KnownCertificates::of(before)), [true, false, false, false]);
        assert_eq!(found(&KnownCertificates::default()), [false; 4]);
    }
}
