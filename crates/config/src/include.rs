//! Sites in files of their own: which folder `include` means, and its files.
//!
//! Runs in: the launcher (root) and the `bulkhead` command. Input: the operator's files. Must never: read a file that
//! somebody else may have written.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags};
use sys::file_version::FileVersion;

use crate::cache::Cache;
use crate::diagnostic::{Problems, show_path};
use crate::files;
use crate::known::{Content, SiteFile};
use crate::lexical::lexical;
use crate::parse::{KeyFault, names};
use crate::paths::{Class, Opener, PathFault};
use crate::place::At;
use crate::rules::SITE_FILES_MAX;

/// What the name of a file of sites ends with.
pub const SUFFIX: &str = ".toml";

/// The folder of `FOLDER/*.toml`.
pub(crate) fn folder(text: &str, dir: &Path) -> Result<PathBuf, KeyFault> {
    let rule = "what is included are the `.toml` files of a folder";
    let folder = text.strip_suffix("/*.toml").filter(|folder| !folder.contains(['*', '?', '[', '{']));
    let Some(folder) = folder else {
        let near = text.trim_end_matches(['*', '/']);
        let near = near.rsplit_once("/*").map_or(near, |(folder, _)| folder).trim_end_matches('/');
        let good = !near.is_empty() && !near.contains(['*', '?', '[', '{']) && !near.ends_with(SUFFIX);
        let near = if good { near } else { "sites" };
        return Err(KeyFault::with_help(
            rule,
            format!("write for example `\"{}/*.toml\"`", near.escape_debug()),
        ));
    };
    if !folder.is_empty() {
        names::file_path(folder)?;
    }
    let folder = dir.join(if folder.is_empty() { "/" } else { folder });
    // The file itself would be one of its own sites.
    if lexical(&folder) == lexical(dir) {
        let rule = "the files of sites are in a folder of their own, not beside this file";
        return Err(KeyFault::with_help(rule, "write for example `\"sites/*.toml\"`"));
    }
    Ok(folder)
}

/// The files of a folder, in the order of their names. Those that begin with a dot are none: they are being written.
///
/// What `cache` knows is not read again. With `only`, nothing but the file of this name is looked at.
pub(crate) fn read(
    folder: &At<PathBuf>,
    (opener, only): (&Opener, Option<&OsStr>),
    cache: &Cache,
    problems: &mut Problems,
) -> Vec<SiteFile> {
    let Some((opened, mut names)) = listed(folder, opener, problems) else { return Vec::new() };
    names.retain(|file| only.is_none_or(|only| only == file.name));
    names.sort_by(|one, two| one.name.cmp(&two.name));
    let of_folder = InFolder::of(folder, &opened, (opener, cache), problems);
    names.into_iter().filter_map(|file| of_folder.file(&file.name, file.is_link, problems)).collect()
}

/// A file of a folder, before it is looked at.
pub(crate) struct ListedFile {
    pub(crate) name: OsString,
    pub(crate) is_link: bool,
    /// Whether it is a regular file of the folder itself.
    pub(crate) is_plain: bool,
}

/// A folder with its files.
pub(crate) fn listed(
    folder: &At<PathBuf>,
    opener: &Opener,
    problems: &mut Problems,
) -> Option<(File, Vec<ListedFile>)> {
    let opened = match opener.folder(Class::Own, &folder.value) {
        Ok(opened) => File::from(opened),
        Err(fault) => {
            let shown = show_path(&folder.value);
            let (what, help) = match &fault {
                PathFault::Io { source, .. } => {
                    (format!("cannot be read: {source}"), format!("create the folder: `mkdir {shown}`"))
                }
                _ => (fault.problem(), fault.remedy()),
            };
            problems.report_help(folder.offset, format!("`include`: the folder {shown} {what}"), help);
            return None;
        }
    };
    let names = match list(&opened) {
        Ok(names) => names,
        Err(error) => {
            let shown = show_path(&folder.value);
            let message = format!("`include`: the folder {shown} cannot be read: {error}");
            problems.report_help(folder.offset, message, "let the user who starts bulkhead read it");
            return None;
        }
    };
    if names.len() > SITE_FILES_MAX {
        let message = format!(
            "`include`: {} has {} files; it may have {SITE_FILES_MAX}",
            show_path(&folder.value),
            names.len()
        );
        problems.report(folder.offset, message);
        return None;
    }
    Some((opened, names))
}

