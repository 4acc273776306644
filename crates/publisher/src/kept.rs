//! Versions that outlive this process: each is written down before it is activated anywhere. So a publisher that
//! follows a killed one has every process hold what was decided last, and nothing else.
//!
//! Sees: what the publisher before has kept, which may have been taken over. Never: takes of it a version that is not
//! whole, does not compile, or has public values that are not the operator's.
//!
//! The memory has two halves, for one version each: a head, and the parts that a service is sent, each behind its
//! length. The older version is overwritten, so that one which was not written to its end leaves the newer one whole.
//! The number of a version, which follows from its content, shows whether the version is whole.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::fd::OwnedFd;

use templates::{ALL_BYTES_MAX, Incoming, Sources, TEMPLATES_MAX, TemplateMistake, VALUES_MAX};
use wire::Message as _;
use wire::data::NAME_MAX;
use wire::templates::{MEMORY_BYTES, PublisherToService, SOURCE_PART_MAX, TEMPLATE_NAME_MAX, VALUE_TEXT_MAX};

use crate::members::Version;
use crate::publish::compile;

const HALF: usize = MEMORY_BYTES as usize / 2;
/// The magic, how many versions were written up to this one, its number, and the length of its parts.
const HEAD: usize = 8 + 8 + 8 + 8;
/// Another layout has another one.
const MAGIC: &[u8; 8] = b"versions";
/// More than a part has beside its texts, with its length.
const PART: usize = 32;
/// The longest that a version can be.
const LONGEST: usize = HEAD
    + (ALL_BYTES_MAX / SOURCE_PART_MAX + 3) * PART
    + ALL_BYTES_MAX
    + TEMPLATES_MAX * (PART + TEMPLATE_NAME_MAX)
    + VALUES_MAX * (PART + NAME_MAX + VALUE_TEXT_MAX);
const _: () = assert!(LONGEST <= HALF, "every version has room in half of the memory");

/// Where versions are kept.
#[derive(Debug)]
pub(crate) struct Memory {
    file: File,
    /// How many were written.
    written: u64,
}

impl Memory {
    /// Memory that nothing was written to.
    pub(crate) fn new(memory: OwnedFd) -> Self {
        Self { file: memory.into(), written: 0 }
    }

    /// Keeps a version, in the place of the one before the last.
    ///
    /// # Errors
    /// There is no memory for it; the last one is kept.
    pub(crate) fn keep(&mut self, version: &Version) -> io::Result<()> {
        let place = self.written % 2 * HALF as u64;
        let parts = packed(version);
        // A head that stands there already is none of these parts: it is told by the number.
        self.file.seek(SeekFrom::Start(place + HEAD as u64))?;
        self.file.write_all(&parts)?;
        let mut head = MAGIC.to_vec();
        for number in [self.written + 1, version.number, parts.len() as u64] {
            head.extend(number.to_le_bytes());
        }
        self.file.seek(SeekFrom::Start(place))?;
        self.file.write_all(&head)?;
        self.written += 1;
        Ok(())
    }
}

/// The parts of a version, each behind its length.
fn packed(version: &Version) -> Vec<u8> {
    let (mut all, mut bytes) = (Vec::new(), Vec::new());
    for part in version.sources.parts(version.number) {
        bytes.clear();
        part.encode(&mut bytes);
        all.extend((bytes.len() as u32).to_le_bytes());
        all.extend(&bytes);
    }
    all
}

/// The version that the publisher before has kept last.
///
/// # Errors
/// Why there is none that could be used.
pub(crate) fn version(memory: OwnedFd, values: &Sources) -> Result<Version, String> {
    let sources = newest(&mut File::from(memory))?;
    if sources.values != values.values {
        return Err("it has other public values than the configuration".into());
    }
    compile(sources).map_err(|mistakes| {
        let mistakes: Vec<String> = mistakes.iter().take(3).map(TemplateMistake::to_string).collect();
        mistakes.join("; ")
    })
}

fn newest(file: &mut File) -> Result<Sources, String> {
    let halves = [0, HALF].map(|place| half(file, place).and_then(|half| read(&half)));
    let newest = halves.iter().flatten().max_by_key(|(written, _)| *written);
    match newest {
        Some((_, sources)) => Ok(sources.clone()),
        None => Err(halves.into_iter().filter_map(Result::err).collect::<Vec<_>>().join("; ")),
    }
}

/// The bytes of one half, as far as its head says that they belong to a version.
fn half(file: &mut File, place: usize) -> Result<Vec<u8>, String> {
    let unread = |error: io::Error| format!("it cannot be read: {error}");
    let mut bytes = vec![0; HEAD];
    file.seek(SeekFrom::Start(place as u64)).map_err(unread)?;
    file.read_exact(&mut bytes).map_err(unread)?;
    let (_, _, length) = head(&bytes)?;
    file.take(length as u64).read_to_end(&mut bytes).map_err(unread)?;
    Ok(bytes)
}

/// Reads a head: how many versions were written up to this one, its number, and the length of its parts.
fn head(bytes: &[u8]) -> Result<(u64, u64, usize), String> {
    let none = || "there is no version".to_owned();
    let (magic, numbers) = bytes.split_at_checked(MAGIC.len()).ok_or_else(none)?;
    let (numbers, rest) = numbers.as_chunks::<8>();
    match numbers {
        [written, number, length] if magic == MAGIC && rest.is_empty() => {
            let length = usize::try_from(u64::from_le_bytes(*length)).ok().filter(|of| *of <= HALF - HEAD);
            let length = length.ok_or_else(|| format!("a version has more than {HALF} bytes"))?;
            Ok((u64::from_le_bytes(*written), u64::from_le_bytes(*number), length))
        }
        _ => Err(none()),
    }
}

