//! What is said of a process is the same, whether everything was read or what its site has to do with: of generated
//! configurations.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use serde_json::Value;
use supervisor::spawn::process_spec::ProcessSpec;

use super::super::granted::GrantedCalls;
use super::super::running::Live;
use super::super::{Explanation, json, text};
use super::*;

/// How many configurations are tried, if `BULKHEAD_EXPLAIN_CASES` says nothing else.
const CONFIGURATIONS: u64 = 30;
/// The uid of the first process in a server that gives each its own.
const FIRST_UID: u32 = 51_000;

/// Numbers that are the same in each run.
struct Random {
    state: u64,
    /// How the strings of a site are written.
    style: Style,
}

#[derive(Clone, Copy)]
enum Style {
    Basic,
    Literal,
    /// In any of the ways in which that can be done.
    Any,
}

impl Random {
    fn below(&mut self, count: usize) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 16) as usize % count
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn of<'o>(&mut self, options: &[&'o str]) -> &'o str {
        options[self.below(options.len())]
    }

    fn change_style(&mut self) {
        self.style = match self.below(8) {
            0 => Style::Any,
            1 | 2 => Style::Literal,
            _ => Style::Basic,
        };
    }

    /// A TOML string.
    fn string(&mut self, text: &str) -> String {
        match (self.style, self.below(8)) {
            (Style::Any, 0) => {
                let code = u32::from(text.chars().next().unwrap_or('x'));
                format!("\"\\u{code:04x}{}\"", text.chars().skip(1).collect::<String>())
            }
            (Style::Any, 1) => format!("\"\"\"{text}\"\"\""),
            (Style::Any, 2) => format!("'''\n{text}'''"),
            (Style::Literal, _) | (Style::Any, 3) => format!("'{text}'"),
            _ => format!("\"{text}\""),
        }
    }

    fn list(&mut self, texts: &[String]) -> String {
        let strings: Vec<String> = texts.iter().map(|text| self.string(text)).collect();
        let between = match self.style {
            Style::Any => ", # it's a \"list\"\n ",
            Style::Literal => ",\n",
            Style::Basic => ", ",
        };
        format!("[{}]", strings.join(between))
    }
}

/// A folder with a configuration, and folders and a program that it may name.
struct Generated {
    folder: tempfile::TempDir,
    random: Random,
}

