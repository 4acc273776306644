//! Reading a folder of templates.
//!
//! Sees: the operator's files, by names in the folder. Never: leaves the folder, follows a link out of it, or reads
//! more than the limits allow.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;

use rustix::fs::{Dir, FileType, Mode, OFlags, ResolveFlags, fstat, openat2};
use rustix::io::Errno;

use crate::{DEPTH_MAX, Sources, TEMPLATE_BYTES_MAX, TEMPLATES_MAX, TemplateMistake};

/// LIMIT: mistakes that are told of one folder.
const MISTAKES_MAX: usize = 20;

/// Reads every file below a folder, but those whose names begin with a dot or end in `~`.
///
/// # Errors
/// The files that cannot be read, are no text, or are too much.
pub fn read(folder: &OwnedFd) -> Result<Sources, Vec<TemplateMistake>> {
    let mut reader = FolderReader { root: folder, sources: Sources::default(), mistakes: Vec::new() };
    reader.folder("", 0);
    match reader.mistakes.is_empty() {
        true => Ok(reader.sources),
        false => Err(reader.mistakes),
    }
}

struct FolderReader<'f> {
    root: &'f OwnedFd,
    sources: Sources,
    mistakes: Vec<TemplateMistake>,
}

impl FolderReader<'_> {
    fn open(&self, name: &str) -> Result<OwnedFd, Errno> {
        let name = if name.is_empty() { "." } else { name };
        // A pipe must not keep the reader waiting.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        openat2(self.root, name, flags, Mode::empty(), resolve)
    }

    fn mistake(&mut self, name: &str, rule: impl Into<String>) {
        let name = if name.is_empty() { "the folder" } else { name };
        self.mistakes.push(TemplateMistake::of_file(name, rule.into()));
    }

    fn is_enough(&self) -> bool {
        self.mistakes.len() >= MISTAKES_MAX
    }

    /// Reads what is in a folder, which is `name` below the root.
    fn folder(&mut self, name: &str, depth: usize) {
        let names = match self.open(name).and_then(names) {
            Ok(names) => names,
            Err(error) => return self.mistake(name, unread(error)),
        };
        let Some(names) = names else {
            return self.mistake(name, format!("it has more than {TEMPLATES_MAX} names"));
        };
        for own in names {
            let Ok(own) = String::from_utf8(own) else {
                self.mistake(name, "a name in it is not UTF-8");
                continue;
            };
            let path = if name.is_empty() { own } else { format!("{name}/{own}") };
            self.entry(&path, depth);
            if self.is_enough() {
                return;
            }
        }
    }

    fn entry(&mut self, name: &str, depth: usize) {
        let opened =
            self.open(name).and_then(|file| Ok((FileType::from_raw_mode(fstat(&file)?.st_mode), file)));
        match opened {
            Ok((FileType::Directory, _)) if depth == DEPTH_MAX => {
                self.mistake(name, format!("it is deeper than {DEPTH_MAX} folders"));
            }
            Ok((FileType::Directory, _)) => self.folder(name, depth + 1),
            Ok((FileType::RegularFile, file)) => {
                let added = text(file.into()).and_then(|source| self.sources.add(name.to_owned(), source));
                if let Err(rule) = added {
                    self.mistake(name, rule);
                }
            }
            Ok(_) => self.mistake(name, "it is neither a file nor a folder"),
            Err(error) => self.mistake(name, unread(error)),
        }
    }
}

/// The names in a folder, in order; `None` if they are too many.
fn names(folder: OwnedFd) -> Result<Option<Vec<Vec<u8>>>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::new(folder)? {
        let name = entry?.file_name().to_bytes().to_vec();
        if name.starts_with(b".") || name.ends_with(b"~") {
            continue;
        }
        if names.len() == TEMPLATES_MAX {
            return Ok(None);
        }
        names.push(name);
    }
    names.sort_unstable();
    Ok(Some(names))
}

fn text(file: File) -> Result<String, String> {
    let mut bytes = Vec::new();
    let read = file.take(TEMPLATE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes);
    read.map_err(|error| format!("it cannot be read: {error}"))?;
    String::from_utf8(bytes).map_err(|_| "it is not UTF-8; the folder is for templates alone".into())
}

fn unread(error: Errno) -> String {
    match error {
        Errno::XDEV => "it is a link that leads out of the folder of templates".into(),
        Errno::ACCESS => {
            "its publisher may not read it: let others read it, or, if the whole folder is another one \
                          now, run `bulkhead relaunch SITE:templates`"
                .into()
        }
        error => format!("it cannot be read: {error}"),
    }
}
