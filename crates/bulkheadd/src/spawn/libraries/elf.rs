//! Which dynamic loader a program asks for: the few bytes of its head that say so.
//!
//! Runs in: the launcher. Sees: the head of a program that a partition's owner may have made: untrusted bytes.
//! Never: reads or keeps more than its limits, or follows a number of the program's without a check.
//!
//! It uses nothing but `std`, so that the fuzz target `program_head` takes this very file.
//!
//! Source: the System V ABI, chapters 4 and 5 ("Object Files", "Program Loading").

use std::fmt;
use std::io;

/// LIMIT: program headers; linkers make about a dozen.
const HEADERS_MAX: u16 = 64;
/// LIMIT: bytes of one header's notes that are looked at; linkers write some hundred.
const NOTES_BYTES_MAX: u64 = 4096;
/// LIMIT: bytes of the loader's path with the nought at its end; known ones have 20 to 30.
const INTERPRETER_BYTES_MAX: u64 = 256;

const HEAD_BYTES: usize = 64;
const HEADER_BYTES: usize = 56;

/// `e_ident`: 64 bits, the lesser byte first.
const CLASS_64: u8 = 2;
const LITTLE_ENDIAN: u8 = 1;
/// `e_type`: a program at a fixed place, and one that can be anywhere.
const EXECUTABLE: u16 = 2;
const SHARED: u16 = 3;
/// `p_type` of the header that says where the loader's path is, and of one for notes.
const INTERPRETER: u32 = 3;
const NOTES: u32 = 4;

/// Why a program cannot be one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It ends before, or cannot be read at, a place that it names.
    Short,
    /// It does not begin as ELF files do.
    NotElf,
    /// It is for machines of 32 bits, or of the other order of bytes.
    OtherMachine,
    /// It is an object file, a core file, or something else.
    NotExecutable,
    /// Its program headers have another size than those of 64 bits have.
    HeaderSize {
        /// In bytes.
        size: u16,
    },
    /// It has no program headers, or more than the limit.
    HeaderCount {
        /// How many it claims.
        count: u16,
    },
    /// The loader's path is empty or longer than the limit.
    InterpreterLength {
        /// In bytes, with the nought at its end.
        length: u64,
    },
    /// The loader's path does not end with a nought.
    InterpreterEnd,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short => write!(f, "ends before its head does"),
            Self::NotElf => write!(f, "is not an ELF executable"),
            Self::OtherMachine => write!(f, "is not for a 64-bit machine with the lesser byte first"),
            Self::NotExecutable => write!(f, "is an ELF file, but not an executable"),
            Self::HeaderSize { size } => {
                write!(f, "has program headers of {size} bytes; they have {HEADER_BYTES}")
            }
            Self::HeaderCount { count } => {
                write!(f, "has {count} program headers; at least 1 and at most {HEADERS_MAX} are read")
            }
            Self::InterpreterLength { length } => write!(
                f,
                "names its dynamic loader in {length} bytes; at least 2 and at most {INTERPRETER_BYTES_MAX} are read"
            ),
            Self::InterpreterEnd => write!(f, "does not end the name of its dynamic loader"),
        }
    }
}

/// The path of the dynamic loader that a program asks for, without the nought at its end; `None` if it is static.
///
/// `read` fills the whole of a buffer from a place in the program, or fails.
pub fn interpreter(mut read: impl FnMut(u64, &mut [u8]) -> io::Result<()>) -> Result<Option<Vec<u8>>, Fault> {
    let mut head = [0; HEAD_BYTES];
    read(0, &mut head).map_err(|_| Fault::Short)?;
    let (first, count) = headers(&head)?;
    for index in 0..u64::from(count) {
        let mut header = [0; HEADER_BYTES];
        let at = first.checked_add(index * HEADER_BYTES as u64).ok_or(Fault::Short)?;
        read(at, &mut header).map_err(|_| Fault::Short)?;
        // The kernel, too, takes the first one.
        if u32::from_le_bytes(field(&header, 0)) == INTERPRETER {
            let (at, length) = (long(&header, 8), long(&header, 32));
            return path(read, at, length).map(Some);
        }
    }
    Ok(None)
}

