//! Files of sites are judged one by one: one with a mistake is left out, and something stands in for it, so that all
//! others are taken in.
//!
//! Runs in: the launcher (root), and the `bulkhead` command. Input: the operator's files, and what these files were
//! before. Must never: have a file take what another file has; accept a mistake of the main file, or one that no file
//! alone is to blame for.
//!
//! A configuration is built as it always is. If there are mistakes, each has a file; all files that have mistakes of
//! their own are left out together, then those that want what another file has, one after the other, and the
//! configuration is built again, until nothing is wrong. What is the same for all is checked in the same way in each:
//! there is no second set of rules.

mod closed;
mod contest;
mod state;

use std::cell::{OnceCell, RefCell};
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use sys::file_version::FileVersion;
pub use wire::StandIn;

use crate::cache::Cache;
use crate::changed::{ChangedFiles, Unseen};
use crate::diagnostic::{Blame, Diagnostic, Diagnostics, Problems};
use crate::examine::Examine;
use crate::include;
use crate::judge::contest::Loser;
pub use crate::judge::state::{Before, Judgement, Tolerance};
use crate::judge::state::{Judge, LeftFile, SearchStage};
use crate::known::{Content, SiteFile};
use crate::paths::Opener;
use crate::place::At;
use crate::raw::RawConfig;
use crate::schema::Config;
use crate::source::Source;
use crate::{Built, changed, check_built, files, finish_built};

/// LIMIT: how often a configuration is built for one judgement; each time after the first, at least one file more is
/// left out, and most often all that are.
const BUILDS_MAX: usize = 64;

/// LIMIT: mistakes that are said of a file that is left out, in the log, in `status` and as the answer to an order.
const REASONS_MAX: usize = 10;
/// LIMIT: bytes of these.
const REASON_BYTES_MAX: usize = 8 << 10;

/// A configuration without what was left out.
#[derive(Debug)]
pub struct Judged {
    /// All that is taken in, and what stands in for the rest.
    pub config: Config,
    /// The texts of that.
    pub source: Source,
    /// The files that were left out, in the order of their names.
    pub left_out: Vec<LeftOut>,
    /// All mistakes that were found, each with the file that it leaves out, if that is known by itself.
    pub mistakes: Vec<(Diagnostic, Option<PathBuf>)>,
}

/// A file of sites that was left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// The file.
    pub file: PathBuf,
    /// What there is instead.
    pub stand_in: StandIn,
    /// The names of its sites, and its hosts, as far as they are known.
    pub sites: Vec<String>,
    /// The same.
    pub hosts: Vec<String>,
    /// Whether the file could be read to its end, so that it has no other hosts.
    pub is_whole: bool,
    /// Why, a line for each mistake.
    pub reason: String,
}

impl Config {
    /// The configuration without those files of sites that have a mistake. What was found right is kept in `cache`. If
    /// it is known which files can have changed, others are not looked at unless something is wrong.
    ///
    /// # Errors
    /// Every mistake found, if not all of them are to blame on files of sites, or if nothing is to be left out.
    pub fn judge(
        path: &Path,
        examine: &dyn Examine,
        (cache, changed): (&mut Cache, Option<&BTreeSet<OsString>>),
        judgement: &Judgement<'_>,
    ) -> Result<Judged, Diagnostics> {
        match quickly(path, examine, (cache, changed), judgement) {
            Some(found) => {
                let (config, source) = found.take_in(path, cache);
                Ok(Judged { config, source, left_out: Vec::new(), mistakes: Vec::new() })
            }
            None => Self::judge_all(path, examine, cache, judgement),
        }
    }

    /// The files that would be left out so. What has changed alone is not kept in `cache`, and nothing is made of it.
    ///
    /// # Errors
    /// As for `judge`.
    pub fn left_out(
        path: &Path,
        examine: &dyn Examine,
        (cache, changed): (&mut Cache, Option<&BTreeSet<OsString>>),
        judgement: &Judgement<'_>,
    ) -> Result<Vec<LeftOut>, Diagnostics> {
        match quickly(path, examine, (cache, changed), judgement) {
            Some(_) => Ok(Vec::new()),
            None => Self::judge_all(path, examine, cache, judgement).map(|judged| judged.left_out),
        }
    }

