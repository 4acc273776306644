//! Golden tests: each file in tests/config is read, and what is said about it compared with the `.stderr`
//! beside it. `BLESS=1` rewrites those.
//!
//! Runs in: the test process, unprivileged. Input: the files of this repository.

#![allow(clippy::unwrap_used, reason = "a test that cannot read its files should panic")]

use std::path::{Path, PathBuf};

use config::{Config, Diagnostics};

/// Relative paths in the cases count from here; nothing looks whether it exists.
const DIR: &str = "/srv/bulkhead";

fn cases_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/config").canonicalize().unwrap()
}

fn cases() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(cases_dir()).unwrap().map(|entry| entry.unwrap().path());
    let mut cases: Vec<_> = entries.filter(|path| path.extension().is_some_and(|e| e == "toml")).collect();
    cases.sort();
    cases
}

fn file_name(case: &Path) -> &str {
    case.file_name().unwrap().to_str().unwrap()
}

/// Cases named `load-` are read from disk, so that what they name is looked for.
fn read(case: &Path) -> Result<Config, Diagnostics> {
    match file_name(case) {
        name if name.starts_with("load-") => Config::load(case),
        name => Config::parse(&std::fs::read_to_string(case).unwrap(), name, Path::new(DIR)),
    }
}

/// What an operator would see, the same wherever the repository stands.
fn rendered(case: &Path) -> String {
    let here = cases_dir();
    let text = match read(case) {
        Err(diagnostics) => format!("{diagnostics}\n"),
        Ok(config) => config.warnings.iter().map(|warning| format!("{warning}\n")).collect(),
    };
    text.replace(&format!("{}/load-", here.display()), "load-").replace(here.to_str().unwrap(), "$DIR")
}

#[test]
fn every_case_says_what_it_should() {
    let bless = std::env::var_os("BLESS").is_some();
    let mut wrong = Vec::new();
    for case in cases() {
        let (expected, actual) = (case.with_extension("stderr"), rendered(&case));
        if bless {
            std::fs::write(&expected, &actual).unwrap();
        } else if std::fs::read_to_string(&expected).unwrap_or_default() != actual {
            wrong.push(format!("--- {}\n{actual}", case.display()));
        }
    }
    assert!(wrong.is_empty(), "{}\nif these are right: BLESS=1 cargo test -p config", wrong.join("\n"));
}

#[test]
fn only_the_good_files_load() {
    let good: Vec<_> = cases().into_iter().filter(|case| read(case).is_ok()).collect();
    let names: Vec<_> = good.iter().map(|case| file_name(case)).collect();
    assert_eq!(
        names,
        [
            "acceptance-php.toml",
            "acceptance-proxy.toml",
            "acceptance-rules.toml",
            "acceptance-tls.toml",
            "conditioning.toml",
            "every-key.toml",
            "main-job.toml",
            "renamed.toml",
            "statics.toml"
        ]
    );
}

#[test]
fn ten_mistakes_are_ten_messages() {
    let Diagnostics(found) = read(&cases_dir().join("ten-mistakes.toml")).unwrap_err();
    assert_eq!(found.len(), 10);
    let mut messages: Vec<_> = found.iter().map(|diagnostic| &diagnostic.message).collect();
    messages.dedup();
    assert_eq!(messages.len(), 10);
}

#[test]
fn messages_are_in_the_order_of_the_file() {
    for case in cases() {
        let Err(Diagnostics(found)) = read(&case) else {
            continue;
        };
        let files = found.chunk_by(|one, next| one.file == next.file);
        let mut names: Vec<_> = files.clone().map(|file| &file[0].file).collect();
        names.sort();
        assert!(names.windows(2).all(|two| two[0] != two[1]), "{}", case.display());
        for file in files {
            assert!(file.is_sorted_by_key(|d| (d.line, d.column)), "{}", case.display());
        }
        assert!(!found.is_empty());
    }
}

#[test]
fn no_message_has_a_control_character() {
    for case in cases() {
        let text = rendered(&case);
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{}", case.display());
    }
}
