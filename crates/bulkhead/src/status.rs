//! `bulkhead status`: what the server says of its processes, beside what the kernel says of their jails.
//!
//! Runs in: the `bulkhead` command, as root or the server's owner. Sees: answers of the admin role, which may be
//! compromised: its words are printed with control characters escaped. Never: takes its word for a layer.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::admin::{give, printable};
use crate::cli::{StatusPart, StatusView};
use crate::fault::Fault;
use crate::isolation;
use crate::layers::Layers;
use crate::left_out;
use crate::memory::memory;
use crate::score;
use crate::table::{age, align, print, size};

/// The state of a process for which there is no room.
const WITHOUT_ROOM: &str = "waits for room";
/// LIMIT: names of such processes in the table.
const NAMES_MAX: usize = 8;

/// The launcher's role; it is the one process that is not jailed.
pub const LAUNCHER: &str = "bulkheadd";

const HEADER: [&str; 11] =
    ["ROLE", "PARTITION", "PID", "UID", "STATE", "RESTARTS", "CONNS", "REQUESTS", "MEMORY", "AGE", "LAYERS"];

/// The columns of numbers, aligned to the right.
const NUMBERS: [usize; 7] = [2, 3, 5, 6, 7, 8, 9];

/// A process, as the server describes it.
#[derive(Debug, Deserialize)]
pub struct ProcessStatus {
    /// Its role.
    pub role: String,
    /// Its name, by which orders know it; the launcher's is of no use.
    pub name: String,
    /// Its pid; 0 if nobody fills this post at the moment.
    pub pid: u32,
    uid: u32,
    /// What it is doing.
    pub state: String,
    restarts: u32,
    age_ms: u64,
    connections_now: u32,
    connections: u64,
    requests: u64,
    last_exit: String,
    jit: bool,
    /// A server of an earlier version does not say it.
    #[serde(default)]
    oom_kills: u32,
    /// The same of these: of which version the launcher is that has started it, and whether that is one before.
    #[serde(default)]
    version: String,
    #[serde(default)]
    is_before: bool,
}

/// How much of the range of uids is given out.
#[derive(Debug, Deserialize)]
struct UidShare {
    range: String,
    taken: u32,
    size: u64,
    left: u32,
    is_scarce: bool,
}

/// What is to be said of all processes.
#[derive(Debug, Default)]
struct Whole {
    missing: String,
    /// `None` without root.
    uids: Option<UidShare>,
    /// How many processes of a launcher before work on, and whether they are being replaced.
    before: u64,
    is_upgrading: bool,
}

impl Whole {
    fn of(answer: &mut Value) -> Self {
        Self {
            missing: answer["missing"].as_str().unwrap_or("").to_owned(),
            uids: serde_json::from_value(answer["uids"].take()).ok(),
            before: answer["before"]["processes"].as_u64().unwrap_or_default(),
            is_upgrading: answer["before"]["is_upgrading"] == true,
        }
    }

    /// Whether an upgrade has left some of the processes of before.
    fn is_half(&self) -> bool {
        self.before > 0 && !self.is_upgrading
    }

    fn uids_json(&self) -> Value {
        self.uids.as_ref().map_or(Value::Null, |uids| {
            json!({ "range": uids.range, "taken": uids.taken, "size": uids.size, "left": uids.left, "is_scarce": uids.is_scarce })
        })
    }

    fn upgrade_json(&self) -> Value {
        let state = match (self.is_upgrading, self.is_half()) {
            (true, _) => "under way",
            (false, true) => "half",
            (false, false) => "whole",
        };
        json!({ "state": state, "processes_before": self.before })
    }

    /// What the operator should see to.
    fn text(&self, seen: &[SeenProcess]) -> String {
        let mut text = String::new();
        if let Some(UidShare { range, taken, size, left, .. }) =
            self.uids.as_ref().filter(|uids| uids.is_scarce)
        {
            text += &format!(
                "\nuids: {taken} of the {size} of `user_range` {} are given out, {left} of them to what the configuration does not have; \
                 `bulkhead site uids` lists them",
                printable(range)
            );
        }
        let before = seen.iter().map(|seen| &seen.process).filter(|process| process.is_before);
        let before = before.filter(|_| self.before > 0);
        for ProcessStatus { role, name, version, pid, .. } in before {
            let (role, name, version) = (printable(role), printable(name), printable(version));
            let name = if name == role { name } else { format!("{role} {name}") };
            text += &format!("\nof version {version}: {name} (pid {pid})");
        }
        if self.is_upgrading {
            text += &format!("\nan upgrade is under way: {} processes have yet to be replaced", self.before);
        } else if self.is_half() {
            text += &format!(
                "\nthe last upgrade ended half: {} processes are of a launcher before; `error.log` says why their successors did not come up; \
                 put that right, and run `bulkhead upgrade` again, which replaces them",
                self.before
            );
        }
        text
    }
}