    fn judge_all(
        path: &Path,
        examine: &dyn Examine,
        cache: &mut Cache,
        judgement: &Judgement<'_>,
    ) -> Result<Judged, Diagnostics> {
        let name = path.display().to_string();
        let (text, dir) = match (judgement.only, judgement.before) {
            (Some(_), Before::Running(source)) => {
                (source.main.to_string(), source.path.parent().unwrap_or(Path::new("/")).to_owned())
            }
            _ => files::read(path, &name)?,
        };
        cache.begin(&text);
        let mut judge = Judge::new(judgement, &text);
        for (name, reason) in judgement.refused {
            judge.leave_out(name, reason.clone(), cache);
        }
        for _ in 0..BUILDS_MAX {
            let (problems, raw) = judge.build((&name, &dir), examine, cache);
            if !problems.is_empty() {
                judge.mistakes(&problems, cache)?;
                continue;
            }
            if judge.close(raw.as_ref()) {
                continue;
            }
            let Built { config, included, next } = finish_built(raw, &dir, problems)?;
            cache.keep(included, next, &config);
            let source = Source::of(path, &text, cache.texts());
            let left_out = judge.left_out();
            return Ok(Judged { config, source, left_out, mistakes: judge.mistakes });
        }
        let message = format!("too many files are in each other's way: it was tried {BUILDS_MAX} times");
        Err(Diagnostics::of_file(&name, message, "correct the files that `bulkhead check` names first"))
    }
}

/// What was changed alone, if nothing is wrong with that.
fn quickly(
    path: &Path,
    examine: &dyn Examine,
    (cache, changed): (&mut Cache, Option<&BTreeSet<OsString>>),
    judgement: &Judgement<'_>,
) -> Option<ChangedFiles> {
    if !judgement.refused.is_empty() {
        return None;
    }
    match (judgement.only, judgement.before) {
        (Some(only), Before::Running(source)) if cache.is_of(source) => {
            changed::check(path, examine, cache, (&BTreeSet::from([only.to_owned()]), Unseen::Known))
        }
        (Some(_), _) => None,
        (None, _) => changed::check(path, examine, cache, (changed?, Unseen::Looked)),
    }
}

impl<'j> Judge<'j> {
    fn new(judgement: &'j Judgement<'j>, main: &'j str) -> Self {
        let running = match judgement.before {
            Before::Running(source) => source.by_name(),
            Before::Nothing | Before::Kept(_) => BTreeMap::new(),
        };
        Self {
            judgement,
            main,
            running,
            folder: OnceCell::new(),
            found: RefCell::default(),
            kept: RefCell::default(),
            left: BTreeMap::new(),
            mistakes: Vec::new(),
            places: HashMap::new(),
        }
    }

    /// Builds the configuration of what is left.
    fn build(
        &self,
        (name, dir): (&str, &Path),
        examine: &dyn Examine,
        cache: &Cache,
    ) -> (Problems, Option<RawConfig>) {
        let mut problems = Problems::new(name, self.main);
        cache.next().into_iter().for_each(|next| problems.go_on_at(next));
        let opener = Opener::of(dir);
        let read =
            |folder: &At<PathBuf>, problems: &mut Problems| self.files(folder, (&opener, cache), problems);
        let raw = check_built(self.main, dir, &read, &mut problems, |raw, dir, problems| {
            files::check(raw, dir, problems);
            crate::examine::all(raw, dir, examine, problems);
        });
        (problems, raw)
    }

