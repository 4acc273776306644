//! Every layer has an effect that is gone without it.
//!
//! Runs in: the jail's test, as root.

use std::io;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use jail::policy::Policy;
use jail::{Identity, Jail, LAYERS, Ports, Reach};
use rustix::thread::{CapabilitySet, CapabilitySets};
use sys::attempt::{Arg, calls};

use super::{role, uid};
use crate::Test;
use crate::probe::{STAY, TELL};
use crate::process::{Prepared, Probe, all, filter, hold_a_key, jail, open, start_on};

pub const TESTS: &[Test] = &[
    ("every_layer_has_an_effect_that_is_gone_without_it", every_layer_has_an_effect_that_is_gone_without_it),
    ("every_layer_is_in_the_table", every_layer_is_in_the_table),
];

/// What one layer does, as a probe finds it.
struct Effect {
    layer: &'static str,
    /// Layers with the same effect, which are therefore taken away both times.
    others: &'static [&'static str],
    jail: fn(&Outside) -> Jail,
    /// What is done in the child before its jail is built.
    before: fn() -> Prepared,
    /// What the probe tries, with what [`Outside::name`] puts in.
    attempt: &'static str,
    look: fn(&Probe) -> String,
    with: &'static str,
    without: &'static str,
}

const EFFECT: Effect = Effect {
    layer: "",
    others: &[],
    jail: |_| role(),
    before: || Ok(()),
    attempt: "pair",
    look: Probe::found,
    with: "",
    without: "ok",
};

const NONE: &str = "0000000000000000";

/// LIMIT: the hard limits that are there before the layer, and those that it is to leave.
const BEFORE: &str = "100 1 4096 4096 500";
const AFTER: &str = "64 0 0 0 64";

