//! What a launcher hands to the one that takes its place by `exec`: the record of an upgrade.
//!
//! Runs in: the launcher. Sees: bytes that a launcher of this or of a neighbouring version wrote, into memory that
//! nobody can write to any more. Never: takes a part of a record: it is whole and right, or refused.
//!
//! A record is a head (who wrote it, how long it is, and a checksum) and items, each a length and a message. A version
//! may add items: those with numbers from [`OPTIONAL`] on are skipped by a version that does not know them, any other
//! refuses the record. Descriptors are said by their numbers, which are the same after `exec`; times as milliseconds
//! before or after the moment in which the record was written.

use std::fmt;

use crate::admin::ADMIN_SECRET_CHARS;
use crate::codec::{Bytes, DecodeError, MESSAGE_MAX, Message, Reader, Text, add_item, choice, messages};
use crate::roles::Role;
use crate::tls::{Holding, TICKET_KEY_BYTES, Verdict};

/// The version of the records that this launcher writes. It reads those of the version before and after as well.
pub const RECORD_VERSION: u16 = 1;
/// LIMIT: bytes of a record: the texts of ten thousand sites and a hundred thousand processes are within it.
pub const RECORD_MAX: usize = 512 << 20;
/// LIMIT: bytes of one file of the configuration; more than it may have.
pub const SOURCE_MAX: usize = 16 << 20;
/// LIMIT: bytes of a path, as the kernel has it.
pub const PATH_MAX: usize = 4096;
/// No descriptor.
pub const NO_DESCRIPTOR: u32 = u32::MAX;
/// No process, and no time.
pub const NONE: u64 = u64::MAX;
/// Items from this number on may be skipped by who does not know them.
pub const OPTIONAL: u8 = 200;

const MAGIC: &[u8; 8] = b"bulkhead";
/// The magic, the version, the length of what follows the head, and its checksum.
const HEAD: usize = 8 + 2 + 8 + 8;

choice! {
    /// A file whose lock the launcher has for as long as it lives.
    pub enum Lock {
        /// That of the run directory.
        0 => Run,
        /// That of the range of uids.
        1 => Uids,
        /// The list of control groups.
        2 => Groups,
    }
}

choice! {
    /// How far a process has come.
    pub enum Progress {
        /// It has not said that it is ready.
        0 => Starting,
        /// It works.
        1 => Serving,
        /// It was asked to finish and exit; it has never worked.
        2 => RetiringUnserved,
        /// It was asked to finish and exit.
        3 => Retiring,
    }
}

choice! {
    /// How long a slot is there for.
    pub enum Stay {
        /// To the end.
        0 => Serving,
        /// No more.
        1 => Removed,
        /// No more, and nobody knows of it.
        2 => Free,
    }
}