    /// The files that are taken in, and what stands in for others.
    fn files(
        &self,
        folder: &At<PathBuf>,
        (opener, cache): (&Opener, &Cache),
        problems: &mut Problems,
    ) -> Vec<SiteFile> {
        let _ = self.folder.set(folder.value.clone());
        let mut found = self.found.borrow_mut();
        let found = found.get_or_insert_with(|| {
            let read = include::read(folder, (opener, self.judgement.only), cache, problems).into_iter();
            // Why those cannot be read that are left out is known.
            let is_out = |file: &str| self.name_of(file).is_some_and(|name| self.left.contains_key(&name));
            problems.forget_of(&is_out);
            let mut found: BTreeMap<OsString, SiteFile> =
                read.filter_map(|file| Some((file.path.file_name()?.to_owned(), file))).collect();
            if let Some(only) = self.judgement.only {
                let others = self.running.keys().filter(|name| *name != only);
                found.extend(others.filter_map(|name| {
                    let content = self.running_content(name, cache)?;
                    Some((name.clone(), stand_in(&folder.value, name, content)))
                }));
            }
            found
        });
        let names: BTreeSet<&OsString> = found.keys().chain(self.left.keys()).collect();
        let file = |name: &OsString| match self.left.get(name) {
            None => found.get(name).cloned(),
            Some(left) => left.content.clone().map(|content| stand_in(&folder.value, name, content)),
        };
        names.into_iter().filter_map(file).collect()
    }

    /// What runs of a file.
    fn running_content(&self, name: &OsStr, cache: &Cache) -> Option<Content> {
        let (_, text) = self.running.get(name)?;
        let known = cache.file(name).filter(|known| known.text.as_str() == text.as_str());
        let is_same = matches!(self.judgement.before, Before::Running(source) if *source.main == *self.main);
        Some(match known {
            Some(known) => Content::Known(known.clone()),
            None if is_same => Content::Running(text.as_str().into()),
            // Under another main file something else may be right.
            None => Content::Text(text.as_str().into()),
        })
    }

    /// Leaves files out that have mistakes.
    fn mistakes(&mut self, problems: &Problems, cache: &Cache) -> Result<(), Diagnostics> {
        let blames = problems.blames();
        let all = blames.iter().map(|blame| blame.diagnostic.clone());
        for one in problems.in_order(all.collect()) {
            if let Entry::Vacant(place) = self.places.entry(one) {
                self.mistakes.push((place.key().clone(), None));
                place.insert(self.mistakes.len() - 1);
            }
        }
        if self.judgement.tolerance == Tolerance::AllOrNothing {
            return Err(self.all_mistakes());
        }
        let (contests, own): (Vec<Blame>, Vec<Blame>) =
            blames.into_iter().partition(|blame| blame.is_contest());
        let (of_files, of_main): (Vec<Blame>, Vec<Blame>) =
            own.into_iter().partition(|blame| self.name_of(&blame.file).is_some());
        let losers = match (of_files.is_empty(), of_main.is_empty()) {
            // One of these may be why something is wrong with the whole: a file can have more sites than there are
            // uids.
            (false, _) => of_files.into_iter().map(Loser::of).collect(),
            (true, false) => return Err(self.all_mistakes()),
            (true, true) => self.losers(contests),
        };
        let mut reasons: BTreeMap<OsString, Vec<Diagnostic>> = BTreeMap::new();
        for Loser { file, reason, found } in losers {
            let name = self.name_of(&file).ok_or_else(|| self.all_mistakes())?;
            if let Some(&place) = self.places.get(&found) {
                self.mistakes[place].1 = Some(PathBuf::from(&file));
            }
            reasons.entry(name).or_default().push(reason);
        }
        for (name, why) in reasons {
            if !self.leave_out(&name, in_short(&why), cache) {
                return Err(self.all_mistakes());
            }
        }
        Ok(())
    }

    fn all_mistakes(&self) -> Diagnostics {
        Diagnostics(self.mistakes.iter().map(|(mistake, _)| mistake.clone()).collect())
    }

