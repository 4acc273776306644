//! `bulkhead explain`: what falls with a process that an attacker owns.
//!
//! Runs in: the `bulkhead` command, as whoever types it. Sees: the operator's configuration and files of statements,
//! and answers of the admin role if a server runs. Never: changes anything, or needs a running server.
//!
//! Source: Krohn, "Building Secure High-Performance Web Services with OKWS", USENIX ATC 2004, 3.3
//! (the dependency graph of processes, services, users and state).

mod assets;
mod calls;
mod contacts;
mod databases;
mod draw;
mod granted;
mod inventory;
mod json;
mod model;
mod names;
mod others;
mod ours;
mod panel;
mod part;
mod running;
mod svg;
mod table;
mod text;
mod together;

pub use assets::data_name;
pub use running::site_of;
use std::path::Path;
use std::process::ExitCode;

use config::Config;
use supervisor::spawn::process_spec::ProcessSpec;
use wire::CHANNELS;

use crate::fault::Fault;
use crate::left_out::{self, LeftOutFiles};
use crate::locate;
use crate::table::print;

use contacts::{Directory, Hosts, Topology, posts};
use granted::GrantedCalls;
use model::Model;
use others::Other;
use ours::Facts;
use running::RunningProcesses;

/// What is taken for granted of our own server if it does not run.
const ASSUMED: &str = "Started as root: every site, every service and every role has a uid of its own. Files can \
    be read by their owner's uid alone, and a service reads no folders but those that it names.";

/// What a rootless run has.
const ROOTLESS: &str = "Not started as root: all processes have one uid, so that nothing separates them.";

/// How the answer is to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Tables for people.
    Text,
    /// One JSON object.
    Json,
    /// A picture.
    Svg,
}

/// Of how much of the configuration and the server an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    /// Of all of it.
    Whole,
    /// Of what one site has to do with: of how much else there is, nothing is said.
    OfSite,
}

/// What is known of the configuration and the server.
#[derive(Debug)]
struct ExplainInput {
    config: Config,
    /// Every process of ours.
    posts: Vec<ProcessSpec>,
    /// The server, or why it cannot be asked.
    server: Result<RunningProcesses, String>,
    /// The process that is asked about.
    chosen: Option<usize>,
}

impl ExplainInput {
    /// Everything but the files that are left out, with these.
    fn whole(path: &Path, partition: Option<&str>) -> Result<(Self, LeftOutFiles), Fault> {
        let (config, left_out) = left_out::read(path, partition.as_slice())?;
        let posts = posts(&config);
        let names: Vec<&str> = posts.iter().map(|post| post.name.as_str()).collect();
        let chosen = partition.map(|name| names::find(name, &names)).transpose();
        let chosen = chosen.map_err(|fault| left_out.beside(fault))?;
        let server = running::ask(&config.server.run_dir, chosen.map(|post| names[post]));
        let server = server.map_err(|fault| fault.to_string());
        Ok((Self { config, posts, server, chosen }, left_out))
    }
}

/// Everything that there is to say, for the renderers.
#[derive(Debug)]
struct Explanation {
    /// The configuration file, as it was named.
    file: String,
    config: Config,
    /// What services may ask of databases.
    granted: GrantedCalls,
    /// Every process of ours; the model has them in the same order.
    posts: Vec<ProcessSpec>,
    hosts: Hosts,
    directory: Directory,
    ours: Model,
    /// The servers beside ours, where they are compared.
    others: Vec<Other>,
    /// The server, or why it cannot be asked.
    server: Result<RunningProcesses, String>,
    notes: Vec<String>,
}

impl Explanation {
    #[cfg(test)]
    fn new(
        file: String,
        config: Config,
        granted: GrantedCalls,
        server: Result<RunningProcesses, String>,
    ) -> Self {
        let posts = posts(&config);
        Self::of(file, ExplainInput { config, posts, server, chosen: None }, granted)
    }

