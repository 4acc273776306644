//! Layers from made-up words of the kernel, and from its real ones on this process.

use super::*;

const STATUS: &str = "Name:\tsite\nUmask:\t0077\nUid:\t61001\t61001\t61001\t61001\nGroups:\t61001 \n\
    CapInh:\t0000000000000000\nCapPrm:\t0000000000000000\nCapEff:\t0000000000000000\n\
    CapBnd:\t0000000000000000\nCapAmb:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t1\n";
const LIMITS: &str = "Limit                     Soft Limit           Hard Limit           Units     \n\
    Max stack size            8388608              unlimited            bytes     \n\
    Max core file size        0                    0                    bytes     \n\
    Max processes             8                    8                    processes \n\
    Max locked memory         0                    0                    bytes     \n\
    Max msgqueue size         0                    0                    bytes     \n\
    Max nice priority         0                    0                    \n\
    Max realtime priority     0                    0                    \n";
const CGROUP: &str = "8:pids:/bulkhead-12/gate.1.8\n2:cpuacct:/\n0::/\n";

fn spaces(number: u32) -> std::collections::BTreeMap<&'static str, std::path::PathBuf> {
    let kinds = ["mnt", "pid", "ipc", "uts", "net", "cgroup"];
    kinds.map(|kind| (kind, format!("{kind}:[{number}]").into())).into()
}

fn jailed() -> Facts {
    Facts {
        pid: 77,
        uid: 61_001,
        role: "site".into(),
        status: Some(STATUS.into()),
        limits: Some(LIMITS.into()),
        cgroup: Some(CGROUP.into()),
        stat: Some("77 (a) b) S 12 77 77 0 -1 0".into()),
        owner: Some(0),
        root: Some((56, 1, 0o040_555)),
        spaces: spaces(2),
        fds: Some(9),
        parent_status: Some(STATUS.replace("61001", "0")),
        parent_limits: Some(LIMITS.replace("8                    8  ", "unlimited  unlimited")),
        parent_spaces: spaces(1),
        our_root: Some((55, 2, 0o040_755)),
        our_spaces: spaces(1),
    }
}

fn layers(change: impl FnOnce(&mut Facts)) -> Layers {
    let mut facts = jailed();
    change(&mut facts);
    Layers::from(&facts)
}

#[test]
fn a_complete_jail() {
    let found = layers(|_| ());
    assert_eq!(found.cell(), "all but landlock?; fds 9");
    assert_eq!(found.clone().with(LANDLOCK, Mark::Applied).cell(), "all; fds 9");
    assert_eq!((found.cgroup, found.open_root), (Some("v1"), Some(true)));
    let json = found.json();
    assert_eq!((&json["pid_namespace"], &json["landlock"]), (&Value::Bool(true), &Value::Null));
    assert_eq!((&json["fds"], &json["cgroup_version"]), (&json!(9), &json!("v1")));
    assert_eq!(json.as_object().unwrap().len(), LAYERS.len() + 2);
}

/// What is missing after `from` in the status has become `to`.
fn lacks(from: &str, to: &str) -> String {
    let found = layers(|facts| facts.status = Some(STATUS.replace(from, to)));
    found.cell().replace(", landlock?; fds 9", "").replace("all but ", "")
}

#[test]
fn each_line_of_the_status_counts() {
    for (from, to, lacking) in [
        ("Uid:\t61001", "Uid:\t0", "identity"),
        ("Groups:\t61001 ", "Groups:\t61001 4", "identity"),
        ("Groups:\t61001 ", "Groups:\t", "identity"),
        ("CapBnd:\t0000000000000000", "CapBnd:\t000001ffffffffff", "bounding set"),
        ("CapAmb:\t0000000000000000", "CapAmb:\t0000000000000400", "capabilities"),
        ("NoNewPrivs:\t1", "NoNewPrivs:\t0", "no_new_privs"),
        ("Seccomp:\t2", "Seccomp:\t0", "seccomp"),
        ("filters:\t1", "filters:\t0", "seccomp"),
        ("Umask:\t0077", "Umask:\t0022", "umask"),
        ("Umask:\t0077\n", "", "umask?"),
        ("CapPrm:\t0", "CapPrm:\tx", "capabilities?"),
    ] {
        assert_eq!(lacks(from, to), lacking, "{from}");
    }
}

