//! The texts of thousands of files, in portions: a list that differs from another one in few files shares all other
//! portions with it.
//!
//! Runs in: the launcher (root), and the `bulkhead` command. Input: texts that were read. Must never: take two
//! portions for the same that are not one object.
//!
//! A list of its own for each change would count each text up, and that of the list before down: thousands of pages
//! of memory would be written to, each of which the kernel copies while a copy of the launcher shares it.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ffi::{OsStr, OsString};
use std::ops::Bound;
use std::rc::Rc;

use crate::known::{KnownFile, TextFile};

/// Files in one portion, at the most.
const PORTION: usize = 64;

/// Files in the order of their names. A clone shares them.
#[derive(Clone, Default)]
pub(crate) struct Portions(Rc<[Rc<[TextFile]>]>);

impl Portions {
    /// These files.
    pub(crate) fn of(files: impl Iterator<Item = TextFile>) -> Self {
        let files: Vec<TextFile> = files.collect();
        Self(files.chunks(PORTION).map(Rc::from).collect())
    }

    /// The same after nothing has changed but files of these names; `files` are those that there are now.
    pub(crate) fn changed(
        &self,
        names: &BTreeSet<OsString>,
        files: &BTreeMap<OsString, Rc<KnownFile>>,
    ) -> Self {
        if self.0.is_empty() {
            return Self::of(files.values().map(|file| file.text_file()));
        }
        let first = |portion: usize| self.0.get(portion)?.first()?.0.file_name();
        let place = |name: &OsString| {
            let after = self.0.partition_point(|portion| {
                portion.first().and_then(|(path, _)| path.file_name()) <= Some(name.as_os_str())
            });
            after.saturating_sub(1)
        };
        let places: BTreeSet<usize> = names.iter().map(place).collect();
        let mut portions = Vec::with_capacity(self.0.len() + 1);
        for (at, portion) in self.0.iter().enumerate() {
            if places.contains(&at) {
                let start = first(at).filter(|_| at > 0).map_or(Bound::Unbounded, Bound::Included);
                let end = first(at + 1).map_or(Bound::Unbounded, Bound::Excluded);
                let now = files.range::<OsStr, _>((start, end)).map(|(_, file)| file.text_file());
                portions.extend(Self::of(now).0.iter().cloned());
            } else {
                portions.push(portion.clone());
            }
        }
        Self(portions.into())
    }

    /// All files.
    pub(crate) fn files(&self) -> impl Iterator<Item = &TextFile> {
        self.0.iter().flat_map(|portion| portion.iter())
    }

    /// The files of portions that `other` does not have.
    pub(crate) fn files_beside<'p>(
        &'p self,
        other: Option<&Self>,
    ) -> impl Iterator<Item = &'p TextFile> + use<'p> {
        let address = |portion: &Rc<[TextFile]>| portion.as_ptr();
        let others: HashSet<*const TextFile> =
            other.iter().flat_map(|other| other.0.iter().map(address)).collect();
        self.0
            .iter()
            .filter(move |portion| !others.contains(&address(portion)))
            .flat_map(|portion| portion.iter())
    }

    /// Whether these are the same portions.
    pub(crate) fn is_one_with(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }
}