/// Whether a program carries a note of `owner`; those of a toolchain say which one has made it.
///
/// `read` is as for [`interpreter`].
pub fn has_note(mut read: impl FnMut(u64, &mut [u8]) -> io::Result<()>, owner: &[u8]) -> Result<bool, Fault> {
    let mut head = [0; HEAD_BYTES];
    read(0, &mut head).map_err(|_| Fault::Short)?;
    let (first, count) = headers(&head)?;
    for index in 0..u64::from(count) {
        let mut header = [0; HEADER_BYTES];
        let at = first.checked_add(index * HEADER_BYTES as u64).ok_or(Fault::Short)?;
        read(at, &mut header).map_err(|_| Fault::Short)?;
        if u32::from_le_bytes(field(&header, 0)) == NOTES {
            let mut notes = vec![0; long(&header, 32).min(NOTES_BYTES_MAX) as usize];
            read(long(&header, 8), &mut notes).map_err(|_| Fault::Short)?;
            if owners(&notes).any(|found| found == owner) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// The owners of notes, without the nought at their end: each note has the lengths of its owner and of its content, a
/// type, and then both, each up to a multiple of four bytes.
fn owners(notes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = notes;
    std::iter::from_fn(move || {
        let (head, after) = rest.split_at_checked(12)?;
        let length = |at| u32::from_le_bytes(field(head, at)) as usize;
        let (owner, after) = after.split_at_checked(length(0).next_multiple_of(4))?;
        let content = length(4).next_multiple_of(4);
        rest = after.get(content..).unwrap_or_default();
        let owner = &owner[..length(0)];
        // Go counts the noughts that fill the owner up as well.
        let end = owner.iter().position(|&byte| byte == 0).unwrap_or(owner.len());
        Some(&owner[..end])
    })
}

/// Where the program headers are, and how many.
fn headers(head: &[u8; HEAD_BYTES]) -> Result<(u64, u16), Fault> {
    if head[..4] != *b"\x7fELF" {
        return Err(Fault::NotElf);
    }
    if (head[4], head[5]) != (CLASS_64, LITTLE_ENDIAN) {
        return Err(Fault::OtherMachine);
    }
    if !matches!(short(head, 16), EXECUTABLE | SHARED) {
        return Err(Fault::NotExecutable);
    }
    let (size, count) = (short(head, 54), short(head, 56));
    if usize::from(size) != HEADER_BYTES {
        return Err(Fault::HeaderSize { size });
    }
    if count == 0 || count > HEADERS_MAX {
        return Err(Fault::HeaderCount { count });
    }
    Ok((long(head, 32), count))
}

fn path(
    mut read: impl FnMut(u64, &mut [u8]) -> io::Result<()>,
    at: u64,
    length: u64,
) -> Result<Vec<u8>, Fault> {
    if !(2..=INTERPRETER_BYTES_MAX).contains(&length) {
        return Err(Fault::InterpreterLength { length });
    }
    let mut path = vec![0; length as usize];
    read(at, &mut path).map_err(|_| Fault::Short)?;
    match path.pop() {
        Some(0) => Ok(path),
        _ => Err(Fault::InterpreterEnd),
    }
}

/// INVARIANT: all callers' fields lie within their header, whose size is fixed.
fn field<const N: usize>(header: &[u8], at: usize) -> [u8; N] {
    std::array::from_fn(|index| header[at + index])
}

fn short(header: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(field(header, at))
}

fn long(header: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(field(header, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOADER: &[u8] = b"/lib/ld-musl-x86_64.so.1\0";

    fn of(program: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        interpreter(|at, buffer| {
            let at = usize::try_from(at).map_err(io::Error::other)?;
            let found = at.checked_add(buffer.len()).and_then(|end| program.get(at..end));
            buffer.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
            Ok(())
        })
    }

    /// A program with one header of another kind and, if it is to have a loader, one that names it.
    fn program(loader: Option<&[u8]>) -> Vec<u8> {
        let mut made = vec![0; HEAD_BYTES + 2 * HEADER_BYTES];
        made[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', CLASS_64, LITTLE_ENDIAN]);
        made[16] = SHARED as u8;
        made[32] = HEAD_BYTES as u8;
        made[54] = HEADER_BYTES as u8;
        made[56] = 2;
        made[HEAD_BYTES] = 1;
        if let Some(loader) = loader {
            let (header, at) = (HEAD_BYTES + HEADER_BYTES, made.len() as u64);
            made[header] = INTERPRETER as u8;
            made[header + 8..header + 16].copy_from_slice(&at.to_le_bytes());
            made[header + 32..header + 40].copy_from_slice(&(loader.len() as u64).to_le_bytes());
            made.extend_from_slice(loader);
        }
        made
    }

    #[test]
    fn finds_the_loader_or_none() {
        let expected = LOADER.strip_suffix(b"\0").map(<[u8]>::to_vec);
        assert_eq!(of(&program(Some(LOADER))), Ok(expected));
        assert_eq!(of(&program(None)), Ok(None));
    }

    #[test]
    fn finds_notes_by_their_owner() {
        let notes = b"\x04\0\0\0\x05\0\0\0\x01\0\0\0GNU\0abcde\0\0\0\x04\0\0\0\0\0\0\0\x04\0\0\0Go\0\0";
        assert_eq!(owners(notes).collect::<Vec<_>>(), [&b"GNU"[..], b"Go"]);
        for length in 0..notes.len() {
            assert!(owners(&notes[..length]).count() <= 2);
        }
        assert_eq!(owners(&[0xff; 64]).count(), 0);
        let own = std::fs::File::open("/proc/self/exe").unwrap();
        let has = |owner| {
            use std::os::unix::fs::FileExt;
            has_note(|at, buffer| own.read_exact_at(buffer, at), owner)
        };
        assert_eq!((has(b"GNU"), has(b"Go")), (Ok(true), Ok(false)));
    }

    #[test]
    fn reads_this_very_program() {
        use std::os::unix::fs::FileExt;
        let own = std::fs::File::open("/proc/self/exe").unwrap();
        assert!(interpreter(|at, buffer| own.read_exact_at(buffer, at)).is_ok());
    }

    #[test]
    fn refuses_what_is_no_program() {
        let changed = |at: usize, value: u8| {
            let mut made = program(Some(LOADER));
            made[at] = value;
            of(&made)
        };
        assert_eq!(of(b""), Err(Fault::Short));
        assert_eq!(changed(0, b'#'), Err(Fault::NotElf));
        assert_eq!(changed(4, 1), Err(Fault::OtherMachine));
        assert_eq!(changed(5, 2), Err(Fault::OtherMachine));
        assert_eq!(changed(16, 1), Err(Fault::NotExecutable));
        assert_eq!(changed(54, 32), Err(Fault::HeaderSize { size: 32 }));
        assert_eq!(changed(56, 0), Err(Fault::HeaderCount { count: 0 }));
        assert_eq!(changed(56, 65), Err(Fault::HeaderCount { count: 65 }));
    }

    #[test]
    fn refuses_places_beyond_the_end() {
        let whole = program(Some(LOADER));
        for length in 0..whole.len() {
            assert_eq!(of(&whole[..length]), Err(Fault::Short), "{length}");
        }
        for at in [32, HEAD_BYTES + HEADER_BYTES + 8] {
            let mut made = whole.clone();
            made[at..at + 8].fill(0xff);
            assert_eq!(of(&made), Err(Fault::Short), "{at}");
        }
    }

    #[test]
    fn refuses_names_without_end_or_measure() {
        assert_eq!(of(&program(Some(b"\0"))), Err(Fault::InterpreterLength { length: 1 }));
        assert_eq!(of(&program(Some(&[0; 257]))), Err(Fault::InterpreterLength { length: 257 }));
        assert_eq!(of(&program(Some(b"/lib/ld"))), Err(Fault::InterpreterEnd));
        let mut huge = program(Some(LOADER));
        let length = HEAD_BYTES + HEADER_BYTES + 32;
        huge[length..length + 8].fill(0xff);
        assert_eq!(of(&huge), Err(Fault::InterpreterLength { length: u64::MAX }));
    }
}
