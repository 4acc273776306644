//! Looks for secrets in the probe's own memory, with `/proc/self/maps` or without.
//!
//! Runs in: the probe. Sees: its own memory, copied by the kernel. Never: holds a secret itself: what is looked for
//! comes in hexadecimal and is compared so.

use sys::attempt::memory::{MemoryReader, PAGE, landmarks};

use crate::attempt::{AttemptOutcome, Cx, not_applicable, refused, succeeded};

/// LIMIT: the mappings of a small program, with room; 1 GiB would take a second.
const PAGES_MAX: usize = 1 << 16;
/// How far behind the last page that was found there may be another one.
const GAP_PAGES: usize = 512;

/// The secrets of the hints that are found in this process's memory.
pub(crate) fn canaries(cx: &Cx<'_>) -> AttemptOutcome {
    let secrets = &cx.hints.canaries;
    if secrets.is_empty() {
        return not_applicable("no canaries in the hints");
    }
    if let Some(wrong) = secrets.iter().find(|secret| !is_hexadecimal(secret)) {
        return not_applicable(format!("canary of {} characters: not in hexadecimal", wrong.len()));
    }
    let Ok(mut reader) = MemoryReader::new() else { return not_applicable("no pipe") };
    let mut found = vec![false; secrets.len()];
    let pages = search(&mut reader, |text| {
        for (secret, found) in secrets.iter().zip(&mut found) {
            *found = *found || contains(text, secret.as_bytes());
        }
    });
    let got = found.iter().filter(|found| **found).count();
    let detail = format!("{got} of {} found in {pages} pages", secrets.len());
    if got > 0 { succeeded(detail) } else { refused(detail) }
}

fn is_hexadecimal(secret: &str) -> bool {
    secret.len() >= 8 && secret.len().is_multiple_of(2) && secret.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Calls `look` with each page and the end of the one before; gives how many there were.
fn search(reader: &mut MemoryReader, mut look: impl FnMut(&[u8])) -> usize {
    let mut pages = 0;
    for start in starts() {
        let mut missing = 0;
        let mut text = Vec::with_capacity(2 * PAGE);
        let mut address = start;
        while missing < GAP_PAGES && pages < PAGES_MAX {
            let mut page = [0; PAGE];
            if reader.page(address, &mut page) {
                (missing, pages) = (0, pages + 1);
                // Text that spans two pages is seen with the second one.
                text.drain(..text.len().saturating_sub(256));
                text.extend_from_slice(&page);
                look(&text);
            } else {
                missing += 1;
                text.clear();
            }
            let Some(next) = address.checked_add(PAGE) else { break };
            address = next;
        }
    }
    pages
}

/// Where to begin: at each mapping, or so far below each landmark that what surrounds it is seen.
fn starts() -> Vec<usize> {
    if let Ok(maps) = std::fs::read_to_string("/proc/self/maps") {
        let mut starts: Vec<usize> = Vec::new();
        let mut end = 0;
        for line in maps.lines() {
            let Some((from, rest)) = line.split_once('-') else { continue };
            let to = rest.split(' ').next().unwrap_or_default();
            let (Ok(from), Ok(to)) = (usize::from_str_radix(from, 16), usize::from_str_radix(to, 16)) else {
                continue;
            };
            // The search goes on by itself over a small gap.
            if from > end + GAP_PAGES * PAGE {
                starts.push(from);
            }
            end = to;
        }
        return starts;
    }
    let mut starts: Vec<usize> =
        landmarks().into_iter().map(|mark| (mark & !(PAGE - 1)).saturating_sub(GAP_PAGES * PAGE)).collect();
    starts.sort_unstable();
    starts
}

/// Whether `text` holds the bytes whose hexadecimal digits are `digits`.
fn contains(text: &[u8], digits: &[u8]) -> bool {
    let length = digits.len() / 2;
    let byte = |at: usize| Some(value(digits[2 * at])? << 4 | value(digits[2 * at + 1])?);
    let Some(first) = byte(0) else { return false };
    let fits = |window: &[u8]| window[0] == first && (1..length).all(|at| byte(at) == Some(window[at]));
    text.windows(length).any(fits)
}

fn value(digit: u8) -> Option<u8> {
    u8::try_from(char::from(digit).to_digit(16)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_compared_without_being_held() {
        assert!(contains(b"xxsecretxx", b"736563726574"));
        assert!(!contains(b"xxsecrexx", b"736563726574"));
        assert!(is_hexadecimal("736563726574") && !is_hexadecimal("secret") && !is_hexadecimal("73"));
    }

    #[test]
    fn a_secret_in_memory_is_found() {
        let secret = std::hint::black_box(format!("{}{}", "held in ", std::process::id()));
        let digits: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
        let mut reader = MemoryReader::new().unwrap();
        let mut found = false;
        search(&mut reader, |text| found |= contains(text, digits.as_bytes()));
        assert!(found);
    }
}
