//! Of which version a program is, said in its file by a note, which can be read without executing the program.
//!
//! Runs in: nothing; it is read by the program `inspector`. Sees: nothing. Never: says more than the version: programs
//! that were built at another time from the same version say the same.
//!
//! Source: the System V ABI, chapter 5, "Note Section".

/// The version of this program, and of all that are built with it.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Whose notes these are.
pub const OWNER: &str = "bulkhead";

/// The kind of a note that has a version.
const KIND: u32 = 1;
const OWNER_BYTES: usize = OWNER.len() + 1;

/// Lengths, then the owner's name with a nought at its end, then the version; what is shorter than four bytes is filled
/// up.
#[repr(C)]
struct Note {
    owner_bytes: u32,
    version_bytes: u32,
    kind: u32,
    owner: [u8; OWNER_BYTES.next_multiple_of(4)],
    version: [u8; VERSION.len().next_multiple_of(4)],
}

// SAFETY: `link_section` puts plain bytes into a section of their own, in which nothing is executed and nothing else of
// this program lies. Linkers keep sections whose names begin so, and have a program header lead to them.
#[used]
#[unsafe(link_section = ".note.bulkhead")]
static NOTE: Note = Note {
    owner_bytes: OWNER_BYTES as u32,
    version_bytes: VERSION.len() as u32,
    kind: KIND,
    owner: filled(OWNER),
    version: filled(VERSION),
};

/// What the note of this program says, as it is in memory.
pub fn noted() -> &'static str {
    // Read, and not known to the compiler: this is compared with what is read of the notes of others.
    let version = &std::hint::black_box(&NOTE).version;
    std::str::from_utf8(version).unwrap_or_default().trim_end_matches('\0')
}

const fn filled<const BYTES: usize>(text: &str) -> [u8; BYTES] {
    let (mut filled, text, mut at) = ([0; BYTES], text.as_bytes(), 0);
    while at < text.len() {
        filled[at] = text[at];
        at += 1;
    }
    filled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_note_has_the_version() {
        assert_eq!(noted(), VERSION);
    }
}