const EFFECTS: &[Effect] = &[
    Effect {
        layer: "descriptors",
        before: leak,
        look: |probe| fact(probe.descriptors().contains_key(&50), "open", "closed"),
        with: "closed",
        without: "open",
        ..EFFECT
    },
    Effect {
        layer: "session",
        look: |probe| fact(probe.session()[1] == i64::from(probe.child.pid), "own", "the launcher's"),
        with: "own",
        without: "the launcher's",
        ..EFFECT
    },
    Effect { layer: "rlimits", before: lower, look: limits, with: AFTER, without: BEFORE, ..EFFECT },
    Effect {
        layer: "pid namespace",
        look: |probe| fact(probe.fact("pids") == "1 0", "first", "one of many"),
        with: "first",
        without: "one of many",
        ..EFFECT
    },
    // Without it the identity still refuses; but the process is there.
    Effect {
        layer: "pid namespace",
        attempt: "signal {launcher}",
        with: "ESRCH",
        without: "EPERM",
        ..EFFECT
    },
    Effect {
        layer: "cgroup",
        look: |probe| namespace(probe, "cgroup"),
        with: "own",
        without: "shared",
        ..EFFECT
    },
    Effect {
        layer: "ipc namespace",
        look: |probe| namespace(probe, "ipc"),
        with: "own",
        without: "shared",
        ..EFFECT
    },
    Effect {
        layer: "ipc namespace",
        others: &["seccomp"],
        attempt: "segment {segment}",
        with: "ENOENT",
        ..EFFECT
    },
    Effect {
        layer: "uts namespace",
        look: |probe| namespace(probe, "uts"),
        with: "own",
        without: "shared",
        ..EFFECT
    },
    Effect {
        layer: "uts namespace",
        attempt: "name",
        look: host,
        with: "bulkhead",
        without: "machine's",
        ..EFFECT
    },
    Effect {
        layer: "network namespace",
        jail: granted,
        attempt: "connect {port}",
        with: "ENETUNREACH",
        ..EFFECT
    },
    Effect {
        layer: "network namespace",
        others: &["landlock", "seccomp"],
        attempt: "abstract {name}",
        with: "ECONNREFUSED",
        ..EFFECT
    },
    Effect { layer: "root", others: &["landlock"], attempt: "open /etc/passwd", with: "ENOENT", ..EFFECT },
    Effect { layer: "root", look: |probe| namespace(probe, "mnt"), with: "own", without: "shared", ..EFFECT },
    Effect {
        layer: "directory",
        jail: |_| Jail { root: None, directory: Some(open("/usr")), ..role() },
        look: |probe| fact(probe.link("cwd").as_os_str() == "/usr", "its own", "the launcher's"),
        with: "its own",
        without: "the launcher's",
        ..EFFECT
    },
    Effect {
        layer: "keyring",
        others: &["seccomp"],
        before: hold_a_key,
        attempt: "key",
        with: "ENOKEY",
        ..EFFECT
    },
    Effect {
        layer: "bounding set",
        look: |probe| format!("{} {}", amount(probe, "CapBnd"), probe.fact("securebits")),
        with: "none 0xeb",
        without: "some 0x0",
        ..EFFECT
    },
    Effect {
        layer: "identity",
        look: |probe| fact(probe.status("Uid").starts_with("0 "), "root", "its own"),
        with: "its own",
        without: "root",
        ..EFFECT
    },
    Effect {
        layer: "capabilities",
        before: inherit_capabilities,
        look: |probe| amount(probe, "CapInh"),
        with: "none",
        without: "some",
        ..EFFECT
    },
    Effect {
        layer: "no_new_privs",
        // Both set it as well.
        others: &["landlock", "seccomp"],
        look: |probe| probe.status("NoNewPrivs"),
        with: "1",
        without: "0",
        ..EFFECT
    },
    Effect {
        layer: "parent death",
        look: |probe| probe.fact("parent_death_signal").into(),
        with: "9",
        without: "0",
        ..EFFECT
    },
    Effect { layer: "landlock", others: &["root"], attempt: "open /etc/passwd", with: "EACCES", ..EFFECT },
    Effect {
        layer: "landlock",
        others: &["pid namespace"],
        attempt: "signal {sibling}",
        with: "EPERM",
        ..EFFECT
    },
    Effect {
        layer: "landlock",
        others: &["pid namespace", "seccomp"],
        attempt: "seize {sibling}",
        with: "EPERM",
        ..EFFECT
    },
    Effect {
        layer: "landlock",
        others: &["network namespace", "seccomp"],
        attempt: "abstract {name}",
        with: "EPERM",
        ..EFFECT
    },
    Effect {
        layer: "seccomp",
        others: &["network namespace", "landlock"],
        attempt: "abstract {name}",
        with: "EPERM",
        ..EFFECT
    },
    // Nothing else keeps a process from cutting its tie to the launcher, or from running what it has written.
    Effect { layer: "seccomp", attempt: "outlive", with: "EPERM", ..EFFECT },
    Effect { layer: "seccomp", attempt: "code-of-own-file", with: "EPERM", ..EFFECT },
    Effect { layer: "seccomp", look: |probe| probe.status("Seccomp"), with: "2", without: "0", ..EFFECT },
    // A user namespace, which would give capabilities: no other layer refuses it.
    // Each of the two closes it: the kernel makes no user namespace for whoever is not at the top of its mounts.
    Effect { layer: "seccomp", others: &["root"], attempt: "unshare 10000000", with: "EPERM", ..EFFECT },
    Effect { layer: "root", others: &["seccomp"], attempt: "unshare 10000000", with: "EPERM", ..EFFECT },
];

/// What is outside of the jail, for its prisoner to find.
struct Outside {
    listener: TcpListener,
    _abstract: UnixListener,
    segment: i64,
    sibling: Probe,
}

impl Outside {
    fn new() -> Self {
        let pid = std::process::id();
        let name = SocketAddr::from_abstract_name(format!("jail-test-{pid}")).expect("a short name");
        let flags = Arg::Int(i64::from(libc::IPC_CREAT | libc::IPC_EXCL | 0o666));
        let segment = calls::SHMGET.make(&mut [Arg::Int(key()), Arg::Int(1), flags]).expect("a segment");
        let sibling = Jail { identity: Identity::new(uid()), without: vec!["landlock"], ..jail() };
        Self {
            listener: TcpListener::bind("127.0.0.1:0").expect("a listener"),
            _abstract: UnixListener::bind_addr(&name).expect("an abstract socket"),
            segment,
            sibling: start_on(STAY, &[], sibling, || Ok(())).expect("the sibling starts"),
        }
    }