/// Whether files of this name are read.
pub(crate) fn is_read(name: &OsStr) -> bool {
    let bytes = name.as_encoded_bytes();
    bytes.ends_with(SUFFIX.as_bytes()) && !bytes.starts_with(b".")
}

/// The names of the files, and of what kind each is.
pub(crate) fn list(folder: &File) -> std::io::Result<Vec<ListedFile>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(format!("/proc/self/fd/{}", folder.as_raw_fd()))? {
        let entry = entry?;
        let name = entry.file_name();
        if is_read(&name) {
            let kind = entry.file_type().ok();
            let is_link = kind.is_some_and(|kind| kind.is_symlink());
            names.push(ListedFile { name, is_link, is_plain: kind.is_some_and(|kind| kind.is_file()) });
        }
    }
    Ok(names)
}

/// What is known of the files of a folder before they are looked at.
pub(crate) struct InFolder<'c> {
    pub(crate) folder: &'c At<PathBuf>,
    /// The folder itself.
    pub(crate) opened: &'c File,
    pub(crate) opener: &'c Opener,
    pub(crate) owner: Option<u32>,
    pub(crate) cache: &'c Cache,
}

impl<'c> InFolder<'c> {
    /// Of a folder that is open; who may write in it is looked at.
    pub(crate) fn of(
        folder: &'c At<PathBuf>,
        opened: &'c File,
        (opener, cache): (&'c Opener, &'c Cache),
        problems: &mut Problems,
    ) -> Self {
        let found = opened.metadata().map_err(|error| {
            // Nobody's files are read from a folder of which nobody knows whose it is.
            let message =
                format!("`include`: the folder {} cannot be looked at: {error}", show_path(&folder.value));
            problems.report(folder.offset, message);
        });
        let owner = found.ok().map(|found| {
            alone(&folder.value, &found, opener, folder.offset, problems);
            safe(&folder.value, (found.uid(), found.mode()), None, folder.offset, problems)
        });
        Self { folder, opened, opener, owner, cache }
    }

    /// A file, as it is now.
    pub(crate) fn file(&self, name: &OsStr, is_link: bool, problems: &mut Problems) -> Option<SiteFile> {
        let path = self.folder.value.join(name);
        let offset = self.folder.offset;
        if !is_link && let Some(known) = self.known(name, &path, problems) {
            return Some(known);
        }
        // Before the file is read: what is written meanwhile is read the next time.
        let read = self.open(name, is_link).map_err(files::FileFault::Io).and_then(|file| {
            let found = file.metadata().map_err(files::FileFault::Io)?;
            if !found.is_file() {
                return Err(files::FileFault::NotAFile);
            }
            let stamp = FileVersion::of(&found);
            safe(&path, (found.uid(), found.mode()), self.owner, offset, problems);
            let content = match self.cache.known(&path, &stamp) {
                Some(known) => Content::Known(known),
                None => Content::Text(files::text_of(&file, found.len())?.into()),
            };
            Ok((stamp, !is_link && found.nlink() == 1, content))
        });
        match read {
            Ok((stamp, is_seen, content)) => Some(SiteFile { path: path.into(), stamp, is_seen, content }),
            Err(why) => {
                let message = format!("`include`: {}: {why}", show_path(&path));
                let help = "correct it, or give it a name that does not end with `.toml`";
                problems.report_of(&path, offset, message, help);
                None
            }
        }
    }

