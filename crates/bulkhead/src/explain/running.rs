//! What runs: the processes of a server, as it reports them and as the kernel knows them.
//!
//! Runs in: the `bulkhead` command, as root or the server's owner. Sees: answers of the admin role, which may be
//! compromised: its words are made fit for a terminal here, and a uid is compared with the kernel's. Never: takes
//! a server that cannot be asked for one that agrees.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::Path;

use serde::Deserialize;
use serde_json::{Value, json};
use supervisor::spawn::process_spec::ProcessSpec;
use wire::Role;

use crate::admin::{give, printable};
use crate::fault::Fault;
use crate::layers::{Layers, Mark};

use super::ours::Uids;

/// A process that the server reports.
#[derive(Clone, Debug)]
pub struct Live {
    /// Its name, as people write it.
    pub name: String,
    /// Its pid; 0 if nobody fills this post at the moment.
    pub pid: u32,
    /// Its uid, as the server says.
    pub uid: u32,
    /// What it is doing.
    pub state: String,
    /// How many connections it has now, as it says itself.
    pub connections_now: u32,
    /// What the kernel says of its jail.
    pub layers: Option<Layers>,
}

/// A line of the answer to `status`.
#[derive(Debug, Deserialize)]
struct StatusLine {
    role: String,
    name: String,
    pid: u32,
    uid: u32,
    state: String,
    connections_now: u32,
}

/// A server's processes.
#[derive(Clone, Debug, Default)]
pub struct RunningProcesses {
    /// Each process, in the order of the answer.
    pub processes: Vec<Live>,
    /// Where those of each name are among them.
    by_name: HashMap<String, Vec<usize>>,
    /// The layers of jail that this server has to do without.
    pub missing: String,
}

/// Asks the server at `run_dir` for its processes, and the kernel for the jails of those that are called `name`, or of
/// all.
pub fn ask(run_dir: &Path, name: Option<&str>) -> Result<RunningProcesses, Fault> {
    read(&give(run_dir, &json!({ "command": "status" }))?, name)
}

/// The same of the processes of `site` alone, of those that have a uid of one of these, and of the launcher, if the
/// server can tell.
pub fn ask_of(run_dir: &Path, site: &str, name: &str) -> Result<RunningProcesses, Fault> {
    match give(run_dir, &json!({ "command": "status", "site": site, "alike": true })) {
        Ok(answer) => read(&answer, Some(name)),
        Err(fault @ Fault::Unreachable(_)) => Err(fault),
        // The server does not have this site, or is of a version before.
        Err(_) => ask(run_dir, Some(name)),
    }
}

/// The site that a process belongs to, by its name; others have a role's.
pub fn site_of(name: &str) -> &str {
    name.split(['/', ':', '#']).next().unwrap_or(name)
}

fn read(answer: &Value, wanted: Option<&str>) -> Result<RunningProcesses, Fault> {
    let lines = Vec::<StatusLine>::deserialize(&answer["processes"])
        .map_err(|error| Fault::Failed(format!("the answer is not a list of processes: {error}")))?;
    let missing = printable(answer["missing"].as_str().unwrap_or(""));
    let live = |line: StatusLine| {
        // The launcher and the like have no name but their role's.
        let name = printable(if line.name.is_empty() { &line.role } else { &line.name });
        let is_asked_for = line.pid != 0 && wanted.is_none_or(|wanted| wanted == name);
        Live {
            name,
            layers: is_asked_for.then(|| Layers::of(line.pid, line.uid, &line.role)),
            pid: line.pid,
            uid: line.uid,
            state: printable(&line.state),
            connections_now: line.connections_now,
        }
    };
    Ok(RunningProcesses::new(lines.into_iter().map(live).collect(), missing))
}

impl RunningProcesses {
    /// Of these processes.
    pub fn new(processes: Vec<Live>, missing: String) -> Self {
        let mut by_name: HashMap<String, Vec<usize>> = HashMap::new();
        for (number, live) in processes.iter().enumerate() {
            by_name.entry(live.name.clone()).or_default().push(number);
        }
        Self { processes, by_name, missing }
    }

    /// The processes that have this name.
    pub fn of(&self, name: &str) -> impl Iterator<Item = &Live> {
        self.by_name.get(name).into_iter().flatten().map(|&number| &self.processes[number])
    }

    /// The uid of each name.
    pub fn uids(&self) -> Uids {
        self.processes.iter().map(|live| (live.name.clone(), live.uid)).collect()
    }

    /// The sites that have processes with a uid of one of a site's; `None` if one is a role's, with which something of
    /// all sites falls.
    pub fn alike(&self, site: &str) -> Option<BTreeSet<String>> {
        let own = self.processes.iter().filter(|live| site_of(&live.name) == site);
        let uids: HashSet<u32> = own.map(|live| live.uid).collect();
        let alike = self.processes.iter().filter(|live| uids.contains(&live.uid));
        let names: BTreeSet<&str> = alike.map(|live| site_of(&live.name)).collect();
        let has_role = Role::ALL.iter().any(|role| names.contains(role.name()));
        (!has_role).then(|| names.into_iter().map(str::to_owned).collect())
    }

