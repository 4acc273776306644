//! Golden tests: what `bulkhead serve WORDS --print-config` prints for each `.words` in tests/serve, compared with the
//! `.toml` beside it (for words that make no sense, what it says of them). `BLESS=1` rewrites those.
//!
//! Runs in: the test process, and the command itself, unprivileged. Input: the files of this repository.

#![allow(clippy::unwrap_used, reason = "a test that cannot read its files should panic")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/serve").canonicalize().unwrap()
}

fn cases() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let mut cases: Vec<_> = entries.filter(|path| path.extension().is_some_and(|e| e == "words")).collect();
    cases.sort();
    assert!(cases.len() > 20);
    cases
}

fn is_wrong(case: &Path) -> bool {
    case.file_name().unwrap().to_str().unwrap().starts_with("wrong-")
}

fn run(case: &Path) -> Output {
    let words = std::fs::read_to_string(case).unwrap();
    Command::new(env!("CARGO_BIN_EXE_bulkhead"))
        .arg("serve")
        .args(words.split_whitespace())
        .arg("--print-config")
        .current_dir(folder())
        .output()
        .unwrap()
}

/// Notes as comments, then the configuration, the same wherever the repository stands.
fn rendered(output: &Output) -> String {
    let notes = String::from_utf8(output.stderr.clone()).unwrap();
    let notes: String = notes.lines().map(|line| format!("# {line}\n")).collect();
    let text = notes + std::str::from_utf8(&output.stdout).unwrap();
    text.replace(folder().to_str().unwrap(), "/DIR")
}

#[test]
fn every_case_prints_what_it_should() {
    let bless = std::env::var_os("BLESS").is_some();
    let mut wrong = Vec::new();
    for case in cases() {
        let output = run(&case);
        assert_eq!(output.status.code(), Some(if is_wrong(&case) { 2 } else { 0 }), "{}", case.display());
        let (expected, actual) = (case.with_extension("toml"), rendered(&output));
        if bless {
            std::fs::write(&expected, &actual).unwrap();
        } else if std::fs::read_to_string(&expected).unwrap_or_default() != actual {
            wrong.push(format!("--- {}\n{actual}", case.display()));
        }
    }
    assert!(wrong.is_empty(), "{}\nif these are right: BLESS=1 cargo test -p bulkhead", wrong.join("\n"));
}

#[test]
fn what_is_printed_is_a_configuration() {
    for case in cases().iter().filter(|case| !is_wrong(case)) {
        let text = String::from_utf8(run(case).stdout).unwrap();
        if let Err(found) = config::Config::parse(&text, "printed", Path::new("/srv")) {
            panic!("{}: {found}\n{text}", case.display());
        }
    }
}
