//! A judgement under way: what is known of each file, and what stands in for those that are left out.
//!
//! Runs in: the launcher (root), and the `bulkhead` command. Input: texts of files, which may have mistakes. Must
//! never: read a file twice for one judgement.

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::diagnostic::{Diagnostic, Text};
use crate::document;
use crate::known::{Content, SiteFile};
use crate::raw::site::RawSite;
use crate::source::Source;

/// What becomes of everything if one file of sites has a mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tolerance {
    /// That file is left out.
    EachFile,
    /// Nothing is taken in.
    AllOrNothing,
}

/// What files of sites were before they were changed.
#[derive(Clone, Copy)]
pub enum Before<'b> {
    /// Nothing is known of that.
    Nothing,
    /// What runs.
    Running(&'b Source),
    /// Copies of those that were good last, by the names of the files.
    Kept(&'b dyn Fn(&OsStr) -> Option<String>),
}

/// How files of sites are judged.
#[derive(Clone, Copy)]
pub struct Judgement<'j> {
    /// What they were.
    pub before: Before<'j>,
    /// What a mistake means for others.
    pub tolerance: Tolerance,
    /// The one file that is taken in; all others, and the main file, stay as they run.
    pub only: Option<&'j OsStr>,
    /// Files that are left out for something that is not in them, each with the reason.
    pub refused: &'j BTreeMap<OsString, String>,
}

/// Which certificates hosts have that are answered 503.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tls {
    /// Those that the file names.
    Theirs,
    /// None: something is wrong with them.
    None,
}

/// How far the search for something that stands in for a file has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SearchStage {
    Before,
    /// Nothing yet: when all others are settled, 503 for the hosts that none of them has.
    Waiting,
    Closed(Tls),
    Nothing,
}

/// A file that is left out.
pub(super) struct LeftFile {
    pub(super) stage: SearchStage,
    pub(super) content: Option<Content>,
    pub(super) reasons: Vec<String>,
}

/// A judgement under way.
pub(super) struct Judge<'j> {
    pub(super) judgement: &'j Judgement<'j>,
    pub(super) main: &'j str,
    pub(super) running: BTreeMap<OsString, (Rc<Path>, Rc<Text>)>,
    pub(super) folder: OnceCell<PathBuf>,
    /// The files as they are, once they were read.
    pub(super) found: RefCell<Option<BTreeMap<OsString, SiteFile>>>,
    pub(super) kept: RefCell<BTreeMap<OsString, Option<Rc<str>>>>,
    pub(super) left: BTreeMap<OsString, LeftFile>,
    pub(super) mistakes: Vec<(Diagnostic, Option<PathBuf>)>,
    /// Where each of these is: there may be many thousands.
    pub(super) places: HashMap<Diagnostic, usize>,
}

impl Judge<'_> {
    /// The copy of a file as it was good last.
    pub(super) fn kept(&self, name: &OsStr) -> Option<Rc<str>> {
        let Before::Kept(read) = self.judgement.before else { return None };
        let mut kept = self.kept.borrow_mut();
        kept.entry(name.to_owned()).or_insert_with(|| read(name).map(Rc::from)).clone()
    }

    /// The name of a file of the folder, by its path; `None` for the main file.
    pub(super) fn name_of(&self, file: &str) -> Option<OsString> {
        let path = Path::new(file);
        (path.parent() == self.folder.get().map(PathBuf::as_path))
            .then(|| path.file_name())?
            .map(OsStr::to_owned)
    }
}

/// The text of a file.
pub(super) fn text_of(content: &Content) -> Rc<str> {
    match content {
        Content::Text(text) | Content::Running(text) => text.clone(),
        Content::Known(known) => known.text.as_str().into(),
    }
}

/// The sites of a text as far as it can be read.
pub(super) fn readable(folder: &Path, name: &OsStr, text: &str) -> (Vec<RawSite>, bool) {
    document::readable(&folder.join(name), text)
}
