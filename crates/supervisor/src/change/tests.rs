//! Plans of configurations that are made up, many of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use config::Config;
use wire::Verb;

use sys::file_version::FileVersion;

use crate::change::plan::{Model, Stamp, apply, plan};
use crate::change::{Change, FileId};

/// Numbers that look as if they were random, the same each time.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len() as u64) as usize]
    }

    /// Some of these, in some order.
    fn some<'a>(&mut self, of: &[&'a str]) -> Vec<&'a str> {
        let mut left: Vec<&str> = of.iter().copied().filter(|_| self.below(3) > 0).collect();
        let mut taken = Vec::new();
        while !left.is_empty() {
            taken.push(left.remove(self.below(left.len() as u64) as usize));
        }
        taken
    }
}

fn service(random: &mut Random, name: &str) -> String {
    let more =
        random.one(&["", "memory_max = '64MiB'", "environment = { A = 'b' }", "jit = true", "workers = 2"]);
    format!("[[site.service]]\nname = '{name}'\npath = '/{name}'\ncommand = ['bin/{name}']\n{more}\n")
}

fn route(random: &mut Random, path: &str) -> String {
    let what = random.one(&[
        "redirect = { to = '/x', status = 307 }",
        "upstream = ['127.0.0.1:9000']",
        "upstream = ['127.0.0.1:9001']",
        "headers = { X-A = 'b' }",
        "deny = ['192.0.2.0/24']",
    ]);
    format!("[[site.route]]\npath = '/{path}'\n{what}\n")
}

fn site(random: &mut Random, name: &str) -> String {
    let certificates = random.some(&["'1.pem'", "'2.pem'", "'3.pem'"]);
    let tls = match certificates.len() {
        0 => String::new(),
        _ => format!("certificates = [{}]", certificates.join(", ")),
    };
    let more = random.one(&["", "listing = true", "index = []", "access_log = 'other.log'", "host = []"]);
    let host = format!("host = ['{name}.test', '{}.{name}.test']", random.one(&["a", "b"]));
    let more =
        if more.starts_with("host") || (name != "a" && more.starts_with("access_log")) { "" } else { more };
    let services: String =
        random.some(&["s", "t", "u"]).into_iter().map(|name| service(random, name)).collect();
    let routes: String = random.some(&["p", "q", "r"]).into_iter().map(|path| route(random, path)).collect();
    format!("[[site]]\nname = '{name}'\n{host}\nroot = '{name}'\n{tls}\n{more}\n{services}{routes}")
}

fn config(random: &mut Random) -> Config {
    let listener = |random: &mut Random, port: &str| {
        format!(
            "[[listen]]\naddress = '127.0.0.1:{port}'\nh2c = {}\nunfiltered = true\n",
            random.one(&["true"])
        )
    };
    let filter = |random: &mut Random, name: &str| {
        let more = random.one(&["", ", jit = true", ", read = ['data']"]);
        format!("{{ command = ['bin/{name}', '{}']{more} }},", random.one(&["x", "y"]))
    };
    let filters: String =
        random.some(&["f", "g", "f"]).into_iter().map(|name| filter(random, name)).collect();
    let tables = [
        format!("[log]\naccess_format = '{}'", random.one(&["common", "json"])),
        format!("[tls]\nocsp = {}", random.one(&["true", "false"])),
        format!("[limits]\nhead_bytes = '{}'", random.one(&["4KiB", "8KiB"])),
        format!("[restart]\nbroken_after = {}", random.one(&["4", "5"])),
        format!("[conditioning]\nfilters = [{filters}]\nchecks = '{}'", random.one(&["strict", "lenient"])),
    ];
    let ports: String =
        random.some(&["81", "82", "83"]).into_iter().map(|port| listener(random, port)).collect();
    let sites: String =
        random.some(&["a", "b", "c", "d"]).into_iter().map(|name| site(random, name)).collect();
    let always = "[[listen]]\naddress = '127.0.0.1:443'\ntls = true\nunfiltered = true\n[[site]]\nname = 'z'\nhost = ['z']\n\
                  root = 'z'\ncertificates = ['z.pem']\n";
    let text = format!("{}\n{ports}{always}{sites}", tables.join("\n"));
    let mut config =
        Config::parse(&text, "test", Path::new("/srv")).unwrap_or_else(|wrong| panic!("{wrong}\n{text}"));
    config.warnings.clear();
    config
}

fn model(random: &mut Random) -> (Model, BTreeMap<FileId, Stamp>) {
    let version = |size| FileVersion { size, ..FileVersion::default() };
    let file = |number| FileId { key: "users", site: Some(0), number, path: PathBuf::from("/users") };
    let files: BTreeMap<FileId, Stamp> =
        (0..3).map(|number| (file(number), (version(random.below(2)), None))).collect();
    (Model { files: files.clone(), ..Model::of(config(random)) }, files)
}

#[test]
fn a_plan_makes_the_new_model_of_the_old_one() {
    let mut random = Random(7);
    for _ in 0..500 {
        let ((old, _), (mut new, written)) = (model(&mut random), model(&mut random));
        if random.below(2) == 0 {
            new.relaunches.insert("main".into(), 1);
        }
        let changes = plan(&old, &new);
        let mut made = old.clone();
        apply(&mut made, &changes, &written);
        assert_eq!(made, new, "{changes:#?}");
        assert_eq!(plan(&new, &new), []);
        assert_eq!(plan(&old, &new).is_empty(), old == new);
    }
}

#[test]
fn a_change_names_its_keys() {
    let parse = |text: &str| {
        let listen = "[[listen]]\naddress = '127.0.0.1:80'\n";
        Model::of(Config::parse(&format!("{listen}{text}"), "test", Path::new("/srv")).unwrap())
    };
    let site = "[[site]]\nname = 'a'\nhost = ['a']\nroot = ";
    let old = parse(&format!("{site} 'a'\n[[site.route]]\npath = '/x'\nredirect = '/y'\n"));
    let new = parse(&format!(
        "{site} 'b'\nlisting = true\n[[site.route]]\npath = '/x'\nredirect = '/z'\nheaders = {{ A = 'b' }}\n\
         [[site]]\nname = 'b'\nhost = ['b']\nroot = 'b'\n"
    ));
    let said = |change: &Change| (change.verb(), change.to_string(), change.keys().join(" "));
    let wanted = [
        (Verb::Changed, "site a", "root listing"),
        (Verb::Changed, "route /x of site a", "redirect headers"),
        (Verb::Added, "site b", ""),
    ];
    let wanted = wanted.map(|(verb, what, keys)| (verb, what.to_owned(), keys.to_owned()));
    assert_eq!(plan(&old, &new).iter().map(said).collect::<Vec<_>>(), wanted);
    let gone = plan(&new, &old).iter().map(said).find(|(verb, ..)| *verb == Verb::Removed);
    assert_eq!(gone, Some((Verb::Removed, "site b".into(), String::new())));
}
