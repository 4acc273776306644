//! The texts of all files of a folder, read side by side.
//!
//! Runs in: the `bulkhead` command, which may have threads; the launcher has none. Input: the operator's files. Must
//! never: leave out a file because it cannot be read.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::ops::Range;
use std::thread;

use crate::include::{ListedFile, open_plain};

/// LIMIT: threads that read; what they wait for is the kernel's table of names, which is one.
const THREADS_MAX: usize = 8;
/// LIMIT: files that are worth a thread, which takes as long to make as some of them to read.
const WORTH_A_THREAD: usize = 64;
/// Bytes of a file that is read in one go. A longer one has no text here.
const USUAL_BYTES: usize = 64 << 10;

/// Texts, one behind the other.
type Pile = (String, Vec<Option<Range<usize>>>);

/// The number of a pile, and where in it.
type TextRange = (usize, Range<usize>);

/// The files of a folder that nobody has taken yet.
#[derive(Default)]
pub(super) struct Texts {
    /// What each thread has read.
    piles: Vec<String>,
    /// Each file, with the place of its text; without one, it is to be looked at in another way.
    files: Vec<(ListedFile, Option<TextRange>)>,
}

impl Texts {
    /// Those of the files of a folder that are in it; where a link leads is not looked at here.
    pub(super) fn read(folder: &File, listed: Vec<ListedFile>) -> Self {
        let (plain, others): (Vec<_>, Vec<_>) = listed.into_iter().partition(|file| file.is_plain);
        let (mut piles, mut places) = (Vec::new(), Vec::with_capacity(plain.len()));
        for (number, (pile, ranges)) in side_by_side(folder, &plain).into_iter().enumerate() {
            piles.push(pile);
            places.extend(ranges.into_iter().map(|range| range.map(|range| (number, range))));
        }
        let others = others.into_iter().map(|file| (file, None));
        Self { piles, files: plain.into_iter().zip(places).chain(others).collect() }
    }

    /// Takes out the files whose texts are meant, and those that have none.
    pub(super) fn take(&mut self, is_meant: impl Fn(&str) -> bool) -> Vec<ListedFile> {
        let Self { piles, files } = self;
        let meant = files.extract_if(.., |(_, place)| match place {
            Some((pile, range)) => is_meant(&piles[*pile][range.clone()]),
            None => true,
        });
        meant.map(|(file, _)| file).collect()
    }
}

/// What was read of the files, in their order.
fn side_by_side(folder: &File, files: &[ListedFile]) -> Vec<Pile> {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let threads = processors.min(THREADS_MAX).min(files.len().div_ceil(WORTH_A_THREAD)).max(1);
    let read = move |files: &[ListedFile]| pile(folder, files.iter().map(|file| &file.name));
    let (own, others) = files.split_at(files.len().div_ceil(threads));
    let share = others.len().div_ceil(threads.saturating_sub(1).max(1)).max(1);
    thread::scope(|scope| {
        let begin = |share| (share, thread::Builder::new().spawn_scoped(scope, move || read(share)));
        let begun: Vec<_> = others.chunks(share).map(begin).collect();
        let mut piles = vec![read(own)];
        for (share, reader) in begun {
            piles.push(match reader.map(thread::ScopedJoinHandle::join) {
                Ok(Ok(found)) => found,
                Ok(Err(panic)) => std::panic::resume_unwind(panic),
                // There is no room for a thread.
                Err(_) => read(share),
            });
        }
        piles
    })
}

fn pile<'n>(folder: &File, names: impl Iterator<Item = &'n OsString>) -> Pile {
    let (mut pile, mut buffer) = (String::new(), vec![0; USUAL_BYTES]);
    let ranges = names.map(|name| {
        let text = text(folder, name, &mut buffer)?;
        let start = pile.len();
        pile.push_str(text);
        Some(start..pile.len())
    });
    let ranges = ranges.collect();
    (pile, ranges)
}

/// The text of a file that has one, and is no longer than `buffer`.
fn text<'b>(folder: &File, name: &OsStr, buffer: &'b mut [u8]) -> Option<&'b str> {
    let file = open_plain(folder, name).ok()?;
    // Of something that is no file any more, which could be waited for, nothing is read at a place.
    let length = rustix::io::pread(&file, &mut *buffer, 0).ok()?;
    // Less than there was room for: that is all of it.
    let is_all = length < buffer.len();
    std::str::from_utf8(&buffer[..length]).ok().filter(|_| is_all)
}
