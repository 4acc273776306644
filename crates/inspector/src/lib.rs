//! How a program is to be started: alone, by a dynamic loader, or by the interpreter of a script. And of which version
//! a program of ours is.
//!
//! Runs in: the `inspector` process, which the launcher or the guard starts for one program: under the uid of the
//! program's service, in an empty root, without network. Sees: the program, which a partition's owner may have made:
//! untrusted bytes. Never: opens a file, believes a number of the program's without a check, or prints more than one
//! short line about a program.
//!
//! Root reads that line and nothing of the program. Sources: the System V ABI, chapters 4 and 5 ("Object Files",
//! "Program Loading"); execve(2) for scripts.

use object::LittleEndian;
use object::elf::{self, FileHeader64, ProgramHeader64};
use object::read::ReadRef;
use object::read::elf::{FileHeader as _, NoteIterator, ProgramHeader as _};
use thiserror::Error;

/// LIMIT: program headers; linkers make about a dozen.
const HEADERS_MAX: u16 = 64;
/// LIMIT: bytes of one header's notes that are read; linkers write some hundred.
const NOTES_BYTES_MAX: u64 = 4096;
/// LIMIT: bytes of the loader's path with the nought at its end; known ones have 20 to 30.
const LOADER_BYTES_MAX: u64 = 256;
/// LIMIT: bytes of a script's first line that the kernel reads.
const SCRIPT_LINE_MAX: u64 = 256;
/// LIMIT: bytes of a version.
const VERSION_BYTES_MAX: usize = 64;
/// LIMIT: characters of a loader's path that are printed. A longer path is none that anybody knows.
const PRINTED_MAX: usize = 200;

type Header = FileHeader64<LittleEndian>;

/// How a program is to be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartMethod {
    /// The kernel needs nothing but the program.
    Static,
    /// The program names a dynamic loader.
    Dynamic {
        /// The loader's path, without the nought at its end.
        loader: Vec<u8>,
        /// Whether Go's toolchain has made the program: such a program makes its system calls itself.
        is_go: bool,
    },
    /// The program is a script.
    Script {
        /// The path of the interpreter.
        interpreter: Vec<u8>,
    },
}

/// How the kernel maps a program so that it has memory which is writable and executable, before it makes its first
/// system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loose {
    /// It asks for a stack that can be executed.
    Stack,
    /// It does not say what its stack is to be: kernels before 5.8 make all of its memory executable.
    Unsaid,
    /// A segment of it is writable and executable.
    Segment,
}

impl Loose {
    /// All of them, by the word of an answer.
    pub const ALL: [(&str, Self); 3] =
        [("stack", Self::Stack), ("unsaid", Self::Unsaid), ("segment", Self::Segment)];
}

/// Why a program cannot be started.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum ProgramFault {
    /// It ends before, or cannot be read at, a place that it names.
    #[error("ends before its head does")]
    Short,
    /// It begins neither as ELF files do nor as scripts do.
    #[error("is not an ELF executable")]
    NotElf,
    /// It is for machines of 32 bits, or of the other order of bytes.
    #[error("is not for a 64-bit machine with the lesser byte first")]
    OtherMachine,
    /// It is an object file, a core file, or something else.
    #[error("is an ELF file, but not an executable")]
    NotExecutable,
    /// Its program headers have another size than those of 64 bits have.
    #[error("has program headers of {size} bytes; they have {}", size_of::<ProgramHeader64<LittleEndian>>())]
    HeaderSize {
        /// In bytes.
        size: u16,
    },
    /// It has no program headers, or more than the limit.
    #[error("has {count} program headers; at least 1 and at most {HEADERS_MAX} are read")]
    HeaderCount {
        /// How many it claims.
        count: u16,
    },
    /// The loader's path is empty or longer than the limit.
    #[error("names its dynamic loader in {length} bytes; at least 2 and at most {LOADER_BYTES_MAX} are read")]
    LoaderLength {
        /// In bytes, with the nought at its end.
        length: u64,
    },
    /// The loader's path does not end with a nought.
    #[error("does not end the name of its dynamic loader")]
    LoaderEnd,
    /// A script names no interpreter, or one whose path cannot be printed.
    #[error("names no interpreter in its first line")]
    NoInterpreter,
}