/// Reads what one half of the memory has: a version, and how many were written up to it.
///
/// # Errors
/// It has none, or none that is whole.
pub fn read(half: &[u8]) -> Result<(u64, Sources), String> {
    let (bytes, mut parts) = half.split_at_checked(HEAD).ok_or("there is no version")?;
    let (written, number, length) = head(bytes)?;
    if parts.len() != length {
        return Err("a version is cut off".into());
    }
    let mut incoming = Incoming::default();
    while let Some((length, rest)) = parts.split_first_chunk::<4>() {
        let length = u32::from_le_bytes(*length) as usize;
        let (part, rest) = rest.split_at_checked(length).ok_or("a part of a version is cut off")?;
        match PublisherToService::decode(part) {
            Ok(PublisherToService::Stage { version }) if version == number && rest.is_empty() => {
                return Ok((written, incoming.whole(number)?));
            }
            Ok(part) => incoming.take(part),
            Err(error) => return Err(format!("a part of a version is malformed: {error}")),
        }
        parts = rest;
    }
    Err("a version has no end".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version_of(text: &str) -> Version {
        let mut sources = Sources::default();
        sources.add("a".into(), text.into()).unwrap();
        sources.values.insert("company".into(), templates::text_value("ACME"));
        Version { number: sources.version(), sources }
    }

    fn values() -> Sources {
        Sources { templates: Default::default(), ..version_of("").sources }
    }

    fn memory() -> (Memory, OwnedFd) {
        let memory = sys::memfd::of_size(c"test", MEMORY_BYTES).unwrap();
        let reading = sys::memfd::to_be_read(&memory).unwrap();
        (Memory::new(memory), reading)
    }

    fn found(reading: &OwnedFd) -> Result<String, String> {
        let version = version(reading.try_clone().unwrap(), &values())?;
        Ok(version.sources.templates["a"].clone())
    }

    #[test]
    fn the_last_of_many_versions_is_found() {
        let (mut memory, reading) = memory();
        assert!(found(&reading).unwrap_err().contains("there is no version"));
        for text in ["1", "2", "3", "4", "2"] {
            memory.keep(&version_of(text)).unwrap();
            assert_eq!(found(&reading), Ok(text.to_owned()));
        }
    }

    #[test]
    fn a_version_that_is_not_written_to_its_end_leaves_the_one_before() {
        for (before, last) in [(vec!["1"], "1"), (vec!["1", "2"], "2"), (vec!["1", "2", "3"], "3")] {
            let parts = packed(&version_of("next"));
            // Only the head is missing when all of the parts are there.
            for end in [1, parts.len() / 2, parts.len() - 1, parts.len()] {
                let (mut memory, reading) = memory();
                before.iter().for_each(|text| memory.keep(&version_of(text)).unwrap());
                memory.file.seek(SeekFrom::Start(memory.written % 2 * HALF as u64 + HEAD as u64)).unwrap();
                memory.file.write_all(&parts[..end]).unwrap();
                assert_eq!(found(&reading), Ok(last.to_owned()));
            }
        }
    }

    #[test]
    fn the_longest_version_has_room() {
        let mut sources = Sources::default();
        let source = "x".repeat(ALL_BYTES_MAX / TEMPLATES_MAX);
        for number in 0..TEMPLATES_MAX {
            sources.add(format!("{number:0>TEMPLATE_NAME_MAX$}"), source.clone()).unwrap();
        }
        for number in 0..VALUES_MAX {
            let value = templates::text_value(&"x".repeat(VALUE_TEXT_MAX));
            sources.values.insert(format!("{number:x>NAME_MAX$}"), value);
        }
        let version = Version { number: sources.version(), sources };
        assert!((HALF / 2..LONGEST).contains(&packed(&version).len()));
        let (mut memory, reading) = memory();
        (0..3).for_each(|_| memory.keep(&version).unwrap());
        assert_eq!(newest(&mut File::from(reading)), Ok(version.sources));
    }

    #[test]
    fn nonsense_is_refused_and_says_why() {
        let refused = |change: &dyn Fn(&mut Vec<u8>), why: &str| {
            let version = version_of("1");
            let mut half = [&MAGIC[..], &1_u64.to_le_bytes(), &version.number.to_le_bytes()].concat();
            half.extend((packed(&version).len() as u64).to_le_bytes());
            half.extend(packed(&version));
            read(&half).unwrap();
            change(&mut half);
            let error = read(&half).unwrap_err();
            assert!(error.contains(why), "{error}");
        };
        refused(&|half| half[0] = 0, "there is no version");
        refused(&|half| half.truncate(HEAD - 1), "there is no version");
        refused(&|half| half[HEAD - 1] = 1, "more than");
        refused(&|half| half.push(0), "cut off");
        refused(&|half| half[16] ^= 1, "no end");
        refused(&|half| half[HEAD] = 255, "a part of a version is cut off");
        refused(&|half| half[HEAD + 4] = 99, "malformed");
        let last = |half: &mut Vec<u8>| {
            let at = half.iter().rposition(|byte| *byte == b'1').unwrap();
            half[at] = b'2';
        };
        refused(&last, "it has not come whole");
    }

    #[test]
    fn what_does_not_compile_or_has_other_values_is_refused() {
        let (mut memory, reading) = memory();
        memory.keep(&version_of("{% if %}")).unwrap();
        assert!(found(&reading).unwrap_err().contains("a:1: syntax error"));
        memory.keep(&version_of("1")).unwrap();
        assert!(version(reading, &Sources::default()).unwrap_err().contains("other public values"));
    }
}
