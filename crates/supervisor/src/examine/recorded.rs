//! What was found in the files and folders of a configuration by another process: recorded there, and given back here.
//!
//! Runs in: the launcher, as root, and a copy of it that examines. Sees: items that the copy has written. Never: looks
//! at a file, or lets something pass that nobody has looked at.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::os::unix::ffi::OsStrExt as _;

use config::{Examine, Finding, Setting, Severity, Subject};
use wire::examination::{
    ConfigurationToLauncher as Item, RemoteFiles, SUBJECTS_MAX, read_items, write_items,
};
use wire::{Bytes, NUMBERS_MAX, Text};

use super::finding::error;

/// Names of files of sites that are left out, each with the reason.
pub type Refused = BTreeMap<OsString, String>;

/// What a configuration has come to in another process.
#[derive(Debug, Default)]
pub struct Loaded {
    /// The files of sites that were left out.
    pub left_out: Refused,
    /// The files that may be others than those that were read last; `None` if it can be any.
    pub changed: Option<BTreeSet<OsString>>,
}

/// The number of each subject, made of all that is asked of it: equal ones are told apart by their order.
fn numbers(subjects: &[Subject<'_>]) -> Vec<u64> {
    let mut seen: HashMap<u64, u32> = HashMap::new();
    let mut numbers = Vec::with_capacity(subjects.len());
    for subject in subjects {
        let question = (subject.key, subject.path, format!("{:?}", subject.content));
        let before = seen.entry(hash(&question)).or_default();
        *before += 1;
        numbers.push(hash(&(question, *before)));
    }
    numbers
}

fn hash(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

/// Examines as another one does, and remembers what that has found.
pub struct Recording<'e> {
    examine: &'e dyn Examine,
    found: RefCell<BTreeMap<u64, Vec<Finding>>>,
}

impl<'e> Recording<'e> {
    /// Remembers what `examine` finds.
    pub fn of(examine: &'e dyn Examine) -> Self {
        Self { examine, found: RefCell::default() }
    }

    /// All of that, as it is said; with what has become of files that may not answer, and the mistakes that are known
    /// of by that.
    pub fn to_bytes(&self, files: RemoteFiles, mistakes: Option<&str>, loaded: &Loaded) -> Vec<u8> {
        let found = self.found.borrow();
        let subjects: Vec<u64> = found.keys().copied().collect();
        let subjects =
            subjects.chunks(NUMBERS_MAX).map(|subjects| Item::Examined { subjects: subjects.into() });
        let findings = found.iter().flat_map(|(&subject, findings)| {
            findings.iter().map(move |Finding { severity, message, help }| Item::Found {
                subject,
                is_error: *severity == Severity::Error,
                message: Text::new(message),
                help: Text::new(help),
            })
        });
        let mistakes = mistakes.map(|text| Item::Mistakes { text: Text::new(text) });
        let file = |name: &OsString| Bytes(name.as_encoded_bytes().to_vec());
        let left_out = loaded.left_out.iter();
        let left_out =
            left_out.map(|(name, reason)| Item::LeftOut { file: file(name), reason: Text::new(reason) });
        let differ = loaded.changed.iter().map(|changed| Item::Differ { count: changed.len() as u32 });
        let changed = loaded.changed.iter().flatten().map(|name| Item::Differs { file: file(name) });
        let others = std::iter::once(Item::Remote { files }).chain(mistakes);
        let others = others.chain(left_out).chain(differ).chain(changed);
        write_items(&subjects.chain(findings).chain(others).collect::<Vec<_>>())
    }
}

impl Examine for Recording<'_> {
    fn examine(&self, setting: &Setting<'_>, subjects: &[Subject<'_>]) -> Vec<(usize, Finding)> {
        let found = self.examine.examine(setting, subjects);
        let numbers = numbers(subjects);
        let mut all = self.found.borrow_mut();
        numbers.iter().for_each(|&number| drop(all.insert(number, Vec::new())));
        for (at, finding) in &found {
            let of = numbers.get(*at).and_then(|number| all.get_mut(number));
            of.into_iter().for_each(|of| of.push(finding.clone()));
        }
        found
    }
}

/// What another process has found.
#[derive(Debug, Default)]
pub struct Recorded {
    /// Whether something was asked for at which nobody has looked.
    is_short: Cell<bool>,
    examined: HashSet<u64>,
    found: HashMap<u64, Vec<Finding>>,
    /// What has become of files that may not answer; `None` if nothing was said of them.
    remote: Option<RemoteFiles>,
    mistakes: Option<String>,
    loaded: Loaded,
}

impl Recorded {
    /// What was said so; `None` if that makes no sense.
    pub fn of_bytes(said: &[u8]) -> Option<Self> {
        let (mut recorded, mut differ) = (Self::default(), 0);
        for item in read_items(said, SUBJECTS_MAX).ok()? {
            match item {
                Item::Examined { subjects } => recorded.examined.extend(subjects),
                Item::Found { subject, is_error, message, help } => {
                    let severity = if is_error { Severity::Error } else { Severity::Warning };
                    let (message, help) = (message.as_str().to_owned(), help.as_str().to_owned());
                    recorded.found.entry(subject).or_default().push(Finding { severity, message, help });
                }
                Item::Remote { files } => recorded.remote = Some(files),
                Item::Mistakes { text } => recorded.mistakes = Some(text.as_str().into()),
                Item::LeftOut { file, reason } => {
                    let name = OsStr::from_bytes(&file.0).to_owned();
                    recorded.loaded.left_out.insert(name, reason.as_str().into());
                }
                Item::Differ { count } => {
                    (differ, recorded.loaded.changed) = (count as usize, Some(BTreeSet::new()));
                }
                Item::Differs { file } => {
                    recorded.loaded.changed.as_mut()?.insert(OsStr::from_bytes(&file.0).to_owned());
                }
            }
        }
        let is_whole = recorded.loaded.changed.as_ref().is_none_or(|changed| changed.len() == differ);
        is_whole.then_some(recorded)
    }