messages! {
    /// From a launcher to its successor.
    pub enum LauncherToSuccessor {
        /// The launcher: its version, for how long it runs, the numbers that it gave out last (to processes, chains and
        /// control groups), and the order that waits for an answer.
        1 => Launcher { version: Text<64>, age_ms: u64, serial: u64, chains: u32, groups: u64, admin: u64, ticket: u32 },
        /// A file that is locked.
        2 => Locked { lock: Lock, descriptor: u32 },
        /// The uids that this server has.
        3 => UidRange { first: u32, last: u32 },
        /// A file of the configuration that runs, the main one first.
        4 => Source { path: Text<PATH_MAX>, text: Bytes<SOURCE_MAX> },
        /// A site, in the order of their numbers; one that has gone only has a number.
        5 => Site { name: Text<1024>, serves: bool },
        /// A listening socket.
        6 => Listening { listener: u16, gate: u16, descriptor: u32 },
        /// What is known of a slot, in the order of their numbers: what it is for, ...
        7 => Slot {
            role: Role, name: Text<1024>, partition: u16, site: u16, index: u32, worker: u16, generation: u32, uid: u32, gid: u32,
            stay: Stay,
        },
        /// ... and what has become of its processes: whether it rests, is wanted or broken, how often it was started
        /// again, in how long it is to be started, how long ago its unclean exits were, and the process that works.
        8 => SlotState {
            slot: u32, rests: bool, wanted: bool, broken: bool, restarts: u32, last_exit: Text<1024>, failures: u32,
            unclean: Vec<u64>, start_ms: u64, current: u64,
        },
        /// A process: its pid, its pidfd, the launcher's ends of its channels, and how far it has come.
        9 => Process {
            serial: u64, slot: u32, pid: u32, pidfd: u32, control: u32, log: u32, stderr_reading: u32,
            stderr_writing: u32, calls: u32, core_folder: u32, progress: Progress, age_ms: u64, deadline_ms: u64,
        },
        /// What a process owes, and what it is told of: answers, confirmed updates, nonsense, slots that it relays to.
        10 => ProcessState {
            serial: u64, owes_report: bool, owes_shed: bool, owes_staples: bool, owes_commits: u32,
            protocol_violations: u32, relays_to: Vec<u64>,
        },
        /// A control group of a process.
        11 => Group { serial: u64, path: Text<PATH_MAX> },
        /// A message that waits for room in the channel of a process.
        12 => Waiting { serial: u64, message: Bytes<MESSAGE_MAX>, descriptor: u32, counts: bool },
        /// What a process that is gone had logged.
        13 => Unread { slot: u32, log: u32, stderr: u32 },
        /// The chain of filters that runs.
        14 => Chain { number: u32, first: u32, last: u32, age_ms: u64 },
        /// What each filter reads from, in the order of the chain.
        15 => ChainUnread { descriptor: u32 },
        /// The error log, and the day of the access logs, counted from 1970-01-01.
        16 => ErrorLog { descriptor: u32, day: u64 },
        /// An access log, in the order of the sites; the last is that of requests of no site.
        17 => AccessLog { descriptor: u32 },
        /// The administration socket.
        18 => AdminSocket { descriptor: u32, secret: Text<ADMIN_SECRET_CHARS> },
        /// The process that ends others with the launcher.
        19 => Reaper { pid: u32, pidfd: u32, channel: u32 },
        /// Where control groups are made.
        20 => Hierarchy { top: Text<PATH_MAX>, controllers: Text<256>, unified: bool },
        /// A layer that processes are started without.
        21 => Without { layer: Text<64> },
        /// What can be relaunched, by its number: the first has 0, the next 1. A number that nothing has any more is
        /// without a name.
        22 => Target { name: Text<1024> },
        /// A socket that a service manager has passed, by its name.
        23 => Passed { name: Text<1024>, descriptor: u32 },
        /// A pipe by which a process speaks, where its channel takes nothing.
        24 => Heard { serial: u64, descriptor: u32 },
        /// So many `Target`s without a name.
        25 => Unnamed { count: u32 },
        /// A client that a site refuses.
        200 => Ban { partition: u16, address_high: u64, address_low: u64, left_ms: u64 },
        /// When the secrets of tickets change, and the number of the newest.
        201 => Tickets { generation: u64, next_ms: u64 },
        /// A secret of a site, the newest last.
        202 => TicketKey { site: u16, generation: u64, secret: Bytes<TICKET_KEY_BYTES> },
        /// A slot whose process is in use.
        203 => Used { slot: u32 },
        /// A process that takes `Retire`; one of which this is not said is told by the end of its channel.
        204 => TakesRetire { serial: u64 },
        /// Memory in which a process keeps what its successor is to go on with.
        205 => Memory { serial: u64, descriptor: u32 },
        /// The same of the process that a slot had last, and that has ended.
        206 => LeftMemory { slot: u32, descriptor: u32 },
        /// How many processes of a slot the kernel has killed for want of memory.
        207 => OomKills { slot: u32, count: u32 },
        /// The same of all slots, those included that are used for something else by now.
        208 => AllOomKills { count: u32 },
        /// What a signer has said of a certificate and its key: of the files at these paths (none, where the key is in
        /// the same file), as they were when they were given to it (`given`: the numbers of a version, and those of the
        /// key's), and whether any change since then has given them another version. The signers that have yet to say
        /// what became of the files, and until which second since 1970 what clients have against the certificate is in
        /// the log.
        209 => Certificate {
            site: u16, number: u16, path: Text<PATH_MAX>, key: Text<PATH_MAX>, given: Vec<u64>, is_settled: bool, verdict: Verdict,
            holding: Holding, owed: Vec<u64>, objected_at: u64,
        },
        /// A process that the launcher has taken over from one before, and of which version that is which has started
        /// the process.
        210 => OfVersion { serial: u64, version: Text<64> },
    }
}

/// Why a record is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordError {
    /// It is no record, or not the whole of one.
    Torn(&'static str),
    /// It is of a version that this launcher does not read.
    Version(u16),
    /// An item of it is wrong: its number in the record, and what is wrong.
    Item(usize, DecodeError),
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Torn(what) => write!(f, "the record of the launcher before is not whole: {what}"),
            Self::Version(found) => {
                let (first, last) = (RECORD_VERSION.saturating_sub(1), RECORD_VERSION + 1);
                write!(
                    f,
                    "the launcher before writes records of version {found}; this one reads {first} to {last}; upgrade by way \
                     of a version between the two, or restart the server"
                )
            }
            Self::Item(number, error) => {
                write!(f, "item {number} of the record of the launcher before: {error}; restart the server")
            }
        }
    }
}