/// A process, with what the kernel says of it if it exists.
#[derive(Debug)]
pub struct SeenProcess {
    /// As the server describes it.
    pub process: ProcessStatus,
    /// As the kernel does.
    pub layers: Option<Layers>,
    memory: Option<u64>,
}

impl SeenProcess {
    fn new(process: ProcessStatus) -> Self {
        // Pid 0 stands for a post that nobody fills; /proc/0 does not exist.
        let exists = process.pid != 0;
        Self {
            layers: exists.then(|| Layers::of(process.pid, process.uid, &process.role)),
            memory: exists.then(|| memory(process.pid)).flatten(),
            process,
        }
    }

    fn row(&self) -> Vec<String> {
        let process = &self.process;
        let partition = match process.role.as_str() {
            "site" | "service" | "connector" | "broker" | "dataproxy" | "publisher" => {
                printable(&process.name)
            }
            _ => "-".into(),
        };
        let layers = self.layers.as_ref().map_or("-".into(), Layers::cell);
        let or_dash = |exists: bool, text: String| if exists { text } else { "-".into() };
        vec![
            printable(&process.role),
            partition,
            or_dash(process.pid != 0, process.pid.to_string()),
            process.uid.to_string(),
            printable(&process.state),
            process.restarts.to_string(),
            format!("{}/{}", process.connections_now, process.connections),
            process.requests.to_string(),
            self.memory.map_or("-".into(), size),
            or_dash(process.age_ms != 0, age(process.age_ms)),
            or_dash(process.role != LAUNCHER, layers),
        ]
    }

    fn json(&self) -> Value {
        let process = &self.process;
        let layers = self.layers.as_ref().map(Layers::json);
        json!({
            "role": process.role, "name": process.name, "pid": process.pid, "uid": process.uid,
            "state": process.state, "restarts": process.restarts, "age_ms": process.age_ms,
            "connections_now": process.connections_now, "connections": process.connections,
            "requests": process.requests, "last_exit": process.last_exit, "jit": process.jit,
            "memory_bytes": self.memory, "oom_kills": process.oom_kills, "layers": layers,
            "version": process.version, "is_before": process.is_before,
        })
    }
}