/// How the program `data` is to be started.
///
/// # Errors
/// The program is none that the kernel starts, or one beyond the limits.
pub fn inspect<'data>(data: impl ReadRef<'data>) -> Result<StartMethod, ProgramFault> {
    let length = data.len().map_err(|()| ProgramFault::Short)?;
    let first = data.read_bytes_at(0, length.min(SCRIPT_LINE_MAX)).map_err(|()| ProgramFault::Short)?;
    if let Some(line) = first.strip_prefix(b"#!") {
        return script(line);
    }
    let headers = headers(data)?;
    // The kernel, too, takes the first one.
    let Some(loader) = headers.iter().find(|header| header.p_type(LittleEndian) == elf::PT_INTERP) else {
        return Ok(StartMethod::Static);
    };
    let loader = loader_path(loader, data)?;
    Ok(StartMethod::Dynamic {
        loader,
        is_go: headers.iter().any(|header| note(header, data, b"Go").is_some()),
    })
}

/// How the program `data` would have memory in which it can make code, if it would. No policy of system calls sees
/// that.
///
/// # Errors
/// As of [`inspect`].
pub fn loose<'data>(data: impl ReadRef<'data>) -> Result<Option<Loose>, ProgramFault> {
    let headers = headers(data)?;
    let flags = |kind| {
        let of_kind = headers.iter().filter(move |header| header.p_type(LittleEndian) == kind);
        of_kind.map(|header| header.p_flags(LittleEndian).0)
    };
    let both = elf::PF_W.0 | elf::PF_X.0;
    Ok(match () {
        () if flags(elf::PT_LOAD).any(|flags| flags & both == both) => Some(Loose::Segment),
        // The kernel takes the last one.
        () if flags(elf::PT_GNU_STACK).any(|flags| flags & elf::PF_X.0 != 0) => Some(Loose::Stack),
        () if flags(elf::PT_GNU_STACK).next().is_none() => Some(Loose::Unsaid),
        () => None,
    })
}

/// Of which version the program `data` says that it is, if it is one of ours.
///
/// # Errors
/// The program is none that the kernel starts, or one beyond the limits.
pub fn version<'data>(data: impl ReadRef<'data>) -> Result<Option<String>, ProgramFault> {
    let mut notes =
        headers(data)?.iter().filter_map(|header| note(header, data, sys::version::OWNER.as_bytes()));
    let text = |note: &[u8]| {
        let is_version =
            (1..=VERSION_BYTES_MAX).contains(&note.len()) && note.iter().all(u8::is_ascii_graphic);
        is_version.then(|| String::from_utf8_lossy(note).into_owned())
    };
    Ok(notes.find_map(text))
}

/// The program headers, of which the kernel reads as many as the program claims.
fn headers<'data>(data: impl ReadRef<'data>) -> Result<&'data [ProgramHeader64<LittleEndian>], ProgramFault> {
    let length = data.len().map_err(|()| ProgramFault::Short)?;
    let first =
        data.read_bytes_at(0, length.min(elf::ELFMAG.len() as u64)).map_err(|()| ProgramFault::Short)?;
    if first != elf::ELFMAG {
        return Err(if first.len() < elf::ELFMAG.len() { ProgramFault::Short } else { ProgramFault::NotElf });
    }
    if length < size_of::<Header>() as u64 {
        return Err(ProgramFault::Short);
    }
    let header = Header::parse(data).map_err(|_| ProgramFault::OtherMachine)?;
    header.endian().map_err(|_| ProgramFault::OtherMachine)?;
    if !matches!(header.e_type(LittleEndian), elf::ET_EXEC | elf::ET_DYN) {
        return Err(ProgramFault::NotExecutable);
    }
    let (size, count) = (header.e_phentsize(LittleEndian), header.e_phnum(LittleEndian));
    if usize::from(size) != size_of::<ProgramHeader64<LittleEndian>>() {
        return Err(ProgramFault::HeaderSize { size });
    }
    if count == 0 || count > HEADERS_MAX {
        return Err(ProgramFault::HeaderCount { count });
    }
    let headers = header.program_headers(LittleEndian, data).map_err(|_| ProgramFault::Short)?;
    // The library takes headers at the very beginning for none.
    if headers.is_empty() { Err(ProgramFault::HeaderCount { count: 0 }) } else { Ok(headers) }
}

fn loader_path<'data>(
    header: &ProgramHeader64<LittleEndian>,
    data: impl ReadRef<'data>,
) -> Result<Vec<u8>, ProgramFault> {
    let length = header.p_filesz(LittleEndian);
    if !(2..=LOADER_BYTES_MAX).contains(&length) {
        return Err(ProgramFault::LoaderLength { length });
    }
    // Not `interpreter`, which ends at the first nought.
    let path = header.data(LittleEndian, data).map_err(|()| ProgramFault::Short)?;
    path.strip_suffix(b"\0").map(<[u8]>::to_vec).ok_or(ProgramFault::LoaderEnd)
}