impl std::error::Error for RecordError {}

/// A whole record of these items.
pub fn seal<'i>(items: impl IntoIterator<Item = &'i LauncherToSuccessor>) -> Vec<u8> {
    let mut record = vec![0; HEAD];
    items.into_iter().for_each(|item| add_item(&mut record, item));
    let (length, checksum) = ((record.len() - HEAD) as u64, checksum(&record[HEAD..]));
    let mut head = MAGIC.to_vec();
    head.extend(RECORD_VERSION.to_le_bytes());
    head.extend(length.to_le_bytes());
    head.extend(checksum.to_le_bytes());
    record[..HEAD].copy_from_slice(&head);
    record
}

/// The items of a record.
///
/// # Errors
/// The record is not whole, of another version, or has an item that cannot be understood and must be.
pub fn unseal(record: &[u8]) -> Result<Vec<LauncherToSuccessor>, RecordError> {
    let mut reader = Reader(record);
    let short = |_| RecordError::Torn("it is too short");
    let magic: [u8; 8] = reader.array().map_err(short)?;
    if magic != *MAGIC {
        return Err(RecordError::Torn("it begins with something else"));
    }
    let version = u16::from_le_bytes(reader.array().map_err(short)?);
    if version.abs_diff(RECORD_VERSION) > 1 {
        return Err(RecordError::Version(version));
    }
    let length = u64::from_le_bytes(reader.array().map_err(short)?);
    let sum = u64::from_le_bytes(reader.array().map_err(short)?);
    if length != reader.0.len() as u64 || checksum(reader.0) != sum {
        return Err(RecordError::Torn("its length or its checksum is another"));
    }
    let (mut items, mut number) = (Vec::new(), 0);
    while !reader.0.is_empty() {
        number += 1;
        let wrong = |error| RecordError::Item(number, error);
        match LauncherToSuccessor::decode(reader.item().map_err(wrong)?) {
            Err(DecodeError::Type(kind)) if kind >= OPTIONAL => {}
            item => items.push(item.map_err(wrong)?),
        }
    }
    Ok(items)
}

/// FNV-1a: it finds what was torn or overwritten by mistake; nobody else can write to a record.
fn checksum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items() -> Vec<LauncherToSuccessor> {
        vec![
            LauncherToSuccessor::Site { name: Text::new("a"), serves: true },
            LauncherToSuccessor::Used { slot: 7 },
            LauncherToSuccessor::ChainUnread { descriptor: NO_DESCRIPTOR },
        ]
    }

    /// The record with other bytes behind its head, and a checksum that is right.
    fn resealed(version: u16, body: &[u8]) -> Vec<u8> {
        let mut record = MAGIC.to_vec();
        record.extend(version.to_le_bytes());
        record.extend((body.len() as u64).to_le_bytes());
        record.extend(checksum(body).to_le_bytes());
        record.extend(body);
        record
    }

    #[test]
    fn what_was_written_is_read() {
        let record = seal(&items());
        assert_eq!(unseal(&record), Ok(items()));
        assert_eq!(resealed(RECORD_VERSION, &record[HEAD..]), record);
    }

    #[test]
    fn every_byte_counts() {
        let record = seal(&items());
        for length in 0..record.len() {
            assert!(unseal(&record[..length]).is_err(), "{length}");
        }
        for at in 0..record.len() {
            let mut other = record.clone();
            other[at] ^= 4;
            assert!(unseal(&other).is_err(), "{at}");
        }
    }

    #[test]
    fn neighbouring_versions_are_read_and_no_others() {
        let record = seal(&items());
        for version in 0..6 {
            let read = unseal(&resealed(version, &record[HEAD..]));
            match version.abs_diff(RECORD_VERSION) {
                0 | 1 => assert_eq!(read, Ok(items())),
                _ => assert_eq!(read, Err(RecordError::Version(version))),
            }
        }
    }

    #[test]
    fn items_that_may_be_skipped_are_skipped_and_no_others() {
        let version = crate::codec::VERSION;
        let item = |kind: u8| [&3_u32.to_le_bytes()[..], &[version, kind, 9]].concat();
        let body = [&item(254), &seal(&items())[HEAD..], &item(255)].concat();
        assert_eq!(unseal(&resealed(RECORD_VERSION + 1, &body)), Ok(items()));
        let body = [&seal(&items())[HEAD..], &item(127)].concat();
        assert_eq!(
            unseal(&resealed(RECORD_VERSION + 1, &body)),
            Err(RecordError::Item(4, DecodeError::Type(127)))
        );
    }
}