    /// Where the server is not what the configuration says, or what it should be: in every respect, or as far as the
    /// process `chosen` of `posts` is concerned.
    pub fn notes(&self, posts: &[ProcessSpec], chosen: Option<usize>) -> Vec<String> {
        let concerned = chosen.map_or(posts, |post| &posts[post..=post]);
        let mut notes = Vec::new();
        let idle = |post: &&ProcessSpec| !self.of(&post.name).any(|live| live.pid != 0);
        for post in concerned.iter().filter(idle) {
            let state = self.of(&post.name).next().map_or("unknown to the server", |live| &live.state);
            notes.push(format!(
                "{} does not run ({state}); its part is what the configuration says",
                post.name
            ));
        }
        let known: HashSet<&str> = posts.iter().map(|post| &*post.name).collect();
        let is_strange = |live: &&Live| chosen.is_none() && !known.contains(&*live.name);
        for live in self.processes.iter().filter(is_strange) {
            let name = &live.name;
            notes.push(format!(
                "{name} runs, but is not in this configuration; it was changed since the start"
            ));
        }
        let Some(launcher) = self.of("bulkheadd").next() else {
            notes.push(
                "the server does not say who its launcher is; uids are not compared with its own".into(),
            );
            return notes;
        };
        let shared = self.processes.iter().filter(|live| live.uid == launcher.uid).count();
        if shared > 1 {
            let uid = launcher.uid;
            notes.push(format!(
                "{shared} processes have the launcher's uid {uid}: nothing separates them from each other"
            ));
        } else {
            notes.extend(self.impostors());
        }
        if !self.missing.is_empty() {
            notes.push(format!("layers of jail that are missing in this server: {}", self.missing));
        }
        notes
    }

    /// Processes of which the kernel says another identity than the server.
    fn impostors(&self) -> Option<String> {
        let denied = |live: &&Live| {
            live.name != "bulkheadd"
                && live.layers.as_ref().is_some_and(|layers| layers.mark("identity") == Mark::Missing)
        };
        let names: Vec<&str> = self.processes.iter().filter(denied).map(|live| live.name.as_str()).collect();
        (!names.is_empty()).then(|| {
            let names = names.join(", ");
            format!("the kernel does not confirm the identity of {names}; `bulkhead status` has the layers")
        })
    }
}

#[cfg(test)]
pub mod tests {
    use super::super::{assets::tests::demo, contacts::posts};
    use super::*;

    /// A server whose processes do not exist, so that the kernel says nothing of them.
    pub fn server(lines: &[(&str, &str, u32, u32, &str)]) -> RunningProcesses {
        let line = |&(role, name, pid, uid, state): &(&str, &str, u32, u32, &str)| {
            json!({ "role": role, "name": name, "pid": pid, "uid": uid, "state": state, "connections_now": 2,
                "age_ms": 1 })
        };
        let processes: Vec<Value> = lines.iter().map(line).collect();
        read(&json!({ "ok": true, "missing": "", "processes": processes }), None).unwrap()
    }

    /// The demo's server; pids that no process can have.
    pub fn whole() -> RunningProcesses {
        let names =
            ["", "gate", "packages", "packages/search", "packages/package", "packages/crash", "other"];
        let names = names.into_iter().chain(["logger", "admin", "gate"]);
        let lines: Vec<_> = names
            .enumerate()
            .map(|(number, name)| {
                let uid = if name.is_empty() { 0 } else { 51_000 + number as u32 % 9 };
                let role = if name.is_empty() { "bulkheadd" } else { "some" };
                (role, name, 4_000_000_000 + number as u32, uid, "serving")
            })
            .collect();
        let mut running = server(&lines);
        let uid = running.of("gate").next().unwrap().uid;
        running.processes.last_mut().unwrap().uid = uid;
        running
    }

    #[test]
    fn a_server_that_agrees_has_no_notes() {
        let notes = whole().notes(&posts(&demo()), None);
        assert!(notes.is_empty(), "{notes:?}");
        assert_eq!(whole().of("gate").count(), 2);
        assert_eq!(whole().uids()["bulkheadd"], 0);
    }

    #[test]
    fn differences_are_noted() {
        let running = server(&[
            ("bulkheadd", "", 4_000_000_000, 0, "serving"),
            ("site", "old\u{7}", 4_000_000_001, 51_001, "serving"),
            ("service", "packages/crash", 0, 51_002, "broken"),
        ]);
        let notes = running.notes(&posts(&demo()), None).join("\n");
        assert!(notes.contains("packages/crash does not run (broken)"), "{notes}");
        assert!(notes.contains("other does not run (unknown to the server)"), "{notes}");
        assert!(notes.contains("old\\u{7} runs, but is not in this configuration"), "{notes}");
        let of_one = running.notes(&posts(&demo()), Some(5));
        assert_eq!(of_one, ["packages/crash does not run (broken); its part is what the configuration says"]);
    }

    #[test]
    fn one_uid_for_all_is_noted() {
        let mut running = whole();
        running.processes.iter_mut().for_each(|live| live.uid = 1000);
        running.missing = "root, identity".into();
        let notes = running.notes(&posts(&demo()), None);
        assert_eq!(
            notes,
            [
                "10 processes have the launcher's uid 1000: nothing separates them from each other",
                "layers of jail that are missing in this server: root, identity"
            ]
        );
    }

    #[test]
    fn an_identity_that_the_kernel_denies_is_noted() {
        let mut running = whole();
        // This test's own process does not have that uid.
        running.processes[2].layers = Some(Layers::of(std::process::id(), 51_999, "site"));
        let notes = running.notes(&posts(&demo()), None);
        assert_eq!(notes.len(), 1);
        assert!(notes[0].starts_with("the kernel does not confirm the identity of packages;"), "{notes:?}");
    }

    #[test]
    fn what_is_no_answer_is_refused() {
        assert!(read(&json!({ "ok": true, "processes": [{ "role": 1 }] }), None).is_err());
        assert!(read(&json!({ "ok": true }), None).is_err());
    }
}