    /// Of every process, and beside other servers; or of the process that is asked about in every respect, and of
    /// others what falls with it.
    fn of(file: String, gathered: ExplainInput, granted: GrantedCalls) -> Self {
        let ExplainInput { config, posts, server, chosen } = gathered;
        let assets = assets::of(&config, &granted);
        let uids = server.as_ref().map(RunningProcesses::uids).unwrap_or_default();
        let mut notes = server.as_ref().map(|running| running.notes(&posts, chosen)).unwrap_or_default();
        notes.extend(
            granted.faults().map(|why| format!("it is not known what services may ask a database: {why}")),
        );
        let (hosts, directory) = (Hosts::of(&config), Directory::of(&posts));
        let facts =
            Facts { config: &config, hosts: &hosts, channels: CHANNELS, assets: &assets, granted: &granted };
        let ours = ours::model(facts, &posts, &uids, chosen);
        let others = if chosen.is_none() { others::all(&config, &assets) } else { Vec::new() };
        Self { file, config, granted, posts, hosts, directory, ours, others, server, notes }
    }

    /// Of how much the answer about a process is, or that about all.
    fn extent(&self, chosen: Option<usize>) -> Extent {
        let is_of_site = chosen.is_some_and(|post| self.posts[post].site_number().is_some());
        if is_of_site { Extent::OfSite } else { Extent::Whole }
    }

    /// Our own server, and then the others: name, what is assumed, model.
    fn servers(&self) -> Vec<(&str, &str, &Model)> {
        let own = ("Bulkhead", self.assumed(), &self.ours);
        let others = self.others.iter().map(|other| (other.name, other.assumed, &other.model));
        std::iter::once(own).chain(others).collect()
    }

    /// Who can send what to whom.
    fn topology(&self) -> Topology<'_> {
        let Self { config, hosts, posts, directory, .. } = self;
        Topology { config, hosts, channels: CHANNELS, posts, directory }
    }

    fn assumed(&self) -> &'static str {
        let root = |running: &RunningProcesses| running.of("bulkheadd").all(|live| live.uid == 0);
        if self.server.as_ref().is_ok_and(|running| !root(running)) { ROOTLESS } else { ASSUMED }
    }
}

/// Says what falls with `partition`, or with each process.
pub fn explain(named: Option<&Path>, partition: Option<&str>, form: Form) -> Result<ExitCode, Fault> {
    let path = locate::config(named)?;
    // A picture has all of them, and the chosen one is framed.
    let is_of_one = matches!(form, Form::Text | Form::Json);
    let part = partition.filter(|_| is_of_one).and_then(|name| part::of(&path, name));
    let (gathered, left_out) = match part {
        Some(part) => (part, LeftOutFiles(Vec::new())),
        None => ExplainInput::whole(&path, partition)?,
    };
    let (chosen, granted) = (gathered.chosen, GrantedCalls::read(&gathered.config));
    let alone = chosen.filter(|_| is_of_one);
    let report =
        Explanation::of(path.display().to_string(), ExplainInput { chosen: alone, ..gathered }, granted);
    print(&match (form, chosen) {
        (Form::Json, _) => {
            let mut said = json::report(&report, chosen);
            said["left_out"] = serde_json::json!(left_out.0);
            format!("{said:#}")
        }
        (Form::Svg, _) => svg::report(&report, chosen)?,
        (Form::Text, Some(post)) => text::one(&report, post),
        (Form::Text, None) => table::all(&report),
    })?;
    Ok(left_out.say())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The demo, with a server or without one.
    pub fn demo(server: Option<RunningProcesses>) -> Explanation {
        let server = server.ok_or_else(|| "no server is running".to_owned());
        Explanation::new("demo.toml".into(), assets::tests::demo(), GrantedCalls::default(), server)
    }

    #[test]
    fn a_uid_that_is_shared_is_assumed_no_more() {
        assert_eq!(demo(None).assumed(), ASSUMED);
        assert_eq!(demo(Some(running::tests::whole())).assumed(), ASSUMED);
        let mut running = running::tests::whole();
        running.processes.iter_mut().for_each(|live| live.uid = 1000);
        let rootless = demo(Some(running));
        assert_eq!(rootless.assumed(), ROOTLESS);
        let summary = rootless.ours.summary();
        assert!(summary.lost > 0.9, "{summary:?}");
    }
}