    /// Leaves a file out, or what stands in for it. Whether there is something else to be tried.
    fn leave_out(&mut self, name: &OsStr, reason: String, cache: &Cache) -> bool {
        let stage = self.left.get(name).map(|left| left.stage);
        let (next, content) = match (stage, self.judgement.before) {
            (None, Before::Running(_)) => match self.running_content(name, cache) {
                Some(content) => (SearchStage::Before, Some(content)),
                None => (SearchStage::Nothing, None),
            },
            (None, Before::Kept(_)) => match self.kept(name) {
                Some(text) => (SearchStage::Before, Some(Content::Text(text))),
                None => (SearchStage::Waiting, None),
            },
            (None, Before::Nothing) => (SearchStage::Nothing, None),
            (Some(SearchStage::Before), Before::Kept(_)) => (SearchStage::Waiting, None),
            (Some(SearchStage::Closed(state::Tls::Theirs)), _) => {
                (SearchStage::Closed(state::Tls::None), self.closed_again(name))
            }
            (Some(SearchStage::Closed(state::Tls::None)), _) => (SearchStage::Nothing, None),
            (Some(SearchStage::Before | SearchStage::Waiting | SearchStage::Nothing), _) => return false,
        };
        let left = self.left.entry(name.to_owned());
        let left = left.or_insert_with(|| LeftFile { stage: next, content: None, reasons: Vec::new() });
        // What was wrong with something that was to stand in is nothing that the operator has to correct.
        if stage.is_none() {
            left.reasons.push(reason);
        }
        (left.stage, left.content) = (next, content);
        true
    }

    /// All that was left out.
    fn left_out(&self) -> Vec<LeftOut> {
        let folder = self.folder.get().cloned().unwrap_or_default();
        let left = self.left.iter().map(|(name, left)| {
            let file = folder.join(name);
            let (sites, hosts, is_whole) = self.said_of(name, left);
            let stand_in = match (left.stage, self.judgement.before) {
                (SearchStage::Before, _) if left.content.as_ref().is_some_and(closed::is_closed) => {
                    StandIn::Unavailable
                }
                (SearchStage::Before, Before::Running(_)) => StandIn::Running,
                (SearchStage::Before, _) => StandIn::LastGood,
                (SearchStage::Closed(_), _) => StandIn::Unavailable,
                (SearchStage::Waiting | SearchStage::Nothing, _) => StandIn::Nothing,
            };
            LeftOut { file, stand_in, sites, hosts, is_whole, reason: left.reasons.join("\n") }
        });
        left.collect()
    }
}

/// Why a file is left out: its first mistakes, and how many more there are.
fn in_short(mistakes: &[Diagnostic]) -> String {
    let said: Vec<String> = mistakes.iter().take(REASONS_MAX).map(ToString::to_string).collect();
    let mut said = said.join("\n");
    // A path is said as a whole, however long it is.
    said.truncate(said.floor_char_boundary(REASON_BYTES_MAX));
    let more = mistakes.len().saturating_sub(REASONS_MAX);
    if more > 0 {
        said += &format!("\nand {more} more mistakes, which `bulkhead check` says");
    }
    said
}

/// What is in the place of a file. No version of the file is this one, so that it is read again the next time.
fn stand_in(folder: &Path, name: &OsStr, content: Content) -> SiteFile {
    let path = folder.join(name).into();
    SiteFile { path, stamp: FileVersion::default(), is_seen: false, content }
}

impl Blame {
    /// Whether two files want the same.
    fn is_contest(&self) -> bool {
        self.conflict.as_ref().is_some_and(|rival| rival.file != self.file)
    }
}

impl Problems {
    /// Mistakes by the places where they are.
    fn in_order(&self, mut mistakes: Vec<Diagnostic>) -> Vec<Diagnostic> {
        let files = self.files();
        let places: HashMap<&str, usize> =
            files.iter().enumerate().rev().map(|(at, file)| (*file, at)).collect();
        let place =
            |one: &Diagnostic| (places.get(&*one.file).copied().unwrap_or(files.len()), one.line, one.column);
        mistakes.sort_by_key(place);
        mistakes
    }
}

#[cfg(test)]
mod tests;
