//! The dependencies of the root process, and of the guard, which an administrator may start as root: the whole list, so
//! that none joins it unnoticed.
//!
//! Runs in: `cargo test`. Sees: `cargo tree`. Never: passes because cargo did not run.

use std::collections::BTreeSet;
use std::process::Command;

/// Everything that is linked into `bulkheadd` and `bulkhead-guard`, and the procedural macros that it is built with. No
/// runtime, no TLS, HTTP, JSON or database code is among it.
const ALLOWED: [&str; 33] = [
    "bitflags",
    "bulkheadd",
    "config",
    "enumflags2",
    "enumflags2_derive",
    "errno",
    "guard",
    "instances",
    "jail",
    "landlock",
    "libc",
    "linux_raw_sys",
    "memchr",
    "proc_macro2",
    "quote",
    "regex_lite",
    "rewrite",
    "rustix",
    "seccompiler",
    "serde_spanned",
    "statements",
    "suggest",
    "supervisor",
    "syn",
    "sys",
    "thiserror",
    "thiserror_impl",
    "toml",
    "toml_datetime",
    "toml_parser",
    "unicode_ident",
    "winnow",
    "wire",
];

fn tree(package: &str) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--edges=normal", "--prefix=none", "--format={lib}", "-p", package])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("names are ASCII");
    text.lines()
        .map(|line| line.trim_end_matches(" (*)").to_owned())
        .filter(|line| !line.is_empty())
        .collect()
}

#[test]
fn what_runs_as_root_links_nothing_but_what_is_listed() {
    for package in ["bulkheadd", "guard"] {
        let found = tree(package);
        assert!(found.contains("toml"), "the listing works: {found:?}");
        let more: Vec<_> = found.iter().filter(|name| !ALLOWED.contains(&name.as_str())).collect();
        assert!(more.is_empty(), "not allowed in {package}: {more:?}");
    }
}

/// The configuration knows the layers by name, without depending on the crate that builds them.
#[test]
fn the_layers_of_the_configuration_are_those_of_the_jail() {
    let layers: Vec<&str> = jail::LAYERS.iter().map(|layer| layer.name).collect();
    assert_eq!(layers, config::LAYERS);
}

#[test]
fn no_process_depends_on_another() {
    let processes = [
        "gate",
        "site",
        "logger",
        "admin",
        "signer",
        "stapler",
        "connector",
        "broker",
        "dataproxy",
        "publisher",
        "inspector",
        "bulkheadd",
    ];
    for process in processes {
        let found = tree(process);
        for other in processes.iter().filter(|other| **other != process) {
            assert!(!found.contains(*other), "{process} depends on {other}");
        }
    }
}
