//! Files of a configuration, looked through before anything runs with them: certificates and keys, authorities, lists
//! of revoked certificates, users.
//!
//! Runs in: a short-lived process of the signer's program, in the signer's jail, without channels. Sees: files that the
//! operator wrote, open. Never: prints a byte of a key or a hash.
//!
//! Standard input has a line for each question: `certificate FILES HOST...`, where FILES is 1 or 2, `authorities`,
//! `lists`, `users`. Their files are at the descriptors from the number on that is the second argument, in the same
//! order. Standard output has a line for each, in the same order: `certificate VERDICT SINCE UNTIL HOSTS NAMES`, or
//! `good`, `odd WORDS`, `bad WORDS`.
//!
//! Why not in the command or in the launcher: both run as root, the keys are read by a library in C, and what decides
//! here is what decides in the signer and in site workers later.

use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::ExitCode;

use certificate::{authorities, crl, own};
use wire::tls::Verdict;

use crate::certificate::{CertifiedKey, read};

/// LIMIT: bytes of all questions: a thousand sites with 64 hosts of 63 bytes fit.
const QUESTIONS_BYTES_MAX: u64 = 8 << 20;
/// LIMIT: bytes of what is said of a file.
const WORDS_MAX: usize = 300;
/// LIMIT: names of a certificate that are said.
const NAMES_MAX: usize = 8;
/// LIMIT: mistakes of one file that are said.
const FAULTS_MAX: usize = 3;

/// The whole process.
pub fn main() -> ExitCode {
    match answer() {
        Ok(answers) if std::io::stdout().write_all(answers.as_bytes()).is_ok() => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

fn answer() -> std::io::Result<String> {
    let first = std::env::args().nth(2).and_then(|number| number.parse().ok());
    let first = first.ok_or(std::io::ErrorKind::InvalidInput)?;
    let mut text = String::new();
    std::io::stdin().take(QUESTIONS_BYTES_MAX).read_to_string(&mut text)?;
    let count: usize = text.lines().map(files_of).sum();
    let count = u16::try_from(count).map_err(std::io::Error::other)?;
    let mut files = sys::inherit::files(first, count)?.into_iter();
    let mut next = || files.next().ok_or(std::io::ErrorKind::InvalidInput);
    let mut answers = String::new();
    for line in text.lines() {
        let file = next()?;
        let answer = match line.split(' ').collect::<Vec<_>>()[..] {
            ["certificate", "1", ref hosts @ ..] => certificate(&file, None, hosts),
            ["certificate", "2", ref hosts @ ..] => certificate(&file, Some(&next()?), hosts),
            ["authorities"] => {
                of_text(&file, authorities::FILE_BYTES_MAX, |text| verdict(authorities::read(text).map(drop)))
            }
            ["lists"] => of_text(&file, crl::FILE_BYTES_MAX, |text| verdict(crl::read(text).map(drop))),
            ["users"] => of_text(&file, users::FILE_BYTES_MAX, users),
            _ => return Err(std::io::ErrorKind::InvalidInput.into()),
        };
        answers.push_str(&answer);
        answers.push('\n');
    }
    Ok(answers)
}

/// How many files a question is about.
fn files_of(line: &str) -> usize {
    if line.starts_with("certificate 2") { 2 } else { 1 }
}

fn certificate(file: &OwnedFd, key: Option<&OwnedFd>, hosts: &[&str]) -> String {
    let certified = match CertifiedKey::read(file, key) {
        Ok(certified) => certified,
        Err(verdict) => return format!("certificate {} 0 0 - - 0 0", verdict as u8),
    };
    let (since, until) = certified.validity();
    let (hosts, names) =
        certified.chain.first().map(|own| (own::named(own, hosts), own::dns_names(own))).unwrap_or_default();
    let hosts: Vec<String> = hosts.iter().map(usize::to_string).collect();
    let names: Vec<&str> =
        names.iter().map(String::as_str).filter(|name| is_plain(name)).take(NAMES_MAX).collect();
    let list = |list: String| if list.is_empty() { "-".to_owned() } else { list };
    format!(
        "certificate {} {since} {until} {} {} {} {}",
        Verdict::Good as u8,
        list(hosts.join(",")),
        list(names.join(",")),
        certified.out_of_date,
        certified.left_out
    )
}

/// Whether a name may be printed; others are none of a host.
fn is_plain(name: &str) -> bool {
    name.len() <= 253 && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"*.-_".contains(&byte))
}

fn of_text(file: &OwnedFd, bytes_max: usize, look: impl Fn(&[u8]) -> String) -> String {
    match read(file, bytes_max) {
        Ok(text) => look(&text),
        Err(_) => "bad it cannot be read, or is too long".to_owned(),
    }
}

fn verdict<E: std::fmt::Display>(found: Result<(), E>) -> String {
    match found {
        Ok(()) => "good".to_owned(),
        Err(fault) => format!("bad {}", words(&fault.to_string())),
    }
}

fn users(text: &[u8]) -> String {
    let (users, faults) = users::Users::parse(text);
    let said: Vec<String> = faults.iter().take(FAULTS_MAX).map(ToString::to_string).collect();
    let more = faults.len().saturating_sub(FAULTS_MAX);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    let said = words(&format!("{}{more}", said.join("; ")));
    match (&faults[..], users.is_empty()) {
        ([], _) => "good".to_owned(),
        // Somebody may be added while the server runs.
        ([users::UsersFault::Empty], true) => format!("odd {said}"),
        _ => format!("bad {said}"),
    }
}

/// Words that fit into a line.
fn words(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_ascii() && !c.is_ascii_control() { c } else { '?' })
        .take(WORDS_MAX)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_one_short_line() {
        assert_eq!(words("a\n\u{1b}é"), "a???");
        assert_eq!(words(&"x".repeat(1000)).len(), WORDS_MAX);
        assert!(is_plain("*.a-b.test") && !is_plain("a b") && !is_plain("a,b"));
    }

    #[test]
    fn a_file_of_users_is_good_odd_or_bad() {
        let hash = "$2y$04$CCCCCCCCCCCCCCCCCCCCCu6Ry1Yy8D0LpHlAr5zQ3LVvY3YF8XPqS";
        assert_eq!(users(format!("ann:{hash}\n").as_bytes()), "good");
        assert_eq!(users(b"# nobody\n"), "odd there is no user in it");
        let bad = users(format!("ann:{hash}\nbob:plain\n{}", "x\n".repeat(4)).as_bytes());
        assert!(bad.starts_with("bad line 2: ") && bad.ends_with("; and 2 more"), "{bad}");
    }
}