impl Generated {
    fn new(seed: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["sites", "public/sub/deep", "r", "bin", "state/files"] {
            fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        fs::copy("/bin/true", folder.path().join("bin/x")).unwrap();
        let state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut new = Self { folder, random: Random { state, style: Style::Basic } };
        new.write();
        new
    }

    fn main(&self) -> PathBuf {
        self.folder.path().join("bulkhead.toml")
    }

    /// A folder as a file in the folder `up` leads to would name it.
    fn path(&mut self, number: usize, up: &str) -> String {
        let own = format!("r/s{number}");
        fs::create_dir_all(self.folder.path().join(&own)).unwrap();
        let name = match self.random.below(9) {
            0 => self.random.of(&["public", "public/sub", "public/sub/deep", "r"]),
            1 | 2 => self.random.of(&["public/", "./public", "public//sub", "r/../public"]),
            3 | 4 => "public",
            _ => &own,
        };
        match self.random.one_in(5) {
            true => self.folder.path().join(name).display().to_string(),
            false => format!("{up}{name}"),
        }
    }

    fn site(&mut self, number: usize, up: &str) -> String {
        self.random.change_style();
        let name = format!("s{number}");
        let mut text = format!("[[site]]\nname = {}\n", self.random.string(&name));
        let shared = ["a.test", "A.Test", "*.test", "*", "[::1]", "0:0::1", "b.test"];
        let mut hosts = vec![format!("h{number}.test")];
        let is_shared = self.random.one_in(3);
        hosts.extend(is_shared.then(|| self.random.of(&shared).to_owned()));
        let _ = writeln!(text, "host = {}", self.random.list(&hosts));
        let path = if is_shared { format!("/{name}/") } else { "/".into() };
        let _ = writeln!(text, "path = \"{path}\"");
        let root = self.path(number, up);
        let all = self.random.one_in(12) && !is_shared;
        match all {
            // Such a site has all hosts without a word.
            true => text = format!("[[site]]\nname = \"{name}\"\nvhosts = {}\n", self.random.string(&root)),
            false => drop(writeln!(text, "root = {}", self.random.string(&root))),
        }
        let path = if all { "/" } else { &path };
        if self.random.one_in(4) {
            let _ = writeln!(text, "user = {}\ndanger_shared_user = true", self.random.string("www"));
        }
        if self.random.one_in(6) {
            let folder = self.path(number, up);
            let _ = writeln!(text, "follow_links = {}", self.random.list(&[folder]));
        }
        for service in 0..self.random.below(3) {
            let read = self.path(number, up);
            // Around folders that no text names.
            let around = self.random.of(&["state/files", "state", ""]);
            let around = self.folder.path().join(around).display().to_string();
            let read = if self.random.one_in(8) { around } else { read };
            let _ = write!(
                text,
                "[[site.service]]\nname = \"x{service}\"\npath = \"{path}x{service}\"\ncommand = [\"{up}bin/x\"]\nread = {}\n",
                self.random.list(&[read])
            );
            text += self.random.of(&[
                "",
                "files = true\n",
                "takes_connections = true\n",
                "network = [\"tcp:443\"]\n",
            ]);
        }
        text
    }

    fn write(&mut self) {
        let mut main = String::from("include = \"sites/*.toml\"\n[[listen]]\naddress = \"127.0.0.1:1\"\n");
        let count = 2 + self.random.below(12);
        for number in 0..count {
            match self.random.below(6) {
                0 => main += &self.site(number, ""),
                _ => {
                    let text = self.site(number, "../");
                    let file = format!("sites/{}.toml", number % (count - 1));
                    let before = fs::read_to_string(self.folder.path().join(&file)).unwrap_or_default();
                    fs::write(self.folder.path().join(&file), before + &text).unwrap();
                }
            }
        }
        fs::write(self.main(), main).unwrap();
    }

    /// What a server may say of the processes of a configuration: nothing, or with uids of several kinds.
    fn server(&mut self, posts: &[ProcessSpec]) -> Result<RunningProcesses, String> {
        let uids: u32 = match self.random.below(5) {
            0 | 1 => return Err("no server is running".into()),
            2 => u32::MAX,
            3 => 1,
            _ => 4 + self.random.below(12) as u32,
        };
        let live = posts.iter().enumerate().map(|(number, post)| {
            // A broker stands behind its service, whose uid it has.
            let first = number as u32 - u32::from(post.role == Role::Broker);
            Live {
                name: post.name.clone(),
                pid: 4_000_000_000 + number as u32,
                uid: if number == 0 && uids > 1 { 0 } else { FIRST_UID + first % uids },
                state: "serving".into(),
                connections_now: 1,
                layers: None,
            }
        });
        Ok(RunningProcesses::new(live.collect(), String::new()))
    }
}

/// What the server says of a site alone.
fn of_site_alone(whole: &RunningProcesses, site: &str) -> RunningProcesses {
    let own = whole.processes.iter().filter(|live| site_of(&live.name) == site || live.name == "bulkheadd");
    let uids: HashSet<u32> = own.map(|live| live.uid).collect();
    let alike = whole.processes.iter().filter(|live| uids.contains(&live.uid)).cloned();
    RunningProcesses::new(alike.collect(), String::new())
}

/// Whether a process of no site has the uid of one of a site's.
fn has_uid_of_role(whole: &RunningProcesses, posts: &[ProcessSpec], of: &ProcessSpec) -> bool {
    let uids = |site: Option<usize>| -> HashSet<u32> {
        let own = posts.iter().filter(|post| post.site_number() == site);
        own.flat_map(|post| whole.of(&post.name)).map(|live| live.uid).collect()
    };
    !uids(None).is_disjoint(&uids(of.site_number()))
}

/// The answer for programs and that for people. Losses are sorted: a folder that several sites have stands where the
/// first of them does of which something is known.
fn answers(report: &Explanation, chosen: usize) -> (Value, Vec<String>) {
    let mut answer = json::report(report, Some(chosen));
    let losses = answer["processes"][0]["losses"].as_array_mut().unwrap();
    losses.sort_by_key(Value::to_string);
    let mut lines: Vec<String> = text::one(report, chosen).lines().map(str::to_owned).collect();
    lines.sort();
    (answer, lines)
}

/// What was compared of configurations.
#[derive(Debug, Default)]
struct Compared {
    configurations: u64,
    processes: u64,
    /// Of how many of these some sites were left out.
    parts: u64,
}

impl Compared {
    /// Compares all processes of a configuration, if that is right.
    fn add(&mut self, seed: u64) {
        let mut generated = Generated::new(seed);
        let Ok(config) = Config::load(&generated.main()) else { return };
        self.configurations += 1;
        let all = posts(&config);
        let server = generated.server(&all);
        for (chosen, post) in all.iter().enumerate().filter(|(_, post)| post.site_number().is_some()) {
            let (config, posts) = (config.clone(), all.clone());
            let whole = ExplainInput { config, posts, server: server.clone(), chosen: Some(chosen) };
            let sites = whole.config.sites.len();
            let whole = answers(&Explanation::of(String::new(), whole, GrantedCalls::default()), chosen);
            let said = match generated.random.one_in(4) {
                true => server.clone(),
                false => server.clone().map(|whole| of_site_alone(&whole, site_of(&post.name))),
            };
            let falls_with_all = server.as_ref().is_ok_and(|whole| has_uid_of_role(whole, &all, post));
            let part = of_site(&generated.main(), &post.name, |_| said.clone());
            assert_eq!(part.is_none(), falls_with_all, "{seed}: {}", post.name);
            let Some(part) = part else { continue };
            let (chosen, count) = (part.chosen.unwrap(), part.config.sites.len());
            let part = answers(&Explanation::of(String::new(), part, GrantedCalls::default()), chosen);
            assert_eq!(part, whole, "{seed}: {}, by {count} of {sites} sites", post.name);
            self.processes += 1;
            self.parts += u64::from(count < sites);
        }
    }
}

#[test]
fn a_part_is_as_the_whole() {
    let cases = std::env::var("BULKHEAD_EXPLAIN_CASES").ok().and_then(|cases| cases.parse().ok());
    let cases = cases.unwrap_or(CONFIGURATIONS);
    let mut compared = Compared::default();
    (1..=cases).for_each(|seed| compared.add(seed));
    // If most of them were wrong, or of one circle, this would test nothing.
    assert!(compared.configurations > cases / 2 && compared.processes > cases * 2, "{compared:?}");
    assert!(compared.parts > compared.processes / 4, "{compared:?}");
}

#[test]
fn a_mistake_elsewhere_is_in_nobodys_way() {
    let generated = Generated::new(1);
    let main = "include = \"sites/*.toml\"\n[[listen]]\naddress = \"127.0.0.1:1\"\n";
    fs::write(generated.main(), main).unwrap();
    let write =
        |name: &str, text: &str| fs::write(generated.folder.path().join("sites").join(name), text).unwrap();
    fs::remove_dir_all(generated.folder.path().join("sites")).unwrap();
    fs::create_dir(generated.folder.path().join("sites")).unwrap();
    write("a.toml", "[[site]]\nname = \"a\"\nhost = [\"a.test\"]\nroot = \"../public\"\n");
    write("b.toml", "[[site]]\nname = \"b\nhost = [\"b.test\"]\n");
    let nobody = |_: &Path| Err("no server is running".to_owned());
    assert!(of_site(&generated.main(), "a", nobody).is_some());
    // Of one that may have to do with it, what is wrong must be said.
    write("b.toml", "[[site]]\nname = \"b\nhost = [\"a.test\"]\n");
    assert!(of_site(&generated.main(), "a", nobody).is_none());
    assert!(
        of_site(&generated.main(), "b", nobody).is_none()
            && of_site(&generated.main(), "c", nobody).is_none()
    );
}