/// The first note of `owner`; those of a toolchain say which one has made the program.
///
/// Notes that cannot be read are none: no loader reads them.
fn note<'data>(
    header: &ProgramHeader64<LittleEndian>,
    data: impl ReadRef<'data>,
    owner: &[u8],
) -> Option<&'data [u8]> {
    if header.p_type(LittleEndian) != elf::PT_NOTE {
        return None;
    }
    let length = header.p_filesz(LittleEndian).min(NOTES_BYTES_MAX);
    let notes = data.read_bytes_at(header.p_offset(LittleEndian), length).unwrap_or_default();
    let notes = NoteIterator::<Header>::new(LittleEndian, 4, notes).ok()?;
    notes.map_while(Result::ok).find(|note| note.name() == owner).map(|note| note.desc())
}

/// The interpreter that the first line of a script names, behind its `#!`.
fn script(line: &[u8]) -> Result<StartMethod, ProgramFault> {
    let line = line.split(|&byte| byte == b'\n').next().unwrap_or_default().trim_ascii();
    let path = line.split(u8::is_ascii_whitespace).next().unwrap_or_default();
    if path.is_empty() || path.iter().any(u8::is_ascii_control) {
        return Err(ProgramFault::NoInterpreter);
    }
    Ok(StartMethod::Script { interpreter: path.to_vec() })
}

/// The line that says so: `static`, `dynamic PATH`, `go PATH`, `script PATH` or `refused WHY`; before each but the last
/// two, `stack`, `unsaid` or `segment` if the program is loose.
///
/// The path of a loader is escaped, and cut if it is long: it is compared with those that are known. The path of an
/// interpreter stands there as it is.
pub fn answer(found: &Result<StartMethod, ProgramFault>, loose: Option<Loose>) -> Vec<u8> {
    let word = Loose::ALL.into_iter().find_map(|(word, of)| (Some(of) == loose).then(|| format!("{word} ")));
    let word = word.filter(|_| matches!(found, Ok(StartMethod::Static | StartMethod::Dynamic { .. })));
    let mut line = word.unwrap_or_default().into_bytes();
    line.extend(match found {
        Ok(StartMethod::Static) => b"static".to_vec(),
        Ok(StartMethod::Dynamic { loader, is_go }) => {
            let escaped: String = loader.escape_ascii().to_string().chars().take(PRINTED_MAX).collect();
            format!("{} {escaped}", if *is_go { "go" } else { "dynamic" }).into_bytes()
        }
        Ok(StartMethod::Script { interpreter }) => [b"script ", &interpreter[..]].concat(),
        Err(fault) => format!("refused {fault}").into_bytes(),
    });
    line.push(b'\n');
    line
}