    /// Whether the configuration names what it did not name when it was examined.
    pub fn is_short(&self) -> bool {
        self.is_short.get()
    }

    /// Whether the configuration names files that may not answer, and nobody has looked at them.
    pub fn leaves_out(&self) -> bool {
        self.remote == Some(RemoteFiles::LeftOut)
    }

    /// The mistakes of the configuration, if the other process has found some that are not to be found here.
    pub fn mistakes(&self) -> Option<&str> {
        self.mistakes.as_deref()
    }

    /// The files of sites that the other process has left out.
    pub fn left_out(&self) -> &Refused {
        &self.loaded.left_out
    }

    /// The files of sites that may be others than those that this process has read; `None` if it can be any.
    pub fn changed(&self) -> Option<&BTreeSet<OsString>> {
        self.loaded.changed.as_ref()
    }

    fn lacking(&self) -> Finding {
        self.is_short.set(true);
        error("was written into the configuration while that was examined", "reload again")
    }
}

impl Examine for Recorded {
    fn examine(&self, _: &Setting<'_>, subjects: &[Subject<'_>]) -> Vec<(usize, Finding)> {
        let of_subject = |(at, number): (usize, u64)| {
            let found = match self.examined.contains(&number) {
                true => self.found.get(&number).cloned().unwrap_or_default(),
                false => vec![self.lacking()],
            };
            found.into_iter().map(move |finding| (at, finding))
        };
        numbers(subjects).into_iter().enumerate().flat_map(of_subject).collect()
    }

    fn has_waited(&self) -> bool {
        self.remote == Some(RemoteFiles::Examined)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use config::{Cache, Config};

    use super::*;

    /// Finds something wrong with every root.
    struct Stub;

    impl Examine for Stub {
        fn examine(&self, _: &Setting<'_>, subjects: &[Subject<'_>]) -> Vec<(usize, Finding)> {
            let roots = subjects.iter().enumerate().filter(|(_, subject)| subject.key == "root");
            roots
                .map(|(at, subject)| (at, error(format!("is {}", subject.path.display()), "move it")))
                .collect()
        }
    }

    fn said(path: &Path, examine: &dyn Examine) -> String {
        match Config::load_again(path, examine, &mut Cache::default()) {
            Ok(_) => String::new(),
            Err(mistakes) => mistakes.to_string(),
        }
    }

    #[test]
    fn what_another_has_found_is_what_is_found_here() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bulkhead.toml");
        let write = |sites: &[&str]| {
            let site = |name: &&str| {
                std::fs::create_dir_all(folder.path().join(name)).unwrap();
                format!("[[site]]\nname = \"{name}\"\nhost = [\"{name}.test\"]\nroot = \"{name}\"\n")
            };
            let sites: String = sites.iter().map(site).collect();
            std::fs::write(&path, format!("[[listen]]\naddress = \"127.0.0.1:80\"\n{sites}")).unwrap();
        };
        write(&["a", "b"]);
        let recording = Recording::of(&Stub);
        let there = said(&path, &recording);
        assert!(there.contains("/a") && there.contains("/b"), "{there}");
        let loaded = Loaded {
            left_out: Refused::from([("b.toml".into(), "no".into())]),
            changed: Some(BTreeSet::from(["b.toml".into(), "c.toml".into()])),
        };
        let bytes = recording.to_bytes(RemoteFiles::LeftOut, Some("bad"), &loaded);
        let recorded = Recorded::of_bytes(&bytes).unwrap();
        assert_eq!(recorded.changed(), loaded.changed.as_ref());
        for changed in [None, Some(BTreeSet::new())] {
            let bytes = recording.to_bytes(
                RemoteFiles::Unnamed,
                None,
                &Loaded { changed: changed.clone(), ..Loaded::default() },
            );
            assert_eq!(Recorded::of_bytes(&bytes).unwrap().changed(), changed.as_ref());
        }
        assert!(recorded.leaves_out() && !recorded.has_waited() && recorded.mistakes() == Some("bad"));
        assert_eq!(recorded.left_out().get(OsStr::new("b.toml")).map(String::as_str), Some("no"));
        assert_eq!(said(&path, &recorded), there);
        assert!(!recorded.is_short());
        // The same folder is another question when another site has it.
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace("name = \"a\"", "name = \"z\"")).unwrap();
        said(&path, &recorded);
        assert!(recorded.is_short());
        recorded.is_short.set(false);
        write(&["a", "b", "c"]);
        let here = said(&path, &recorded);
        assert!(here.contains("was written into the configuration while that was examined"), "{here}");
        assert!(recorded.is_short());
        assert!(Recorded::of_bytes(&[1, 2, 3]).is_none());
        let differ = |count, files: &[&str]| {
            let differs = files.iter().map(|file| Item::Differs { file: Bytes(file.as_bytes().to_vec()) });
            let items: Vec<Item> = std::iter::once(Item::Differ { count }).chain(differs).collect();
            Recorded::of_bytes(&write_items(&items)).is_some()
        };
        assert!(differ(1, &["a"]) && !differ(2, &["a"]) && !differ(0, &["a"]));
    }
}
