//! Readers: each knows how the value of a key is written, what its bounds are, and what holds without the key.
//!
//! Runs in: the launcher (root) and the `bulkhead` command. Input: tables of the operator's file. Must never: report
//! a mistake of another key.

use std::path::{Path, PathBuf};

use crate::decode::{Entry, Table, narrow};
use crate::diagnostic::Problems;
use crate::parse::{KeyFault, grants, names};
use crate::place::At;
use crate::programs::{folders, workers};
use crate::rules::Bounds;
use crate::schema::{Network, Workers};

/// A table that is read, and the folder from which relative paths count.
#[derive(Clone, Copy)]
pub(crate) struct TableSource<'g, 't> {
    pub(crate) table: &'g Table<'t>,
    pub(crate) dir: &'g Path,
}

/// How a value is read.
pub(crate) trait KeyReader {
    /// The value with its places.
    type Raw;

    /// The value without the key.
    fn absent(&self) -> Self::Raw;

    /// The value of `key`; what is wrong is reported.
    fn read(&self, key: &'static str, from: TableSource<'_, '_>, problems: &mut Problems) -> Self::Raw;
}

/// Makes the checked value of a raw one; `None` only if a mistake was reported.
pub(crate) trait Finish<T> {
    fn finish(self) -> Option<T>;
}

impl<T> Finish<T> for T {
    fn finish(self) -> Option<T> {
        Some(self)
    }
}

impl<T> Finish<T> for Option<T> {
    fn finish(self) -> Option<T> {
        self
    }
}

impl<T> Finish<T> for Option<At<T>> {
    fn finish(self) -> Option<T> {
        self.map(|at| at.value)
    }
}

impl<T> Finish<Vec<T>> for Vec<At<T>> {
    fn finish(self) -> Option<Vec<T>> {
        Some(self.into_iter().map(|at| at.value).collect())
    }
}

/// Where a flag stands that is set.
impl Finish<bool> for Option<usize> {
    fn finish(self) -> Option<bool> {
        Some(self.is_some())
    }
}

/// Implements [`KeyReader`] for readers of what may be left out: what holds without the key, and the value of its
/// entry.
macro_rules! readers {
    ($($reader:ident => $raw:ty, $absent:expr,
        |$self:ident, $key:ident, $entry:ident, $from:ident, $problems:ident| $read:expr;)*) => {$(
        impl KeyReader for $reader {
            type Raw = $raw;

            fn absent(&self) -> $raw {
                $absent
            }

            fn read(&self, $key: &'static str, $from: TableSource<'_, '_>, $problems: &mut Problems) -> $raw {
                let $self = self;
                let read = |$entry: Entry<'_>| -> Option<$raw> { $read };
                $from.table.get($key).and_then(read).unwrap_or_else(|| self.absent())
            }
        }
    )*};
}

/// `true`, or `false` as without the key.
pub(crate) struct Flag;
/// The same, for which it matters where it stands.
pub(crate) struct PlacedFlag;
/// A size, or none.
pub(crate) struct Size(pub(crate) &'static Bounds);
/// A number, or none.
pub(crate) struct OptionalCount(pub(crate) &'static Bounds);
/// A number of 64 bits, or none.
pub(crate) struct OptionalNumber(pub(crate) &'static Bounds);
/// A duration in milliseconds, or none.
pub(crate) struct OptionalDuration(pub(crate) &'static Bounds);
/// A number that has a default.
pub(crate) struct Count(pub(crate) &'static Bounds);
/// A duration in milliseconds that has a default.
pub(crate) struct Duration(pub(crate) &'static Bounds);
/// A size that has a default.
pub(crate) struct Bytes(pub(crate) &'static Bounds);
/// The same, within 32 bits.
pub(crate) struct Bytes32(pub(crate) &'static Bounds);
/// A duration that stands in two tables, and is read where both are known.
pub(crate) struct ReadElsewhere(pub(crate) &'static Bounds);
/// A string of this rule, or none.
pub(crate) struct OptionalText(pub(crate) fn(&str) -> Result<(), KeyFault>);
/// Names.
pub(crate) struct NameList;
/// FolderList, absolute or from the file's folder on.
pub(crate) struct FolderList;
/// Names and values.
pub(crate) struct Variables;
/// Rights in the network: `"tcp:443"` and the like, and `"udp"`.
pub(crate) struct GrantList;
/// A number of processes, or the least and the most.
pub(crate) struct WorkerCount;

readers! {
    Flag => bool, false, |_reader, _key, entry, _from, problems| entry.boolean(problems);
    PlacedFlag => Option<usize>, None, |_reader, _key, entry, _from, problems|
        entry.boolean(problems).map(|is_set| is_set.then_some(entry.offset));
    Size => Option<u64>, None, |reader, _key, entry, _from, problems| Some(entry.bytes(reader.0, problems));
    OptionalCount => Option<u32>, None, |reader, key, _entry, from, problems|
        Some(from.table.optional_count(key, reader.0, problems));
    OptionalNumber => Option<u64>, None, |reader, _key, entry, _from, problems| Some(entry.count(reader.0, problems));
    OptionalDuration => Option<u32>, None, |reader, _key, entry, _from, problems|
        entry.duration_ms(reader.0, problems).map(|ms| Some(narrow(Some(ms))));
    OptionalText => Option<String>, None, |reader, _key, entry, _from, problems|
        entry.string(reader.0, problems).map(|text| Some(text.value));
    NameList => Vec<At<String>>, Vec::new(), |_reader, _key, entry, _from, problems| entry.strings(names::name, problems);
    FolderList => Vec<At<PathBuf>>, Vec::new(), |_reader, key, _entry, from, problems|
        Some(folders(key, from.table, from.dir, problems));
    Variables => Vec<(String, String)>, Vec::new(), |_reader, _key, entry, _from, problems|
        Some(entry.variables(problems));
    GrantList => Network, Network::default(), |_reader, _key, entry, _from, problems| Some(network(&entry, problems));
    WorkerCount => Workers, Workers::default(), |_reader, _key, _entry, from, problems|
        Some(workers(from.table, problems));
}

/// Implements [`KeyReader`] for readers of numbers that have a default.
macro_rules! with_default {
    ($($reader:ident => $raw:ty, |$bounds:ident| $absent:expr, $read:ident;)*) => {$(
        impl KeyReader for $reader {
            type Raw = $raw;

            fn absent(&self) -> $raw {
                let $bounds = self.0;
                $absent
            }

            fn read(&self, key: &'static str, from: TableSource<'_, '_>, problems: &mut Problems) -> $raw {
                from.table.$read(key, self.0, problems)
            }
        }
    )*};
}

with_default! {
    Count => u32, |bounds| narrow(bounds.default), count;
    Duration => u32, |bounds| narrow(bounds.default), duration_ms;
    Bytes => u64, |bounds| bounds.default.unwrap_or(0), bytes;
}

impl KeyReader for Bytes32 {
    type Raw = u32;

    fn absent(&self) -> u32 {
        narrow(self.0.default)
    }

    fn read(&self, key: &'static str, from: TableSource<'_, '_>, problems: &mut Problems) -> u32 {
        narrow(Some(from.table.bytes(key, self.0, problems)))
    }
}

impl KeyReader for ReadElsewhere {
    type Raw = u32;

    fn absent(&self) -> u32 {
        narrow(self.0.default)
    }

    fn read(&self, _: &'static str, _: TableSource<'_, '_>, _: &mut Problems) -> u32 {
        self.absent()
    }
}

/// Reads `"tcp:443"` and the like, and `"udp"`.
fn network(entry: &Entry<'_>, problems: &mut Problems) -> Network {
    let elements = entry.elements(problems).unwrap_or_default();
    let mut network = Network::default();
    for grant in elements.iter().filter_map(|element| element.parsed(grants::network_grant, problems)) {
        match grant.value {
            Some(grant) => network.tcp.push(grant),
            None => network.udp = true,
        }
    }
    network
}

/// The name of a service, which it must have.
pub(crate) struct ServiceName;
/// The path of a service; of one that is a door, where its callers look for it.
pub(crate) struct ServicePath;
/// The command of a service, unless it is a door.
pub(crate) struct ServiceCommand;
/// Where `remote` stands, if it is true.
pub(crate) struct DoorPlace;

/// A command, and its program's absolute path.
#[derive(Clone, Default)]
pub(crate) struct RawCommand {
    pub(crate) words: Vec<String>,
    pub(crate) program: Option<At<PathBuf>>,
}

impl Finish<Vec<String>> for RawCommand {
    fn finish(self) -> Option<Vec<String>> {
        Some(self.words)
    }
}