    fn port(&self) -> u16 {
        self.listener.local_addr().expect("an address").port()
    }

    /// Puts names and numbers in an attempt.
    fn name(&self, attempt: &str) -> String {
        attempt
            .replace("{port}", &self.port().to_string())
            .replace("{launcher}", &std::process::id().to_string())
            .replace("{sibling}", &self.sibling.child.pid.to_string())
            .replace("{name}", &format!("jail-test-{}", std::process::id()))
            .replace("{segment}", &key().to_string())
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        let _ = calls::SHMCTL_REMOVE.make(&mut [Arg::Int(self.segment), Arg::Int(0), Arg::Int(0)]);
    }
}

/// The segment's key.
fn key() -> i64 {
    0x6A00_0000 + i64::from(std::process::id())
}

fn fact(is: bool, so: &str, not: &str) -> String {
    if is { so.into() } else { not.into() }
}

fn namespace(probe: &Probe, name: &str) -> String {
    let ours = std::fs::read_link(format!("/proc/self/ns/{name}")).expect("a link");
    fact(probe.link(&format!("ns/{name}")) == ours, "shared", "own")
}

fn host(probe: &Probe) -> String {
    let found = probe.found();
    if rustix::system::uname().nodename().to_bytes() == found.as_bytes() { "machine's".into() } else { found }
}

fn amount(probe: &Probe, set: &str) -> String {
    fact(probe.status(set) == NONE, "none", "some")
}

fn limits(probe: &Probe) -> String {
    let names = ["open files", "core file size", "locked memory", "msgqueue size", "processes"];
    names.map(|name| probe.limit(&format!("Max {name}")).1).join(" ")
}

/// Sets the limits of [`BEFORE`].
fn lower() -> Prepared {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let all = [
        (Resource::Nofile, 100),
        (Resource::Core, 1),
        (Resource::Memlock, 4096),
        (Resource::Msgqueue, 4096),
        (Resource::Nproc, 500),
    ];
    let set = |(resource, value)| {
        setrlimit(resource, Rlimit { current: Some(value), maximum: Some(value) })
            .map_err(|error| ("lower", error.into()))
    };
    all.into_iter().try_for_each(set)
}

fn leak() -> Prepared {
    let secret = std::fs::File::open("/etc/passwd").map_err(|error| ("leak", error))?;
    sys::process::place(&secret, 50).map_err(|error| ("leak", error))
}

fn inherit_capabilities() -> Prepared {
    let failed = |error: rustix::io::Errno| ("inherit", io::Error::from(error));
    let now = rustix::thread::capabilities(None).map_err(failed)?;
    let inheritable = now.permitted & CapabilitySet::NET_BIND_SERVICE;
    rustix::thread::set_capabilities(None, CapabilitySets { inheritable, ..now }).map_err(failed)
}

/// A jail whose rules and filter would let it connect.
fn granted(outside: &Outside) -> Jail {
    let reach = Reach { ports: Ports { connect: vec![outside.port()] }, ..jail().reach };
    Jail {
        reach,
        filter: filter(Policy::Connector { unix: false, tcp: true, udp: false, names: false }),
        ..role()
    }
}

fn every_layer_has_an_effect_that_is_gone_without_it() {
    let outside = Outside::new();
    for effect in EFFECTS {
        let find = |without: Vec<&'static str>| {
            let jail = Jail { without, ..(effect.jail)(&outside) };
            let tries = all(&[&outside.name(effect.attempt)]);
            let started = start_on(TELL, &tries, jail, effect.before);
            let probe = started.unwrap_or_else(|error| panic!("{}: {error}", effect.layer));
            (effect.look)(&probe)
        };
        let without: Vec<_> = effect.others.iter().copied().chain([effect.layer]).collect();
        let found = (find(effect.others.to_vec()), find(without));
        let expected = (effect.with.to_owned(), effect.without.to_owned());
        assert_eq!(found, expected, "with and without {}: {}", effect.layer, effect.attempt);
    }
}

fn every_layer_is_in_the_table() {
    for layer in LAYERS.iter().filter(|layer| layer.name != "label") {
        assert!(EFFECTS.iter().any(|effect| effect.layer == layer.name), "{} is not", layer.name);
    }
}