    /// A file that is as it was, which nobody opens.
    fn known(&self, name: &OsStr, path: &Path, problems: &mut Problems) -> Option<SiteFile> {
        let found = rustix::fs::statat(self.opened, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let stamp = FileVersion::from(&found);
        let known = self.cache.known(path, &stamp)?;
        safe(path, (found.st_uid, found.st_mode), self.owner, self.folder.offset, problems);
        let (path, is_seen) = (known.path.clone(), found.st_nlink == 1);
        Some(SiteFile { path, stamp, is_seen, content: Content::Known(known) })
    }

    /// Opens a file of the folder without waiting: a FIFO would be waited for.
    fn open(&self, name: &OsStr, is_link: bool) -> std::io::Result<File> {
        if is_link {
            let found = self.opener.look(Class::Own, &self.folder.value.join(name))?;
            return match found.is_file() {
                true => Ok(found.open_file()?),
                false => Ok(found.file.into()),
            };
        }
        Ok(open_plain(self.opened, name)?)
    }
}

/// Opens a file of a folder that is no link, without waiting.
pub(crate) fn open_plain(folder: &File, name: &OsStr) -> rustix::io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(folder, name, flags, Mode::empty())?.into())
}

/// SECURITY: who may write in the folder says which programs run, and as whom: nobody but root and the owner of the
/// main file's folder, who could say so there.
fn alone(path: &Path, found: &Metadata, opener: &Opener, offset: usize, problems: &mut Problems) {
    if !opener.trusts(found.uid()) {
        let (shown, uid) = (show_path(path), found.uid());
        let message = format!(
            "`include`: {shown} belongs to uid {uid}, who would say what runs as whom; it is root's, or belongs to the owner of \
             the main file's folder"
        );
        problems.report_help(offset, message, format!("run `chown root {shown}`"));
    }
}

/// Who owns a folder, or a file of `owner`'s folder.
///
/// SECURITY: who may write here says which programs run, and which keys are used: the folder's owner and root, nobody
/// else.
fn safe(
    path: &Path,
    (uid, mode): (u32, u32),
    owner: Option<u32>,
    offset: usize,
    problems: &mut Problems,
) -> u32 {
    let mut report = |message: String, help: String| match owner {
        Some(_) => problems.report_of(path, offset, message, help),
        None => problems.report_help(offset, message, help),
    };
    let shown = || show_path(path);
    if mode & 0o022 != 0 {
        let shown = shown();
        let message = format!("`include`: {shown} can be written by others than its owner");
        report(message, format!("run `chmod go-w {shown}`"));
    } else if let Some(owner) = owner.filter(|owner| ![0, *owner].contains(&uid)) {
        let shown = shown();
        let message = format!("`include`: {shown} belongs to uid {uid}, and its folder to uid {owner}");
        report(message, format!("run `chown {owner} {shown}`"));
    }
    uid
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_a_folder_and_all_its_files() {
        let dir = Path::new("/etc/bulkhead");
        let accepted = |text| folder(text, dir).ok();
        assert_eq!(accepted("sites/*.toml"), Some("/etc/bulkhead/sites".into()));
        assert_eq!(accepted("/srv/all sites/*.toml"), Some("/srv/all sites".into()));
        for wrong in [
            "sites",
            "sites/",
            "*.toml",
            "./*.toml",
            "../bulkhead/*.toml",
            "s*/*.toml",
            "sites/*",
            "sites/a.toml",
            "",
        ] {
            assert_eq!(accepted(wrong), None, "{wrong}");
        }
        let help = |text| folder(text, dir).unwrap_err().help.unwrap_or_default();
        assert_eq!(help("vhosts/*"), "write for example `\"vhosts/*.toml\"`");
        assert_eq!(help("vhosts/"), "write for example `\"vhosts/*.toml\"`");
        assert_eq!(help("*.toml"), "write for example `\"sites/*.toml\"`");
    }
}
