//! What the launcher's copy that examines a program has found out, for the launcher.
//!
//! Runs in: the launcher, and a copy of it that examines. Sees: bytes that the copy has put into memory that both
//! share. Never: takes a part of them: they are whole and right, or refused.

use crate::codec::{Bytes, DecodeError, Message, Reader, Text, add_item, choice, messages};
use crate::successor::PATH_MAX;

/// LIMIT: bytes of all that an examination says: 256 libraries with long names.
pub const FINDINGS_MAX: usize = 256 << 10;
/// LIMIT: bytes of all that an examination of a configuration says: ten numbers for each of ten thousand sites, and
/// what is wrong.
pub const SUBJECTS_MAX: usize = 16 << 20;
/// LIMIT: bytes of what is said of one file that was opened: two paths and some numbers, or what is wrong with it.
pub const OPENED_MAX: usize = 20 << 10;
/// LIMIT: bytes of the mistakes of a configuration, which are cut there.
pub const MISTAKES_MAX: usize = 60 << 10;
/// LIMIT: bytes of what is wrong with a program: the names of 256 missing libraries are cut there.
pub const PROBLEM_MAX: usize = 8192;

choice! {
    /// How a program is to be started.
    pub enum StartKind {
        /// The kernel needs nothing but the program.
        0 => Static,
        /// The program names a dynamic loader.
        1 => Dynamic,
        /// The same, and the program makes its system calls itself.
        2 => Go,
        /// The program is a script, and names an interpreter.
        3 => Script,
    }
}

messages! {
    /// From an examination to the launcher. Versions of files are five numbers.
    pub enum ExaminationToLauncher {
        /// What the inspector says of a program, or of a loader: what it names, and why it could make code, or nothing.
        1 => Inspected { path: Bytes<PATH_MAX>, version: Vec<u64>, start: StartKind, named: Bytes<PATH_MAX>, loose: Text<1024> },
        /// What is wrong with a program, or with a loader.
        2 => Unfit { path: Bytes<PATH_MAX>, version: Vec<u64>, problem: Text<PROBLEM_MAX> },
        /// Which libraries of a program are no good, and why.
        3 => Lacks { path: Bytes<PATH_MAX>, version: Vec<u64>, library: Text<PROBLEM_MAX>, problem: Text<PROBLEM_MAX> },
        /// A library of the program.
        4 => Library { path: Bytes<PATH_MAX> },
        /// These are all libraries of this version of the program.
        5 => Listed { version: Vec<u64> },
        /// The program was copied, from this version of it.
        6 => Copied { version: Vec<u64> },
        /// Why the program would not be started.
        7 => Refused { reason: Text<PROBLEM_MAX> },
    }
}

choice! {
    /// What has become of what a configuration names on file systems that may not answer.
    pub enum RemoteFiles {
        /// It names nothing there.
        0 => Unnamed,
        /// Nobody has looked at it.
        1 => LeftOut,
        /// It was examined as all else was.
        2 => Examined,
    }
}

messages! {
    /// From an examination of a configuration to the launcher. Subjects are numbers that both work out.
    pub enum ConfigurationToLauncher {
        /// These were looked at.
        1 => Examined { subjects: Vec<u64> },
        /// What is wrong with one of them, or perhaps not meant, and what to do about it.
        2 => Found { subject: u64, is_error: bool, message: Text<PROBLEM_MAX>, help: Text<PROBLEM_MAX> },
        /// What has become of files that may not answer.
        3 => Remote { files: RemoteFiles },
        /// The mistakes of the configuration, as one who has waited for such files has found them.
        4 => Mistakes { text: Text<MISTAKES_MAX> },
        /// A file of sites that was left out, by its name, and why.
        5 => LeftOut { file: Bytes<PATH_MAX>, reason: Text<PROBLEM_MAX> },
        /// Only so many files of sites, which follow, may be others than those that the launcher has read.
        6 => Differ { count: u32 },
        /// One of them, by its name.
        7 => Differs { file: Bytes<PATH_MAX> },
    }
}

messages! {
    /// From a copy of the launcher that opens files to the launcher. Paths are numbers, in the order in which they were
    /// asked for.
    pub enum OpeningToLauncher {
        /// What a path leads to, which comes along: what the kernel says of it, its path without links, who can have
        /// put it there, and the folder that it lies in, with its owner and its mode.
        1 => Opened { number: u32, found: Vec<u64>, real: Bytes<PATH_MAX>, placed: Vec<u64>, folder: Bytes<PATH_MAX>, owner: Vec<u64> },
        /// What is wrong with it.
        2 => NotOpened { number: u32, problem: Text<PROBLEM_MAX>, remedy: Text<PROBLEM_MAX> },
    }
}

/// The bytes of these items.
pub fn write_items<'i, Item: Message + 'i>(items: impl IntoIterator<Item = &'i Item>) -> Vec<u8> {
    let mut bytes = Vec::new();
    items.into_iter().for_each(|item| add_item(&mut bytes, item));
    bytes
}

/// The items of these bytes, of which there are not more than `most`.
///
/// # Errors
/// One of them is not whole, or cannot be understood.
pub fn read_items<Item: Message>(bytes: &[u8], most: usize) -> Result<Vec<Item>, DecodeError> {
    if bytes.len() > most {
        return Err(DecodeError::Limit(most));
    }
    let (mut reader, mut items) = (Reader(bytes), Vec::new());
    while !reader.0.is_empty() {
        items.push(Item::decode(reader.item()?)?);
    }
    Ok(items)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_whole_or_none_is_taken() {
        let path = || Bytes(b"/srv/app".to_vec());
        let items = [
            ExaminationToLauncher::Inspected {
                path: path(),
                version: vec![1, 2, 3, 4, 5],
                start: StartKind::Go,
                named: Bytes(b"/lib/ld.so".to_vec()),
                loose: Text::default(),
            },
            ExaminationToLauncher::Library { path: path() },
            ExaminationToLauncher::Refused { reason: Text::new("is nothing") },
        ];
        let bytes = write_items(&items);
        let read = |bytes: &[u8]| read_items::<ExaminationToLauncher>(bytes, FINDINGS_MAX);
        assert_eq!(read(&bytes).as_deref(), Ok(&items[..]));
        let whole = |length: usize| read(&bytes[..length]).map(|items| items.len());
        let cut: Vec<usize> = (0..bytes.len()).filter(|&length| whole(length).is_ok()).collect();
        assert_eq!(cut.len(), items.len(), "only between items");
        assert_eq!(read(&[2, 0, 0, 0, crate::VERSION, 77]), Err(DecodeError::Type(77)));
        assert_eq!(read(&[255, 255, 255, 255, 0]), Err(DecodeError::Short));
        assert_eq!(read(&vec![0; FINDINGS_MAX + 1]), Err(DecodeError::Limit(FINDINGS_MAX)));
    }
}
