//! All files of sites of a folder, read side by side.
//!
//! Runs in: the `bulkhead` command, which may have threads; the launcher has none. Input: the operator's files. Must never: leave out
//! a file without a word.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::path::PathBuf;
use std::thread;

use crate::cache::Cache;
use crate::diagnostic::Problems;
use crate::files::{self, Unread};
use crate::include::{self, Content, InFolder, Opened, SiteFile};
use crate::paths::Opener;
use crate::place::At;

/// LIMIT: threads that read; what they wait for is the kernel's table of names, which is one.
const THREADS_MAX: usize = 8;
/// LIMIT: files that are worth a thread, which takes as long to make as some of them to read.
const WORTH_A_THREAD: usize = 64;
/// Bytes of a file that is read in one go.
const USUAL_BYTES: usize = 64 << 10;

/// The files, in no order.
pub(super) fn all(folder: &At<PathBuf>, opener: &Opener, problems: &mut Problems) -> Vec<SiteFile> {
    let Some((opened, names)) = include::listed(folder, opener, problems) else { return Vec::new() };
    let cache = Cache::default();
    let of_folder = InFolder::of(folder, &opened, (opener, &cache), problems);
    let (links, plain): (Vec<_>, Vec<_>) = names.into_iter().partition(|(_, is_link)| *is_link);
    let plain: Vec<OsString> = plain.into_iter().map(|(name, _)| name).collect();
    let mut found = Vec::with_capacity(plain.len());
    for (name, read) in plain.iter().zip(side_by_side(&opened, &plain)) {
        let read = read.map(|(about, text)| (about, text.map(|text| Content::Text(text.into()))));
        found.extend(of_folder.taken(folder.value.join(name), false, read, problems));
    }
    // Where a link leads is found name by name.
    found.extend(links.iter().filter_map(|(name, _)| of_folder.file(name, true, problems)));
    found
}

/// What was read of each file, in the order of the names.
fn side_by_side(folder: &File, names: &[OsString]) -> Vec<Opened<String>> {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let threads = processors.min(THREADS_MAX).min(names.len().div_ceil(WORTH_A_THREAD)).max(1);
    let read = move |names: &[OsString]| {
        let mut buffer = vec![0; USUAL_BYTES];
        names.iter().map(|name| one(folder, name, &mut buffer)).collect::<Vec<_>>()
    };
    let (own, others) = names.split_at(names.len().div_ceil(threads));
    thread::scope(|scope| {
        let share = others.len().div_ceil(threads.saturating_sub(1).max(1)).max(1);
        let begun = others
            .chunks(share)
            .map(|share| (share, thread::Builder::new().spawn_scoped(scope, move || read(share))));
        let begun: Vec<_> = begun.collect();
        let mut all = read(own);
        for (share, reader) in begun {
            all.extend(match reader.map(thread::ScopedJoinHandle::join) {
                Ok(Ok(found)) => found,
                Ok(Err(panic)) => std::panic::resume_unwind(panic),
                // There is no room for a thread.
                Err(_) => read(share),
            });
        }
        all
    })
}

fn one(folder: &File, name: &OsStr, buffer: &mut [u8]) -> Opened<String> {
    let file = include::open_plain(folder, name).map_err(|error| Unread::Io(error.into()))?;
    let found = include::regular(&file)?;
    let text = match rustix::io::pread(&file, &mut *buffer, 0) {
        // Less than there was room for: that is all of it.
        Ok(length) if length < buffer.len() => {
            String::from_utf8(buffer[..length].to_vec()).map_err(Unread::NotUtf8)
        }
        _ => files::text_of(&file, found.len()),
    };
    Ok((found, text))
}
