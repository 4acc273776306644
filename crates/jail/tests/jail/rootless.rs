//! The jail that any user can build.
//!
//! Runs in: the jail's test, as any user but root; root's test starts it as one.

use std::fs::File;

use jail::Jail;
use sys::process::Exit;

use crate::Test;
use crate::probe::TELL;
use crate::process::{all, hold_a_key, jail, open, start, start_on};

/// The errand of a process that runs these tests.
pub const SUITE: &str = "rootless tests";

/// The tests.
pub const TESTS: &[Test] = &[
    ("rootless_layers_are_applied", rootless_layers_are_applied),
    ("rootless_layers_that_need_root_are_left_out", rootless_layers_that_need_root_are_left_out),
    (
        "rootless_layers_have_effects_that_are_gone_without_them",
        rootless_layers_have_effects_that_are_gone_without_them,
    ),
];

fn rootless_layers_are_applied() {
    let null = File::open("/dev/null").expect("it opens");
    let descriptors = vec![(null.into(), 3)];
    let probe = start(&[], Jail { descriptors, directory: Some(open("/usr")), ..jail() }).expect("it starts");
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert_eq!(probe.status(set), "0000000000000000", "{set}");
    }
    assert_eq!(probe.status("NoNewPrivs"), "1");
    assert_eq!(probe.status("Seccomp"), "2");
    assert_eq!(probe.status("Umask"), "0077");
    let pid = i64::from(probe.child.pid);
    assert_eq!(probe.session(), [pid, pid, 0], "group, session, terminal");
    assert_eq!(probe.limit("Max open files"), ("64".into(), "64".into()));
    for none in ["core file size", "locked memory", "msgqueue size", "realtime priority", "nice priority"] {
        assert_eq!(probe.limit(&format!("Max {none}")), ("0".into(), "0".into()), "{none}");
    }
    assert_eq!(probe.fact("parent_death_signal"), libc::SIGKILL.to_string());
    assert_eq!(probe.link("cwd").to_str(), Some("/usr"));
    assert_eq!(probe.dismiss(), Exit::Clean);
}

/// The uid is the user's own, so its processes are not counted against the jail.
fn rootless_layers_that_need_root_are_left_out() {
    let own = rustix::process::getuid().as_raw().to_string();
    let probe = start(&[], jail()).expect("it starts");
    assert_eq!(probe.status("Uid"), [&*own; 4].join(" "));
    assert_eq!(probe.link("root").to_str(), Some("/"));
    assert_ne!(probe.limit("Max processes").0, "64");
    for namespace in ["cgroup", "ipc", "mnt", "net", "pid", "uts"] {
        let link = format!("ns/{namespace}");
        let ours = std::fs::read_link(format!("/proc/self/{link}")).expect("a link");
        assert_eq!(probe.link(&link), ours, "{namespace}");
    }
    assert_eq!(probe.dismiss(), Exit::Clean);
}

fn rootless_layers_have_effects_that_are_gone_without_them() {
    let launcher = format!("signal {}", std::process::id());
    let table: [(&str, &[&'static str], &str, &str, &str); 5] = [
        ("landlock", &[], "open /etc/passwd", "EACCES", "ok"),
        ("landlock", &[], &launcher, "EPERM", "ok"),
        ("seccomp", &[], "unshare 10000000", "EPERM", "ok"),
        ("seccomp", &[], "writable-code", "EPERM", "ok"),
        ("keyring", &["seccomp"], "key", "ENOKEY", "ok"),
    ];
    for (layer, others, attempt, with, free) in table {
        let find = |without: Vec<&'static str>| {
            let probe = start_on(TELL, &all(&[attempt]), Jail { without, ..jail() }, hold_a_key);
            probe.expect("it starts").found()
        };
        let layer = jail::LAYERS.iter().find(|known| known.name == layer).expect("the layer").name;
        let found = (find(others.to_vec()), find([others, &[layer]].concat()));
        assert_eq!(found, (with.into(), free.into()), "with and without {layer}: {attempt}");
    }
}
