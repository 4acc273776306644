//! Files of sites: as they are found, decoded, and remembered once all in them was found right.
//!
//! Runs in: the launcher (root) and the `bulkhead` command. Input: the operator's files. Must never: take a file for
//! what it was that may have changed since.

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use sys::file_version::FileVersion;

use crate::diagnostic::Text;
use crate::raw::site::RawSite;
use crate::schema::{self, Site};

/// A file of sites.
#[derive(Clone)]
pub(crate) struct SiteFile {
    pub(crate) path: Rc<Path>,
    pub(crate) stamp: FileVersion,
    /// Whether whoever watches the folder sees each change: a link leads elsewhere, and a file of two names can be
    /// written under the other one.
    pub(crate) is_seen: bool,
    pub(crate) content: Content,
}

/// What there is of a file of sites.
#[derive(Clone)]
pub(crate) enum Content {
    /// Its text.
    Text(Rc<str>),
    /// A text that runs, and was found right before that.
    Running(Rc<str>),
    /// What was made of it before.
    Known(Rc<KnownFile>),
}

/// A file of sites, decoded.
#[derive(Clone)]
pub(crate) struct ReadFile {
    pub(crate) path: Rc<Path>,
    pub(crate) stamp: FileVersion,
    /// Whether whoever watches the folder sees each change of the file.
    pub(crate) is_seen: bool,
    pub(crate) text: Rc<Text>,
    pub(crate) sites: Vec<Rc<RawSite>>,
    /// What was remembered of it, if it has not changed.
    pub(crate) known: Option<Rc<KnownFile>>,
}

/// A file of sites that was found right.
#[cfg_attr(test, derive(Clone))]
pub(crate) struct KnownFile {
    pub(crate) path: Rc<Path>,
    pub(crate) stamp: FileVersion,
    /// Whether any other change would have had another stamp.
    pub(crate) is_settled: bool,
    pub(crate) is_seen: bool,
    pub(crate) text: Rc<Text>,
    pub(crate) sites: Vec<(Rc<RawSite>, Arc<Site>)>,
    /// As the configuration names it.
    pub(crate) listed: Arc<schema::SiteFile>,
}

/// A file, and its text.
pub(crate) type TextFile = (Rc<Path>, Rc<Text>);

impl KnownFile {
    /// The file, and its text.
    pub(crate) fn text_file(&self) -> TextFile {
        (self.path.clone(), self.text.clone())
    }

    /// Whether the file, which has this stamp now, is as it was.
    pub(crate) fn is_as(&self, stamp: &FileVersion) -> bool {
        self.is_settled && self.stamp == *stamp
    }
}

/// How many of all sites are in the main file: the first ones, before those of these files.
pub(crate) fn in_main(files: &[ReadFile], sites: usize) -> usize {
    sites - files.iter().map(|file| file.sites.len()).sum::<usize>()
}
