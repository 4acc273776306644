//! What is read of changed files alone is what is read of all, and what is refused is refused.

mod by_stamp;

use std::path::PathBuf;

use super::*;
use crate::{Diagnostics, Finding, Setting, Subject};

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
}

struct NoExaminer;

impl Examine for NoExaminer {
    fn examine(&self, _: &Setting<'_>, _: &[Subject<'_>]) -> Vec<(usize, Finding)> {
        Vec::new()
    }
}

/// A folder with a main file, folders of files and keys, which goes away with the test.
struct Bench {
    folder: PathBuf,
    cache: Cache,
    /// The files that have changed since they were read.
    changed: BTreeSet<OsString>,
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

const LISTENERS: &str =
    "[[listen]]\naddress = '127.0.0.1:80'\n[[listen]]\naddress = '127.0.0.1:443'\ntls = true\n";

impl Bench {
    fn new(name: &str, main: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("bulkhead-changed-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        for name in ["sites", "elsewhere", "pub", "pub/in", "keys", "other"] {
            std::fs::create_dir_all(folder.join(name)).unwrap();
        }
        for name in ["keys/1.pem", "keys/2.pem", "pub/in/3.pem", "users"] {
            std::fs::write(folder.join(name), "").unwrap();
        }
        std::fs::write(folder.join("b.toml"), format!("include = 'sites/*.toml'\n{main}{LISTENERS}"))
            .unwrap();
        Self { folder, cache: Cache::default(), changed: BTreeSet::new() }
    }

    fn main(&self) -> PathBuf {
        self.folder.join("b.toml")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.join("sites").join(name)
    }

    fn write(&mut self, name: &str, text: &str) {
        std::fs::write(self.file(name), text).unwrap();
        self.changed.insert(name.into());
    }

    fn remove(&mut self, name: &str) {
        let _ = std::fs::remove_file(self.file(name));
        self.changed.insert(name.into());
    }

    /// All of it, by somebody who knows nothing.
    fn whole(&self) -> Result<Config, Diagnostics> {
        Config::load_again(&self.main(), &NoExaminer, &mut Cache::default()).map(|(config, _)| config)
    }

    /// What has changed alone, if that is enough.
    fn quick(&mut self) -> Option<Config> {
        let loaded = super::load(&self.main(), &NoExaminer, &mut self.cache, (&self.changed, Unseen::Looked));
        loaded.map(|(config, source)| {
            self.changed.clear();
            assert_eq!(Config::of_source(&source, None).unwrap().sites, config.sites);
            config
        })
    }

