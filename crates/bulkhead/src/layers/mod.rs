//! The layers of a process's jail, as the kernel reports them in `/proc`, not as the server claims them.
//!
//! Runs in: the `bulkhead` command, as root or the server's owner. Sees: the kernel's texts. Never: takes a layer
//! for applied that it could not read.

mod facts;
mod limits;

use serde_json::{Value, json};

use facts::Facts;

/// One layer: what it is called, and how the kernel's words on a process tell it.
#[derive(Debug)]
pub struct Layer {
    /// Its name, which is that of the jail's own list where that has it.
    pub name: &'static str,
    /// The heading of its column.
    pub heading: &'static str,
    /// What a process has that is in it.
    pub means: &'static str,
    read: fn(&Facts) -> Mark,
}

/// Whether a process has a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// It has.
    Applied,
    /// It has not.
    Missing,
    /// It is in the machine's namespace, as its work needs.
    Host,
    /// The kernel does not say, or not to this user.
    Unread,
}

/// How many layers that cannot be read are named in a cell.
const UNREAD_NAMED: usize = 2;

type Read = fn(&Facts) -> Mark;

const fn layer(name: &'static str, heading: &'static str, means: &'static str, read: Read) -> Layer {
    Layer { name, heading, means, read }
}

/// The one layer of which the kernel tells nothing in `/proc`.
pub const LANDLOCK: &str = "landlock";

/// Every layer that can be seen from outside, and Landlock.
///
/// Not seen, and so not here: which descriptors it was given (their number is), its session keyring, the label of
/// a security module, and the signal that it gets with the launcher's death.
pub const LAYERS: [Layer; 18] = [
    layer("identity", "uid", "a uid and a group of its own, no other", |facts| facts.identity().into()),
    layer("capabilities", "cap", "no capability", |facts| facts.capabilities().into()),
    layer("bounding set", "bnd", "nor can a program file give one", |facts| facts.bounding_set().into()),
    layer("no_new_privs", "nnp", "no setuid program gains anything", |facts| facts.no_new_privs().into()),
    layer("root", "root", "a root directory of its own", |facts| facts.root().into()),
    layer("mount namespace", "mnt", "mounts of its own", |facts| facts.own("mnt").into()),
    layer("pid namespace", "pid", "sees no process of others", Facts::pids),
    layer("ipc namespace", "ipc", "shares no memory by name", |facts| facts.own("ipc").into()),
    layer("uts namespace", "uts", "a host name of its own", |facts| facts.own("uts").into()),
    layer("network namespace", "net", "no network; `host`: the machine's", Facts::network),
    layer("cgroup namespace", "cgn", "sees no control group of others", |facts| facts.own("cgroup").into()),
    layer("cgroup", "grp", "a control group of its own, v1 or v2", |facts| facts.in_cgroup().into()),
    layer("rlimits", "lim", "no core file, few processes", |facts| facts.limits().into()),
    layer("session", "ses", "a session of its own, no terminal", |facts| facts.session().into()),
    layer("umask", "msk", "its files are its own (umask 077)", |facts| facts.umask().into()),
    layer("undumpable", "dmp", "only root may trace it", |facts| facts.undumpable().into()),
    layer("seccomp", "sec", "a filter of system calls", |facts| facts.seccomp().into()),
    layer(LANDLOCK, "ll", "a list of files and ports; see --score", |_| Mark::Unread),
];

/// What the kernel says of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layers {
    marks: [Mark; LAYERS.len()],
    /// How many descriptors it has open.
    pub fds: Option<usize>,
    /// The version of the control groups that it is in.
    pub cgroup: Option<&'static str>,
    /// Whether everybody could list its root directory, were it not for Landlock.
    pub open_root: Option<bool>,
}

impl Layers {
    /// Reads the layers of `pid`, which should run as `uid` and is a `role`.
    pub fn of(pid: u32, uid: u32, role: &str) -> Self {
        Self::from(&Facts::of(pid, uid, role))
    }

    /// Whether it has the layer of this name.
    pub fn mark(&self, name: &str) -> Mark {
        self.named().find(|(layer, _)| layer.name == name).map_or(Mark::Unread, |(_, mark)| mark)
    }

    /// Notes what was found out about a layer in another way.
    pub fn with(mut self, name: &str, mark: Mark) -> Self {
        if let Some(index) = LAYERS.iter().position(|layer| layer.name == name) {
            self.marks[index] = mark;
        }
        self
    }

    /// Every layer with its mark.
    pub fn named(&self) -> impl Iterator<Item = (&'static Layer, Mark)> {
        LAYERS.iter().zip(self.marks)
    }

    /// The layers in one cell of a table: those that are missing, and with `?` those that cannot be read.
    pub fn cell(&self) -> String {
        if self.nothing_was_read() {
            return "?".into();
        }
        let of = |wanted| self.named().filter(move |(_, mark)| *mark == wanted).map(|(layer, _)| layer.name);
        let mut lacks: Vec<String> = of(Mark::Missing).map(str::to_owned).collect();
        let unread = of(Mark::Unread).count();
        let mut more = String::new();
        if unread > UNREAD_NAMED {
            more = format!("; {unread} cannot be read");
        } else {
            lacks.extend(of(Mark::Unread).map(|name| format!("{name}?")));
        }
        let but = match (lacks.as_slice(), more.as_str()) {
            ([], "") => "all".into(),
            ([], _) => "none is missing".into(),
            (lacks, _) => format!("all but {}", lacks.join(", ")),
        };
        let host: String =
            of(Mark::Host).map(|name| format!("; host {}", name.trim_end_matches(" namespace"))).collect();
        let fds = self.fds.map_or("?".into(), |fds| fds.to_string());
        format!("{but}{more}{host}; fds {fds}")
    }

    /// What a probe says of Landlock is no reading.
    fn nothing_was_read(&self) -> bool {
        self.named().all(|(layer, mark)| layer.name == LANDLOCK || mark == Mark::Unread)
    }

    /// A layer in a cell of its own.
    pub fn column(&self, layer: &Layer) -> String {
        match (self.mark(layer.name), layer.name, self.cgroup) {
            (Mark::Applied, "cgroup", Some(version)) => version,
            (Mark::Applied, ..) => "yes",
            (Mark::Missing, ..) => "NO",
            (Mark::Host, ..) => "host",
            (Mark::Unread, ..) => "?",
        }
        .into()
    }

    /// The layers by their names: true, false, `"host"`, or null for what could not be read.
    pub fn json(&self) -> Value {
        let layers = self.named().map(|(layer, mark)| {
            let value = match mark {
                Mark::Applied => json!(true),
                Mark::Missing => json!(false),
                Mark::Host => json!("host"),
                Mark::Unread => Value::Null,
            };
            (layer.name.replace(' ', "_"), value)
        });
        let more = [("fds".to_owned(), json!(self.fds)), ("cgroup_version".to_owned(), json!(self.cgroup))];
        Value::Object(layers.chain(more).collect())
    }
}

impl From<&Facts> for Layers {
    fn from(facts: &Facts) -> Self {
        Self {
            marks: LAYERS.each_ref().map(|layer| (layer.read)(facts)),
            fds: facts.fds,
            cgroup: facts.cgroup_version(),
            open_root: facts.open_root(),
        }
    }
}

impl From<Option<bool>> for Mark {
    fn from(applied: Option<bool>) -> Self {
        match applied {
            Some(true) => Self::Applied,
            Some(false) => Self::Missing,
            None => Self::Unread,
        }
    }
}

#[cfg(test)]
mod tests;
