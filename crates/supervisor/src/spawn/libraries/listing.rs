//! What a dynamic loader prints when it is asked for a program's libraries, as glibc and as musl do.
//!
//! Runs in: the launcher. Sees: names that come from a program, which a partition's owner may have made: untrusted
//! bytes. Never: believes one; whoever uses a path of a [`Listing`] checks it first.
//!
//! It uses nothing but `std`, so that the fuzz target `loader_listing` takes this very file.

use std::fmt;

/// LIMIT: libraries of one program; large ones have 150, and a root has room for 1024 files and directories.
const LIBRARIES_MAX: usize = 256;
/// LIMIT: characters of a loader's remark that are told.
const REMARK_MAX: usize = 200;

/// What the kernel maps into every process.
const KERNEL: [&str; 2] = ["linux-vdso", "linux-gate"];

/// What a loader said.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Where it found libraries.
    pub found: Vec<String>,
    /// The names of those that it did not find.
    pub missing: Vec<String>,
    /// The first thing that it said beside; something is wrong then.
    pub remark: Option<String>,
    /// Whether there was any line of a list.
    pub answered: bool,
}

/// Why something is not a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is not UTF-8.
    NotText,
    /// It names more libraries than the limit.
    TooMany,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotText => write!(f, "its dynamic loader names a library with bytes that are not UTF-8"),
            Self::TooMany => write!(f, "has more than {LIBRARIES_MAX} libraries"),
        }
    }
}

enum Line<'a> {
    Found(&'a str),
    Missing(&'a str),
    Nothing,
    Remark,
}

/// Reads what a loader printed.
pub fn parse(printed: &[u8]) -> Result<Listing, Fault> {
    let text = std::str::from_utf8(printed).map_err(|_| Fault::NotText)?;
    let mut listing = Listing::default();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        match read(line) {
            Line::Found(path) => listing.found.push(path.into()),
            Line::Missing(name) => listing.missing.push(shown(name)),
            Line::Nothing => {}
            Line::Remark => {
                listing.remark.get_or_insert_with(|| shown(line));
                continue;
            }
        }
        listing.answered = true;
        if listing.found.len() + listing.missing.len() > LIBRARIES_MAX {
            return Err(Fault::TooMany);
        }
    }
    Ok(listing)
}

fn read(line: &str) -> Line<'_> {
    // musl, on its standard error.
    if let Some((name, _)) =
        line.strip_prefix("Error loading shared library ").and_then(|rest| rest.split_once(": "))
    {
        return Line::Missing(name);
    }
    let Some(entry) = line.strip_prefix('\t') else {
        return Line::Remark;
    };
    if entry == "statically linked" || KERNEL.iter().any(|name| entry.starts_with(name)) {
        return Line::Nothing;
    }
    let (name, place) = entry.split_once(" => ").unwrap_or((entry, entry));
    if place == "not found" {
        return Line::Missing(name);
    }
    place.rsplit_once(" (0x").map_or(Line::Remark, |(path, address)| {
        let is_address =
            address.strip_suffix(')').is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
        if is_address { Line::Found(path) } else { Line::Remark }
    })
}

/// A text of a program's, as it may be told: in one line, without control characters, of limited length.
fn shown(text: &str) -> String {
    let text: String = text.trim().chars().take(REMARK_MAX).collect();
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(paths: &[&str]) -> Listing {
        let found = paths.iter().map(|&path| path.to_owned()).collect();
        Listing { found, answered: true, ..Listing::default() }
    }

    #[test]
    fn glibc() {
        let printed = b"\tlinux-vdso.so.1 (0x00007ffc3d5f2000)\n\
            \tlibgcc_s.so.1 => /lib/x86_64-linux-gnu/libgcc_s.so.1 (0x00007f0b1c2a0000)\n\
            \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f0b1c0bf000)\n\
            \t/lib64/ld-linux-x86-64.so.2 (0x00007f0b1c4e4000)\n";
        let paths = [
            "/lib/x86_64-linux-gnu/libgcc_s.so.1",
            "/lib/x86_64-linux-gnu/libc.so.6",
            "/lib64/ld-linux-x86-64.so.2",
        ];
        assert_eq!(parse(printed), Ok(found(&paths)));
        assert_eq!(parse(b"\tstatically linked\n"), Ok(found(&[])));
        assert_eq!(parse(b"\tlinux-vdso.so.1 =>  (0x00007ffc3d5f2000)\n"), Ok(found(&[])));
    }

    #[test]
    fn musl() {
        let printed = b"\t/lib/ld-musl-x86_64.so.1 (0x7f3c9a4f0000)\n\
            \tlibz.so.1 => /usr/lib/libz.so.1 (0x7f3c9a4d6000)\n\
            \tlibc.musl-x86_64.so.1 => /lib/ld-musl-x86_64.so.1 (0x7f3c9a4f0000)\n";
        let paths = ["/lib/ld-musl-x86_64.so.1", "/usr/lib/libz.so.1", "/lib/ld-musl-x86_64.so.1"];
        assert_eq!(parse(printed), Ok(found(&paths)));
    }

    #[test]
    fn what_is_not_found() {
        let glibc =
            parse(b"\tlibnone.so.1 => not found\n\tlibc.so.6 => /lib/libc.so.6 (0x00007f00)\n").unwrap();
        assert_eq!((&glibc.missing[..], glibc.found.len()), (&["libnone.so.1".to_owned()][..], 1));
        let musl = parse(
            b"Error loading shared library libnone.so.1: No such file or directory (needed by bin/x)\n\
            Error relocating bin/x: none: symbol not found\n",
        )
        .unwrap();
        assert_eq!(musl.missing, ["libnone.so.1"]);
        assert_eq!(musl.remark.as_deref(), Some("Error relocating bin/x: none: symbol not found"));
    }

    #[test]
    fn what_is_no_list() {
        let version = b"bin/x: /lib/libc.so.6: version `GLIBC_9' not found (required by bin/x)\n";
        let listing = parse(version).unwrap();
        assert!(!listing.answered && listing.remark.is_some_and(|text| text.contains("GLIBC_9")));
        assert!(!parse(b"").unwrap().answered);
        for line in ["\t/lib/libc.so.6", "\t/lib/libc.so.6 (0x12", "\tlibc => /lib/libc.so.6 (0xzz)", "hello"]
        {
            let listing = parse(line.as_bytes()).unwrap();
            assert_eq!((listing.found.len(), listing.remark.is_some()), (0, true), "{line}");
        }
        assert_eq!(parse(b"\t\xff (0x1)"), Err(Fault::NotText));
        assert_eq!(parse("\t/lib/a.so (0x1)\n".repeat(257).as_bytes()), Err(Fault::TooMany));
    }

    #[test]
    fn what_is_told_is_one_short_line() {
        let listing = parse(format!("\x1b[31m{}\r", "x".repeat(1000)).as_bytes()).unwrap();
        let remark = listing.remark.unwrap();
        assert!(remark.starts_with("\\u{1b}[31m") && remark.len() < 2 * REMARK_MAX, "{remark}");
    }
}