    /// As the launcher does it: what has changed, or else all.
    fn read(&mut self) -> Result<Config, Diagnostics> {
        let read = Config::load_again(&self.main(), &NoExaminer, &mut self.cache).map(|(config, _)| config);
        if read.is_ok() {
            self.changed.clear();
        }
        read
    }
}

fn without_warnings(config: Config) -> Config {
    Config { warnings: Vec::new(), ..config }
}

fn site(random: &mut Random, name: &str) -> String {
    let name = if random.below(12) == 0 { random.one(&["a", "b", "m"]) } else { name };
    let host = match random.below(3) {
        0 => random.one(&["x.test", "y.test", "m.test"]).to_owned(),
        _ => format!("{name}.test"),
    };
    let more = [
        random.one(&[
            "",
            "",
            "",
            "listen = ['127.0.0.1:80']",
            "listen = ['127.0.0.1:443']",
            "listen = ['127.0.0.1:81']",
        ]),
        random.one(&["", "", "", "path = '/p/'", "path = '/q/'"]),
        random.one(&["", "", "", "access_log = 'x.log'", "access_log = 'a.access.log'"]),
        random.one(&[
            "",
            "",
            "user = 'u'",
            "user = 'u'\ndanger_shared_user = true",
            "user = 'v'\ndanger_shared_user = true",
        ]),
        random.one(&["", "", "certificates = ['../keys/1.pem']", "certificates = ['../pub/in/3.pem']"]),
        random.one(&["", "", "", "nonsense = 1", "hosts = 'x'"]),
    ];
    let root = random.one(&["../other", "../other", "../pub", "../keys", "../pub/in", "../nowhere"]);
    let more = more.into_iter().filter(|_| random.below(3) == 0).collect::<Vec<_>>().join("\n");
    format!("[[site]]\nname = '{name}'\nhost = ['{host}']\nroot = '{root}'\n{more}\n")
}

/// A change of some file, and perhaps of several.
fn change(random: &mut Random, bench: &mut Bench) {
    for _ in 0..=random.below(2) {
        let name = random.one(&["a", "b", "c", "d", "e", "f", "g", "h"]);
        let file = format!("{name}.toml");
        match random.below(8) {
            0 | 1 => bench.remove(&file),
            2 => {
                let two = site(random, name) + &site(random, &format!("{name}2"));
                bench.write(&file, &two);
            }
            3 => bench.write(&file, "half of"),
            _ => {
                let one = site(random, name);
                bench.write(&file, &one);
            }
        }
    }
}

#[test]
fn changed_files_alone_are_as_good_as_all() {
    let (mut random, mut quick, mut good, mut wrong) = (Random(3), 0, 0, 0);
    for round in 0..30 {
        let main = match round % 3 {
            0 => "",
            1 => "[[site]]\nname = 'm'\nhost = ['m.test']\nroot = 'other'\n",
            _ => "[server]\nuser_range = '60001-60012'\n",
        };
        let mut bench = Bench::new("random", main);
        bench.read().unwrap();
        for step in 0..40 {
            change(&mut random, &mut bench);
            let whole = bench.whole();
            let what = || format!("round {round}, step {step}: {whole:#?}");
            match bench.quick() {
                Some(config) => {
                    quick += 1;
                    let expected = whole.clone().unwrap_or_else(|_| panic!("{}", what()));
                    assert_eq!(without_warnings(config), without_warnings(expected), "{}", what());
                }
                None => match (bench.read(), whole.clone()) {
                    (Ok(read), Ok(whole)) => assert_eq!(without_warnings(read), without_warnings(whole)),
                    (read, whole) => assert_eq!(read.unwrap_err(), whole.unwrap_err()),
                },
            }
            if whole.is_ok() {
                good += 1
            } else {
                wrong += 1
            }
            // What is wrong would be so for ever.
            if whole.is_err() {
                let wrong: Vec<OsString> = bench.changed.iter().cloned().collect();
                wrong.iter().for_each(|name| bench.remove(name.to_str().unwrap()));
            }
        }
    }
    assert!(good > 300 && wrong > 300, "{good} good ones and {wrong} wrong ones");
    // Sites that share a host, or need another one that does TLS, are looked at beside all others.
    assert!(quick * 3 > good * 2, "{quick} of {good}");
}

#[test]
fn a_file_that_nobody_has_named_is_not_looked_at() {
    let mut bench = Bench::new("unnamed", "");
    let text = |name: &str| format!("[[site]]\nname = '{name}'\nhost = ['{name}.test']\nroot = '../other'\n");
    bench.write("a.toml", &text("a"));
    bench.read().unwrap();
    std::fs::write(bench.file("a.toml"), "nonsense").unwrap();
    bench.write("b.toml", &text("b"));
    assert_eq!(bench.quick().unwrap().sites.len(), 2);
    // A file that is written by another name is looked at each time.
    bench.write("a.toml", &text("a"));
    std::fs::write(bench.folder.join("elsewhere/c.toml"), text("c")).unwrap();
    std::os::unix::fs::symlink("../elsewhere/c.toml", bench.file("c.toml")).unwrap();
    std::fs::write(bench.folder.join("elsewhere/d"), text("d")).unwrap();
    std::fs::hard_link(bench.folder.join("elsewhere/d"), bench.file("d.toml")).unwrap();
    bench.changed.extend(["c.toml".into(), "d.toml".into()]);
    assert_eq!(bench.quick().unwrap().sites.len(), 4);
    std::fs::write(bench.folder.join("elsewhere/c.toml"), text("other")).unwrap();
    std::fs::write(bench.folder.join("elsewhere/d"), text("else")).unwrap();
    let names: Vec<String> = bench.quick().unwrap().sites.iter().map(|site| site.name.clone()).collect();
    assert_eq!(names, ["a", "b", "other", "else"]);
}

#[test]
fn what_changes_all_files_has_all_read() {
    use std::os::unix::fs::PermissionsExt as _;
    let mut bench = Bench::new("all", "");
    assert!(bench.quick().is_none(), "nothing is known");
    bench.write("a.toml", "[[site]]\nname = 'a'\nhost = ['a.test']\nroot = '../other'\n");
    bench.read().unwrap();
    assert!(bench.quick().is_some());
    let sites = bench.folder.join("sites");
    let mode = |mode| std::fs::set_permissions(&sites, std::fs::Permissions::from_mode(mode)).unwrap();
    mode(0o777);
    assert!(bench.quick().is_none() && bench.read().is_err(), "others may write there");
    mode(0o755);
    assert!(bench.quick().is_some());
    let main = std::fs::read_to_string(bench.main()).unwrap();
    std::fs::write(bench.main(), format!("# another\n{main}")).unwrap();
    assert!(bench.quick().is_none());
    bench.read().unwrap();
    std::fs::rename(&sites, bench.folder.join("away")).unwrap();
    assert!(bench.quick().is_none());
    std::fs::create_dir(&sites).unwrap();
    assert!(bench.quick().is_none(), "it is another folder");
    assert_eq!(bench.read().unwrap().sites.len(), 0);
    assert!(bench.quick().is_some());
}