#[test]
fn limits_are_those_of_the_jail() {
    let with =
        |from: &str, to: &str| layers(|facts| facts.limits = Some(LIMITS.replace(from, to))).mark("rlimits");
    assert_eq!(with("size        0  ", "size        9  "), Mark::Missing);
    assert_eq!(with("Max processes             8  ", "Max processes             unlimited "), Mark::Applied);
    let unlimited = with("8                    8  ", "unlimited  unlimited");
    assert_eq!(unlimited, Mark::Missing);
    assert_eq!(with("Max locked memory", "Max something"), Mark::Unread);
    // Without a uid of its own there is no number of its own.
    let rootless = layers(|facts| {
        facts.limits = Some(LIMITS.replace("8                    8  ", "unlimited  unlimited"));
        facts.parent_status.clone_from(&facts.status);
    });
    assert_eq!((rootless.mark("rlimits"), rootless.mark("identity")), (Mark::Applied, Mark::Missing));
}

#[test]
fn namespaces_are_compared_with_the_launchers_and_with_ours() {
    assert_eq!(layers(|facts| facts.spaces = spaces(1)).mark("pid namespace"), Mark::Missing);
    assert_eq!(layers(|facts| facts.our_spaces = spaces(2)).mark("uts namespace"), Mark::Missing);
    assert_eq!(layers(|facts| facts.parent_spaces = spaces(2)).mark("ipc namespace"), Mark::Missing);
    assert_eq!(layers(|facts| facts.parent_spaces.clear()).mark("ipc namespace"), Mark::Unread);
    assert_eq!(layers(|facts| facts.spaces.clear()).mark("ipc namespace"), Mark::Unread);
    // The same root in other mounts, and another root in the same mounts.
    assert_eq!(layers(|facts| facts.root = facts.our_root).mark("root"), Mark::Missing);
    assert_eq!(layers(|facts| facts.spaces = spaces(1)).mark("root"), Mark::Missing);
    assert_eq!(layers(|facts| facts.root = None).mark("root"), Mark::Unread);
}

#[test]
fn the_number_of_pids_tells_to_everybody() {
    let with = |own: &str| {
        layers(|facts| {
            facts.spaces.clear();
            facts.root = None;
            facts.fds = None;
            facts.status = Some(format!("{STATUS}NSpid:\t{own}\n"));
            facts.parent_status = facts.parent_status.as_ref().map(|status| format!("{status}NSpid:\t12\n"));
        })
    };
    assert_eq!(with("77\t1").cell(), "none is missing; 7 cannot be read; fds ?");
    assert_eq!(with("77").cell(), "all but pid namespace; 7 cannot be read; fds ?");
}

#[test]
fn who_connects_for_others_has_the_machines_network() {
    let host = |role: &str| {
        layers(|facts| {
            facts.role = role.into();
            facts.spaces.insert("net", "net:[1]".into());
        })
    };
    let connector = host("connector");
    assert_eq!(connector.cell(), "all but landlock?; host network; fds 9");
    assert_eq!(connector.json()["network_namespace"], "host");
    for role in ["site", "service", "broker"] {
        assert_eq!(host(role).mark("network namespace"), Mark::Missing);
    }
}

#[test]
fn groups_sessions_and_owners() {
    let group = |text: &str| layers(|facts| facts.cgroup = Some(text.into())).cgroup;
    assert_eq!(group("0::/system.slice/bulkhead-12/gate.1.8\n"), Some("v2"));
    assert_eq!(group("0::/bulkhead-12\n"), None);
    assert_eq!(group("0::/bulkhead-shop/gate\n"), None);
    assert_eq!(layers(|facts| facts.cgroup = Some("0::/\n".into())).mark("cgroup"), Mark::Missing);
    assert_eq!(layers(|facts| facts.cgroup = None).mark("cgroup"), Mark::Unread);
    assert_eq!(layers(|facts| facts.pid = 78).mark("session"), Mark::Missing);
    assert_eq!(layers(|facts| facts.owner = Some(61_001)).mark("undumpable"), Mark::Missing);
}

#[test]
fn what_cannot_be_read_is_not_claimed() {
    let nobody = Layers::from(&Facts::default());
    assert_eq!(nobody.cell(), "?");
    assert!(nobody.named().all(|(_, mark)| mark == Mark::Unread));
    assert_eq!(Layers::of(0, 1, "site"), nobody);
    let own = Layers::of(std::process::id(), 61_001, "site");
    assert_eq!((own.mark("identity"), own.mark("root")), (Mark::Missing, Mark::Missing));
    assert!(own.fds.unwrap() > 0);
}