/// The line about a version: `version VERSION`, `silent` or `refused WHY`.
pub fn version_answer(found: &Result<Option<String>, ProgramFault>) -> Vec<u8> {
    let line = match found {
        Ok(Some(version)) => format!("version {version}\n"),
        Ok(None) => "silent\n".to_owned(),
        Err(fault) => format!("refused {fault}\n"),
    };
    line.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD_BYTES: usize = size_of::<Header>();
    const HEADER_BYTES: usize = size_of::<ProgramHeader64<LittleEndian>>();
    const LOADER: &[u8] = b"/lib/ld-musl-x86_64.so.1\0";

    /// A program with one header of another kind and, if it is to have a loader, one that names it.
    fn program(loader: Option<&[u8]>) -> Vec<u8> {
        let mut made = vec![0; HEAD_BYTES + 2 * HEADER_BYTES];
        made[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        made[16] = 3;
        made[32] = HEAD_BYTES as u8;
        made[54] = HEADER_BYTES as u8;
        made[56] = 2;
        made[HEAD_BYTES] = 1;
        if let Some(loader) = loader {
            let (header, at) = (HEAD_BYTES + HEADER_BYTES, made.len() as u64);
            made[header] = 3;
            made[header + 8..header + 16].copy_from_slice(&at.to_le_bytes());
            made[header + 32..header + 40].copy_from_slice(&(loader.len() as u64).to_le_bytes());
            made.extend_from_slice(loader);
        }
        made
    }

    fn changed(at: usize, value: &[u8]) -> Result<StartMethod, ProgramFault> {
        let mut made = program(Some(LOADER));
        made[at..at + value.len()].copy_from_slice(value);
        inspect(&made[..])
    }

    #[test]
    fn finds_the_loader_or_none() {
        let loader = LOADER.strip_suffix(b"\0").unwrap().to_vec();
        let found = inspect(&program(Some(LOADER))[..]);
        assert_eq!(found, Ok(StartMethod::Dynamic { loader, is_go: false }));
        assert_eq!(answer(&found, None), b"dynamic /lib/ld-musl-x86_64.so.1\n");
        assert_eq!(inspect(&program(None)[..]), Ok(StartMethod::Static));
    }

    /// The smallest programs have their header inside of the head; the kernel starts them.
    #[test]
    fn a_program_may_be_no_longer_than_its_head() {
        let mut made = program(None);
        made.truncate(HEAD_BYTES);
        (made[32], made[56]) = ((HEAD_BYTES - HEADER_BYTES) as u8, 1);
        assert_eq!(inspect(&made[..]), Ok(StartMethod::Static));
    }

    #[test]
    fn finds_go_by_its_note() {
        let notes = b"\x04\0\0\0\x05\0\0\0\x01\0\0\0GNU\0abcde\0\0\0\x04\0\0\0\0\0\0\0\x04\0\0\0Go\0\0";
        for (length, expected) in [(notes.len(), true), (notes.len() - 4, false), (7, false)] {
            let made = with_notes(&notes[..length]);
            let Ok(StartMethod::Dynamic { is_go, .. }) = inspect(&made[..]) else { panic!("{length}") };
            assert_eq!(is_go, expected, "{length}");
        }
    }

    /// A program with a loader and with these notes.
    fn with_notes(notes: &[u8]) -> Vec<u8> {
        let mut made = program(Some(LOADER));
        let at = made.len() as u64;
        made[HEAD_BYTES] = 4;
        made[HEAD_BYTES + 8..HEAD_BYTES + 16].copy_from_slice(&at.to_le_bytes());
        made[HEAD_BYTES + 32..HEAD_BYTES + 40].copy_from_slice(&(notes.len() as u64).to_le_bytes());
        made.extend_from_slice(notes);
        made
    }

    #[test]
    fn reads_this_very_program() {
        let own = std::fs::read("/proc/self/exe").unwrap();
        assert!(inspect(&own[..]).is_ok());
        let version = version(&own[..]);
        assert_eq!(version, Ok(Some(env!("CARGO_PKG_VERSION").to_owned())));
        assert_eq!(version_answer(&version), concat!("version ", env!("CARGO_PKG_VERSION"), "\n").as_bytes());
    }

    #[test]
    fn finds_a_version_by_its_note() {
        let of = |text: &[u8]| {
            let lengths = [9_u32, text.len() as u32, 1].map(u32::to_le_bytes).concat();
            let filled = [text, &[0; 3][..(4 - text.len() % 4) % 4]].concat();
            version(&with_notes(&[&lengths[..], b"bulkhead\0\0\0\0", &filled].concat())[..])
        };
        assert_eq!(of(b"1.20.3"), Ok(Some("1.20.3".into())));
        for none in [&b""[..], b"1.0\n", b"1 0", &[b'1'; VERSION_BYTES_MAX + 1]] {
            assert_eq!(of(none), Ok(None));
        }
        assert_eq!(version(&program(None)[..]), Ok(None));
        assert_eq!(version_answer(&Ok(None)), b"silent\n");
        assert_eq!(version(&b"#!/bin/sh"[..]), Err(ProgramFault::NotElf));
        assert_eq!(version_answer(&Err(ProgramFault::NotElf)), b"refused is not an ELF executable\n");
    }

    #[test]
    fn refuses_what_is_no_program() {
        assert_eq!(
            (inspect(&b""[..]), inspect(&b"tru"[..])),
            (Err(ProgramFault::Short), Err(ProgramFault::Short))
        );
        assert_eq!(inspect(&b"true"[..]), Err(ProgramFault::NotElf));
        assert_eq!(changed(0, b"x"), Err(ProgramFault::NotElf));
        assert_eq!(changed(4, &[1]), Err(ProgramFault::OtherMachine));
        assert_eq!(changed(5, &[2]), Err(ProgramFault::OtherMachine));
        assert_eq!(changed(16, &[1]), Err(ProgramFault::NotExecutable));
        assert_eq!(changed(54, &[32]), Err(ProgramFault::HeaderSize { size: 32 }));
        assert_eq!(changed(56, &[0]), Err(ProgramFault::HeaderCount { count: 0 }));
        assert_eq!(changed(56, &[64]), Err(ProgramFault::Short), "so many are read");
        assert_eq!(changed(56, &[65]), Err(ProgramFault::HeaderCount { count: 65 }));
        assert_eq!(changed(32, &[0]), Err(ProgramFault::HeaderCount { count: 0 }), "headers over headers");
    }

    #[test]
    fn refuses_places_beyond_the_end() {
        let whole = program(Some(LOADER));
        for length in 0..whole.len() {
            assert_eq!(inspect(&whole[..length]), Err(ProgramFault::Short), "{length}");
        }
        for at in [32, HEAD_BYTES + HEADER_BYTES + 8] {
            assert_eq!(changed(at, &[0xff; 8]), Err(ProgramFault::Short), "{at}");
        }
        // Sections beyond the end are nobody's concern: neither the kernel nor a loader reads them.
        assert!(changed(40, &[0xff; 8]).is_ok());
    }

    #[test]
    fn refuses_names_without_end_or_measure() {
        let of = |loader: &[u8]| inspect(&program(Some(loader))[..]);
        assert_eq!(of(b"\0"), Err(ProgramFault::LoaderLength { length: 1 }));
        assert_eq!(of(&[0; 257]), Err(ProgramFault::LoaderLength { length: 257 }));
        assert_eq!(of(b"/lib/ld"), Err(ProgramFault::LoaderEnd));
        let huge = changed(HEAD_BYTES + HEADER_BYTES + 32, &[0xff; 8]);
        assert_eq!(huge, Err(ProgramFault::LoaderLength { length: u64::MAX }));
    }

    /// Every kind of header with every combination of flags, alone and beside a stack that is data.
    #[test]
    fn writable_and_executable_is_told_of_every_header() {
        for flags in 0..16 {
            for kind in (0..=8).map(elf::ProgramType).chain([elf::PT_GNU_STACK, elf::PT_GNU_RELRO]) {
                let mut made = program(None);
                made[HEAD_BYTES..HEAD_BYTES + 4].copy_from_slice(&kind.0.to_le_bytes());
                made[HEAD_BYTES + 4..HEAD_BYTES + 8].copy_from_slice(&u32::to_le_bytes(flags));
                let alone = loose(&made[..]).unwrap();
                let is_stack = kind == elf::PT_GNU_STACK;
                let is_both = kind == elf::PT_LOAD && flags & 3 == 3;
                let expected = match () {
                    () if is_both => Some(Loose::Segment),
                    () if is_stack && flags & 1 == 1 => Some(Loose::Stack),
                    () if is_stack => None,
                    () => Some(Loose::Unsaid),
                };
                assert_eq!(alone, expected, "{kind:?} {flags}");
                let second = HEAD_BYTES + HEADER_BYTES;
                made[second..second + 4].copy_from_slice(&elf::PT_GNU_STACK.0.to_le_bytes());
                made[second + 4] = 6;
                let expected = expected.filter(|loose| *loose != Loose::Unsaid);
                assert_eq!(loose(&made[..]), Ok(expected), "{kind:?} {flags}");
            }
        }
        assert_eq!(answer(&Ok(StartMethod::Static), Some(Loose::Segment)), b"segment static\n");
        assert_eq!(loose(&b"#!/bin/sh"[..]), Err(ProgramFault::NotElf));
    }

    #[test]
    fn a_script_names_its_interpreter() {
        let of = |line: &[u8]| inspect(line);
        let shell = StartMethod::Script { interpreter: b"/bin/sh".to_vec() };
        assert_eq!((of(b"#! /bin/sh -e\ntrue\n"), of(b"#!/bin/sh")), (Ok(shell.clone()), Ok(shell)));
        for line in [&b"#!"[..], b"#!\n/bin/sh", b"#!/bin/\x1bsh\n"] {
            assert_eq!(of(line), Err(ProgramFault::NoInterpreter));
        }
    }

    #[test]
    fn an_answer_is_one_short_line() {
        let line = answer(&Ok(StartMethod::Dynamic { loader: vec![0x1b; 255], is_go: true }), None);
        assert!(line.starts_with(b"go \\x1b\\x1b") && line.len() < 256 && line.ends_with(b"\n"));
        assert_eq!(
            answer(&Err(ProgramFault::NotElf), Some(Loose::Stack)),
            b"refused is not an ELF executable\n"
        );
    }
}