/// Asks the server at `run_dir` for its processes and prints them.
pub fn status(run_dir: &Path, view: &StatusView) -> Result<ExitCode, Fault> {
    let mut answer = give(run_dir, &order(&view.part))?;
    let next = answer["next"].as_u64();
    let whole = Whole::of(&mut answer);
    let processes: Vec<ProcessStatus> = serde_json::from_value(answer["processes"].take())
        .map_err(|error| Fault::Failed(format!("the answer is not a list of processes: {error}")))?;
    let mut seen: Vec<SeenProcess> = processes.into_iter().map(SeenProcess::new).collect();
    let scores = if view.score { Some(score::of_all(run_dir, &mut seen)) } else { None };
    let failed = scores.iter().flatten().any(|score| score.report.is_err());
    let text = if view.json {
        let processes: Vec<Value> = seen.iter().map(SeenProcess::json).collect();
        let milliseconds = |key: &str| answer[key].as_u64().map(|step_us| step_us as f64 / 1000.0);
        let loop_ms = json!({ "longest": milliseconds("longest_step_us"), "lately": milliseconds("longest_lately_us") });
        let loop_did = json!({ "longest": answer["longest_step"], "lately": answer["longest_lately"] });
        let mut document = json!({
            "missing": whole.missing, "launcher_step_ms": loop_ms, "launcher_step": loop_did, "processes": processes,
            "next": next, "uids": whole.uids_json(), "upgrade": whole.upgrade_json(),
            "left_out": left_out::of_answer(&mut answer)?.0,
        });
        if let Some(scores) = &scores {
            document["scores"] = scores.iter().map(score::JailScore::json).collect();
        }
        format!("{document:#}")
    } else if view.isolation {
        let scores = scores.map_or(String::new(), |scores| score::render(&scores));
        isolation::render(&seen, &whole.missing) + &scores + &more(next)
    } else {
        render(&seen, &whole) + &said_of(&mut answer)? + &more(next)
    };
    print(&text)?;
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Words on files of sites, and on certificates, that were left out.
fn said_of(answer: &mut Value) -> Result<String, Fault> {
    let left_out = left_out::of_answer(answer)?.0;
    Ok(left_out.into_iter().map(|left| format!("\n{}", left.text())).collect())
}

/// The order for a part of the list.
fn order(part: &StatusPart) -> Value {
    let mut order = json!({ "command": "status" });
    let mut set = |key: &str, value: Option<Value>| value.into_iter().for_each(|value| order[key] = value);
    set("site", part.site.clone().map(Value::from));
    set("role", part.role.clone().map(Value::from));
    set("limit", part.limit.map(Value::from));
    set("after", part.after.map(Value::from));
    order
}

/// Where the next page begins.
fn more(next: Option<u64>) -> String {
    next.map_or(String::new(), |next| format!("\nmore: `--after {next}`"))
}

fn render(seen: &[SeenProcess], whole: &Whole) -> String {
    let header = HEADER.map(str::to_owned).to_vec();
    // There may be thousands of these.
    let (resting, present): (Vec<_>, Vec<_>) = seen.iter().partition(|seen| seen.process.state == "resting");
    let (waiting, present): (Vec<_>, Vec<_>) =
        present.into_iter().partition(|seen| seen.process.state == WITHOUT_ROOM);
    let rows: Vec<Vec<String>> =
        std::iter::once(header).chain(present.into_iter().map(SeenProcess::row)).collect();
    let mut text = align(&rows, &NUMBERS);
    if !resting.is_empty() {
        text += &format!("\nresting: {}, which start on demand; `--json` names them", resting.len());
    }
    text += &without_room(&waiting);
    for SeenProcess { process, .. } in seen.iter().filter(|seen| seen.process.state == "broken") {
        let (name, exit) = (printable(&process.name), printable(&process.last_exit));
        text += &format!("\nbroken: {name}: {exit}; `bulkhead relaunch {name}` tries again");
    }
    let has_ended =
        |seen: &&SeenProcess| seen.process.role == "publisher" && !seen.process.last_exit.is_empty();
    for SeenProcess { process, .. } in seen.iter().filter(has_ended) {
        let (name, exit) = (printable(&process.name), printable(&process.last_exit));
        text += &format!(
            "\nended before: {name}: {exit}; `error.log` says why, `bulkhead check` examines its templates"
        );
    }
    for SeenProcess { process, .. } in seen.iter().filter(|seen| seen.process.oom_kills > 0) {
        let name = if process.role == LAUNCHER { "all processes".into() } else { printable(&process.name) };
        text += &format!(
            "\nkilled for want of memory: {name}: {} times; `error.log` says which limit was reached",
            process.oom_kills
        );
    }
    for name in seen.iter().filter(|seen| seen.process.jit).map(|seen| printable(&seen.process.name)) {
        text += &format!("\njit: {name} may make code while it runs (`jit = true`)");
    }
    text += &whole.text(seen);
    if !whole.missing.is_empty() {
        text += &format!("\nmissing layers: {}", printable(&whole.missing));
    }
    text
}

/// Which processes wait for room, the first of them, and for what. There may be thousands.
fn without_room(waiting: &[&SeenProcess]) -> String {
    let mut by_lack: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for SeenProcess { process, .. } in waiting {
        by_lack.entry(&process.last_exit).or_default().push(printable(&process.name));
    }
    let line = |(lack, names): (&str, Vec<String>)| {
        let first = names[..names.len().min(NAMES_MAX)].join(", ");
        let more = match names.len().saturating_sub(NAMES_MAX) {
            0 => String::new(),
            more => format!(" and {more} more, which `--json` names"),
        };
        format!(
            "\nwaits for room: {first}{more}; there is not enough of {}; `error.log` has the figures",
            printable(lack)
        )
    };
    by_lack.into_iter().map(line).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A process of which the server says this.
    pub(crate) fn process(role: &str, name: &str, pid: u32, state: &str) -> SeenProcess {
        let json = json!({
            "role": role, "name": name, "pid": pid, "uid": 61_001, "state": state, "restarts": 3,
            "age_ms": 61_000, "connections_now": 1, "connections": 20, "requests": 300,
            "last_exit": "exited with 1\u{1b}", "jit": role == "service",
        });
        SeenProcess::new(serde_json::from_value(json).unwrap())
    }

    #[test]
    fn the_table_has_a_line_for_each_process_and_says_what_is_wrong() {
        let seen = [
            process("gate", "gate", std::process::id(), "serving"),
            process("service", "packages/search", 0, "broken"),
        ];
        let missing = |missing: &str| Whole { missing: missing.into(), ..Whole::default() };
        let text = render(&seen, &missing("seccomp, landlock"));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 6, "{text}");
        assert!(lines[0].starts_with("ROLE     PARTITION"), "{text}");
        assert!(lines[1].contains("1/20") && lines[1].contains("1m01s"), "{text}");
        assert!(lines[1].contains("  all but identity, ") && lines[1].contains("; fds "), "{text}");
        assert!(lines[2].contains("packages/search") && lines[2].ends_with('-'), "{text}");
        assert!(lines[3].starts_with("broken: packages/search: exited with 1\\u{1b};"), "{text}");
        assert_eq!(lines[4], "jit: packages/search may make code while it runs (`jit = true`)");
        assert_eq!(lines[5], "missing layers: seccomp, landlock");
        assert!(!render(&seen[..1], &missing("")).contains("missing"));
        let text = render(&[process("site", "packages", 0, "resting")], &missing(""));
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.ends_with("resting: 1, which start on demand; `--json` names them"), "{text}");
    }

    #[test]
    fn what_an_upgrade_has_left_is_said_with_its_version() {
        let mut answer = json!({
            "missing": "", "before": { "processes": 1, "is_upgrading": false },
            "uids": { "range": "51001-51100", "taken": 80, "size": 100, "left": 7, "is_scarce": true },
        });
        let whole = Whole::of(&mut answer);
        let mut old = process("site", "main", 0, "serving");
        (old.process.version, old.process.is_before) = ("0.1.0".into(), true);
        let text = render(&[old, process("gate", "gate", 0, "serving")], &whole);
        assert!(
            text.contains("\nof version 0.1.0: site main (pid 0)\nthe last upgrade ended half: 1 processes"),
            "{text}"
        );
        assert!(
            text.contains("\nuids: 80 of the 100 of `user_range` 51001-51100 are given out, 7 of them"),
            "{text}"
        );
        assert_eq!(whole.upgrade_json(), json!({ "state": "half", "processes_before": 1 }));
        let going_on = Whole { before: 3, is_upgrading: true, ..Whole::default() };
        assert!(going_on.text(&[]).contains("under way: 3 processes have yet to be replaced"));
        assert_eq!(Whole::of(&mut json!({})).text(&[]), "");
    }

    #[test]
    fn of_many_that_wait_for_room_the_first_are_named_with_what_to_raise() {
        let one = |number: usize| {
            let mut seen = process("site", &format!("s{number}"), 0, WITHOUT_ROOM);
            seen.process.last_exit = "processes: raise `TasksMax=`".into();
            seen
        };
        let seen: Vec<SeenProcess> = (0..NAMES_MAX + 2).map(one).collect();
        let text = render(&seen, &Whole::default());
        assert_eq!(text.lines().filter(|line| line.contains("waits for room: s0, s1")).count(), 1, "{text}");
        assert!(
            text.contains(" and 2 more, which `--json` names; there is not enough of processes: raise"),
            "{text}"
        );
        assert!(!render(&seen[..1], &Whole::default()).contains(" more"));
    }

    #[test]
    fn a_part_is_asked_for_by_what_is_said_of_it() {
        let part = |site: Option<&str>, limit| StatusPart {
            site: site.map(str::to_owned),
            role: None,
            limit,
            after: None,
        };
        assert_eq!(order(&part(None, None)), json!({ "command": "status" }));
        let of_shop = json!({ "command": "status", "site": "shop", "limit": 5 });
        assert_eq!(order(&part(Some("shop"), Some(5))), of_shop);
        assert_eq!((more(None), more(Some(7))), (String::new(), "\nmore: `--after 7`".to_owned()));
    }

    #[test]
    fn json_has_the_layers() {
        let json = process("site", "packages", std::process::id(), "serving").json();
        assert_eq!(json["layers"]["identity"], false);
        assert!(json["layers"]["fds"].as_u64().unwrap() > 0);
        assert!(json["memory_bytes"].as_u64().unwrap() > 0);
        assert!(process("site", "packages", 0, "broken").json()["layers"].is_null());
    }
}
