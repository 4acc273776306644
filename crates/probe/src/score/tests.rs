//! The table and the formula, compared with those of systemd where it is installed.

use std::collections::BTreeSet;
use std::process::Command;

use super::*;
use crate::attempts;

#[test]
fn there_are_81_checks_that_try_something() {
    let ids: BTreeSet<_> = checks().map(|check| check.id).collect();
    assert_eq!((ids.len(), checks().count()), (81, 81));
    let known: BTreeSet<_> = attempts::all().map(|attempt| attempt.id).collect();
    for check in checks() {
        if let How::Attempts(ids) = &check.how {
            for id in *ids {
                assert!(known.contains(id), "{id} of {}", check.id);
            }
        }
    }
}

/// The whole exposure when each check has the badness that `of` gives.
fn exposure(of: impl Fn(&Check) -> Option<u64>) -> u64 {
    let rows =
        checks().map(|check| (check, CheckResult { badness: of(check), words: String::new() })).collect();
    Score { rows, kind: "role" }.tenths()
}

/// Badness of a unit of nothing but a command that systemd runs as root.
fn bare(check: &Check) -> Option<u64> {
    match check.id {
        "SupplementaryGroups=" | "RemoveIPC=" => None,
        "KeyringMode=" | "Delegate=" | "NotifyAccess=" | "AmbientCapabilities=" => Some(0),
        "UMask=" => Some(5),
        _ => Some(check.range),
    }
}

#[test]
fn the_formula_gives_what_systemd_gives() {
    // Figures of systemd 252, as `the_installed_systemd_agrees` finds them.
    assert_eq!(exposure(bare), 96);
    assert_eq!(exposure(|check| if check.id == "PrivateNetwork=" { Some(0) } else { bare(check) }), 91);
    assert_eq!(exposure(|_| Some(0)), 0);
    assert_eq!(exposure(|check| Some(check.range)), 100);
    assert_eq!((level(0), level(5), level(22), level(96)), ("PERFECT", "SAFE", "OK", "UNSAFE"));
}

/// Each line makes one check good (or better); systemd must move as our table says. Skipped without systemd.
#[test]
fn the_installed_systemd_agrees() {
    let settings: [(&str, &str, u64); 14] = [
        ("PrivateNetwork=yes", "PrivateNetwork=", 0),
        ("PrivateTmp=yes", "PrivateTmp=", 0),
        ("ProtectHome=read-only", "ProtectHome=", 5),
        ("ProtectSystem=full", "ProtectSystem=", 3),
        ("UMask=0027", "UMask=", 1),
        ("NoNewPrivileges=yes", "NoNewPrivileges=", 0),
        ("KeyringMode=shared", "KeyringMode=", 1),
        ("SystemCallArchitectures=native", "SystemCallArchitectures=", 0),
        ("CapabilityBoundingSet=~CAP_SYS_ADMIN", "CapabilityBoundingSet=~CAP_SYS_ADMIN", 0),
        ("RestrictNamespaces=~user", "RestrictNamespaces=~user", 0),
        ("ProtectProc=invisible", "ProtectProc=", 0),
        ("RestrictRealtime=yes", "RestrictRealtime=", 0),
        ("DevicePolicy=closed", "DeviceAllow=", 0),
        ("RestrictSUIDSGID=yes", "RestrictSUIDSGID=", 0),
    ];
    for count in 0..=settings.len() {
        let (lines, ours): (Vec<_>, Vec<_>) =
            settings[..count].iter().map(|(line, id, badness)| (*line, (*id, *badness))).unzip();
        let Some((total, names)) = systemd(&lines.join("\n")) else { return };
        let expected = exposure(|check| {
            ours.iter()
                .find(|(id, _)| *id == check.id)
                .map_or_else(|| bare(check), |(_, badness)| Some(*badness))
        });
        assert_eq!(total, expected, "with {lines:?}");
        let own: BTreeSet<String> = checks().map(|check| check.id.to_owned()).collect();
        assert_eq!(names, own);
    }
}

/// The exposure in tenths, and the names of the checks, of a unit with these lines.
fn systemd(lines: &str) -> Option<(u64, BTreeSet<String>)> {
    let path = std::env::temp_dir().join(format!("bulkhead-probe-{}.service", std::process::id()));
    std::fs::write(&path, format!("[Service]\nExecStart=/bin/true\n{lines}\n")).ok()?;
    let run = |more: &[&str]| {
        let output = Command::new("systemd-analyze")
            .args(["security", "--offline=true"])
            .args(more)
            .arg(&path)
            .output()
            .ok()?;
        String::from_utf8(output.stdout).ok()
    };
    let (json, text) = (run(&["--json=short"]), run(&["--no-pager"]));
    let _ = std::fs::remove_file(&path);
    let rows: Value = serde_json::from_str(&json?).ok()?;
    let names: BTreeSet<String> =
        rows.as_array()?.iter().filter_map(|row| Some(row["name"].as_str()?.to_owned())).collect();
    // Another version has other checks; the figures are those of this one.
    if names.len() != 81 {
        return None;
    }
    let text = text?;
    let number = text.rsplit_once("service: ")?.1.split(' ').next()?;
    Some((number.replace('.', "").parse().ok()?, names))
}
