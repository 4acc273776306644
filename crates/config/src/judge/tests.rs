//! Each kind of fault in one file, beside files that are good: these are taken in, and that one's hosts are nobody
//! else's.

use std::collections::HashMap;

use super::*;
use crate::{Config, Finding, Setting, Severity, Subject};

/// Finds something wrong with each `root` called `examined`.
struct Examiner;

impl Examine for Examiner {
    fn examine(&self, _: &Setting<'_>, subjects: &[Subject<'_>]) -> Vec<(usize, Finding)> {
        let wrong = subjects.iter().enumerate().filter(|(_, subject)| subject.path.ends_with("examined"));
        let finding =
            || Finding { severity: Severity::Error, message: "is no good".into(), help: "leave it".into() };
        wrong.map(|(at, _)| (at, finding())).collect()
    }
}

/// A folder with a main file and files of sites.
struct Bench {
    folder: tempfile::TempDir,
    cache: Cache,
    kept: HashMap<OsString, String>,
}

fn site(name: &str, more: &str) -> String {
    format!("[[site]]\nname = '{name}'\nhost = ['{name}.test']\nroot = '../pub'\n{more}")
}

impl Bench {
    fn new(names: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["sites", "pub", "other", "examined"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        let main = "include = 'sites/*.toml'\n[[listen]]\naddress = '127.0.0.1:80'\n[[listen]]\naddress = '127.0.0.1:81'\n";
        std::fs::write(folder.path().join("b.toml"), main).unwrap();
        let bench = Self { folder, cache: Cache::default(), kept: HashMap::new() };
        names.iter().for_each(|name| bench.write(name, &site(name, "")));
        bench
    }

    fn main(&self) -> PathBuf {
        self.folder.path().join("b.toml")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join("sites").join(format!("{name}.toml"))
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.file(name), text).unwrap();
    }

    fn judge(&mut self, judgement: &Judgement<'_>) -> Result<Judged, Diagnostics> {
        Config::judge(&self.main(), &Examiner, (&mut self.cache, None), judgement)
    }

    /// What becomes of it beside what runs.
    fn reload(&mut self, source: &Source) -> Result<Judged, Diagnostics> {
        let refused = BTreeMap::new();
        let before = Before::Running(source);
        self.judge(&Judgement { before, tolerance: Tolerance::EachFile, only: None, refused: &refused })
    }

    /// What becomes of it when nothing runs.
    fn start(&mut self) -> Result<Judged, Diagnostics> {
        let (refused, kept) = (BTreeMap::new(), self.kept.clone());
        let kept = |name: &OsStr| kept.get(name).cloned();
        let before = Before::Kept(&kept);
        self.judge(&Judgement { before, tolerance: Tolerance::EachFile, only: None, refused: &refused })
    }

    fn keep(&mut self, name: &str) {
        let text = std::fs::read_to_string(self.file(name)).unwrap();
        self.kept.insert(format!("{name}.toml").into(), text);
    }
}

/// The hosts of each site, and whether it answers by itself.
fn hosts(config: &Config) -> Vec<String> {
    let said = |site: &std::sync::Arc<crate::Site>| {
        let closed = if site.name.starts_with("closed-") { "503 " } else { "" };
        format!("{closed}{}", site.hosts.join(" "))
    };
    config.sites.iter().map(said).collect()
}

fn names(judged: &Judged) -> Vec<(String, StandIn)> {
    let name = |left: &LeftOut| left.file.file_stem().unwrap().to_str().unwrap().to_owned();
    judged.left_out.iter().map(|left| (name(left), left.stand_in)).collect()
}

/// Texts that are wrong, each in another stage, and whether the host of the file can be read.
fn faults() -> Vec<(&'static str, String, bool)> {
    vec![
        ("syntax at the end", site("b", "index = [\n"), true),
        ("syntax throughout", "[[site\nname = b\nhost\n".into(), false),
        ("nothing", String::new(), false),
        ("unknown key", site("b", "nonsense = 1\n"), true),
        ("wrong type", site("b", "index = 1\n"), true),
        ("a table that no file may have", format!("[server]\ngates = 1\n{}", site("b", "")), true),
        ("no purpose", "[[site]]\nname = 'b'\nhost = ['b.test']\n".into(), true),
        ("a bad name", site("b", "").replace("name = 'b'", "name = 'B B'"), true),
        ("no name", site("b", "").replace("name = 'b'\n", ""), true),
        ("a listener that is none", site("b", "listen = ['127.0.0.1:9']\n"), true),
        ("a folder that is not there", site("b", "").replace("../pub", "../gone"), true),
        ("something that is examined", site("b", "").replace("../pub", "../examined"), true),
        ("a certificate without a listener", site("b", "certificates = ['../pub/x.pem']\n"), true),
        ("twice the same host", site("b", "").replace("'b.test'", "'b.test', 'b.test'"), true),
        ("twice the same name", site("b", "") + &site("b", "").replace("b.test", "c.test"), true),
        ("the name of another", site("b", "").replace("name = 'b'", "name = 'a'"), true),
        ("the host of another", site("b", "").replace("'b.test'", "'b.test', 'a.test'"), true),
        ("the log of another", site("b", "access_log = 'a.access.log'\n"), true),
        ("not a text", "\u{0}".into(), false),
    ]
}

#[test]
fn a_file_that_is_wrong_leaves_its_site_as_it_runs() {
    for (what, text, _) in faults() {
        let mut bench = Bench::new(&["a", "b", "c"]);
        let before = bench.start().unwrap();
        assert_eq!(names(&before), [], "{what}");
        bench.write("b", &text);
        bench.write("c", &site("c", "").replace("pub", "other"));
        bench.write("d", &site("d", ""));
        let after = bench.reload(&before.source).unwrap();
        assert_eq!(names(&after), [("b".to_owned(), StandIn::Running)], "{what}");
        assert_eq!(hosts(&after.config), ["a.test", "b.test", "c.test", "d.test"], "{what}");
        assert_eq!(after.config.sites[1], before.config.sites[1], "{what}");
        assert!(after.config.sites[2].root.as_ref().unwrap().ends_with("other"), "{what}");
        assert!(!after.left_out[0].reason.is_empty() && after.left_out[0].sites == ["b"], "{what}");
        // The same once more, by somebody who knows nothing but the texts; and with all or nothing.
        bench.cache = Cache::default();
        let again = bench.reload(&after.source).unwrap();
        assert_eq!((again.config.sites, again.left_out), (after.config.sites, after.left_out), "{what}");
        let refused = BTreeMap::new();
        let strict = Judgement {
            before: Before::Running(&after.source),
            tolerance: Tolerance::AllOrNothing,
            only: None,
            refused: &refused,
        };
        assert!(bench.judge(&strict).is_err(), "{what}");
        bench.write("b", &site("b", "").replace("b.test", "e.test"));
        let corrected = bench.reload(&after.source).unwrap();
        assert_eq!((names(&corrected), hosts(&corrected.config)[1].as_str()), (vec![], "e.test"), "{what}");
    }
}

#[test]
fn a_new_file_that_is_wrong_is_not_there() {
    for (what, text, _) in faults() {
        let mut bench = Bench::new(&["a", "c"]);
        let before = bench.start().unwrap();
        bench.write("b", &text);
        bench.write("d", &site("d", ""));
        let after = bench.reload(&before.source).unwrap();
        assert_eq!(names(&after), [("b".to_owned(), StandIn::Nothing)], "{what}");
        assert_eq!(hosts(&after.config), ["a.test", "c.test", "d.test"], "{what}");
    }
}

#[test]
fn at_a_start_the_last_good_copy_stands_in() {
    for (what, text, _) in faults() {
        let mut bench = Bench::new(&["a", "b", "c"]);
        bench.keep("b");
        bench.write("b", &text);
        let judged = bench.start().unwrap();
        assert_eq!(names(&judged), [("b".to_owned(), StandIn::LastGood)], "{what}");
        assert_eq!(hosts(&judged.config), ["a.test", "b.test", "c.test"], "{what}");
    }
}

#[test]
fn without_a_good_copy_its_hosts_are_nobodys() {
    for (what, text, is_readable) in faults() {
        let mut bench = Bench::new(&["a", "b", "everything"]);
        bench.write("everything", &site("everything", "").replace("everything.test", "*"));
        bench.write("b", &text);
        let judged = bench.start().unwrap();
        let stand_in = if is_readable { StandIn::Unavailable } else { StandIn::Nothing };
        assert_eq!(names(&judged), [("b".to_owned(), stand_in)], "{what}");
        let closed = hosts(&judged.config).into_iter().find(|hosts| hosts.starts_with("503 "));
        assert_eq!(closed.is_some_and(|hosts| hosts.contains("b.test")), is_readable, "{what}");
        assert!(hosts(&judged.config).contains(&"a.test".to_owned()), "{what}");
        // What runs from here on is what an upgrade reads again.
        assert_eq!(Config::of_source(&judged.source, None).unwrap().sites, judged.config.sites, "{what}");
    }
}

#[test]
fn a_copy_that_is_good_no_more_says_which_hosts_are_closed() {
    let mut bench = Bench::new(&["a", "b"]);
    bench.write("b", &site("b", "").replace("../pub", "../gone"));
    bench.keep("b");
    bench.write("b", "= nonsense");
    let judged = bench.start().unwrap();
    assert_eq!(names(&judged), [("b".to_owned(), StandIn::Unavailable)]);
    assert_eq!(hosts(&judged.config), ["a.test", "503 b.test"]);
    assert!(!judged.left_out[0].is_whole && judged.left_out[0].hosts == ["b.test"]);
}

#[test]
fn who_runs_already_keeps_what_a_new_file_wants() {
    // Whichever of the two is read first.
    for (old, new) in [("a", "z"), ("z", "a")] {
        let mut bench = Bench::new(&[old, "m"]);
        let before = bench.start().unwrap();
        let host = format!("{old}.test");
        bench.write(new, &site(new, "").replace(&format!("{new}.test"), &host));
        bench.write(old, &site(old, "").replace("pub", "other"));
        let after = bench.reload(&before.source).unwrap();
        assert_eq!(names(&after), [(new.to_owned(), StandIn::Nothing)]);
        let kept = after.config.sites.iter().find(|site| site.hosts == [host.as_str()]).unwrap();
        assert!(kept.name == old && kept.root.as_ref().unwrap().ends_with("other"), "its change is good");
    }
}

#[test]
fn of_two_that_have_changed_the_one_that_had_a_host_keeps_it() {
    for (had, wants) in [("a", "z"), ("z", "a")] {
        let mut bench = Bench::new(&[had, wants]);
        let before = bench.start().unwrap();
        bench.write(had, &site(had, "").replace("pub", "other"));
        bench.write(wants, &site(wants, "").replace(&format!("{wants}.test"), &format!("{had}.test")));
        let after = bench.reload(&before.source).unwrap();
        assert_eq!(names(&after), [(wants.to_owned(), StandIn::Running)]);
    }
}

#[test]
fn what_a_bad_file_had_run_with_is_not_for_others() {
    let mut bench = Bench::new(&["a", "b"]);
    let before = bench.start().unwrap();
    // Were it taken in, it would leave its host to the other one.
    bench.write("b", &site("b", "nonsense = 1\n").replace("b.test", "x.test"));
    bench.write("a", &site("a", "").replace("'a.test'", "'a.test', 'b.test'"));
    bench.write("c", &site("c", "").replace("c.test", "x.test"));
    let after = bench.reload(&before.source).unwrap();
    let left = [("a".to_owned(), StandIn::Running), ("b".to_owned(), StandIn::Running)];
    assert_eq!(names(&after), left);
    assert_eq!(
        hosts(&after.config),
        ["a.test", "b.test", "x.test"],
        "nobody has what a bad file wanted to have"
    );
}

#[test]
fn an_old_copy_takes_nothing_from_a_good_file() {
    let mut bench = Bench::new(&["a", "b"]);
    bench.keep("a");
    bench.write("a", "[[site]]\nname = 'a'\nhost = ['a.test', 'more.test']\nnonsense = 1\n");
    // The host has gone to another tenant since.
    bench.write("b", &site("b", "").replace("'b.test'", "'b.test', 'a.test'"));
    let judged = bench.start().unwrap();
    assert_eq!(names(&judged), [("a".to_owned(), StandIn::Unavailable)]);
    assert_eq!(hosts(&judged.config), ["503 more.test", "b.test a.test"]);
}

#[test]
fn at_a_start_the_one_that_had_a_host_last_keeps_it() {
    for (had, wants) in [("a", "z"), ("z", "a")] {
        let mut bench = Bench::new(&[had, wants]);
        bench.keep(had);
        bench.write(wants, &site(wants, "").replace(&format!("{wants}.test"), &format!("{had}.test")));
        let judged = bench.start().unwrap();
        assert_eq!(names(&judged), [(wants.to_owned(), StandIn::Nothing)]);
    }
}

#[test]
fn a_mistake_of_the_main_file_is_everybodys() {
    let mut bench = Bench::new(&["a", "b"]);
    let before = bench.start().unwrap();
    let main = std::fs::read_to_string(bench.main()).unwrap();
    for wrong in ["nonsense = 1\n", "[[site]]\nname = 'a'\nhost = ['m.test']\nroot = 'pub'\n", "= 1\n"] {
        let is_site = wrong.starts_with("[[site]]");
        let text = if is_site { format!("{main}{wrong}") } else { format!("{wrong}{main}") };
        std::fs::write(bench.main(), text).unwrap();
        bench.write("b", &site("b", "nonsense = 1\n"));
        let result = bench.reload(&before.source);
        let main = bench.main().display().to_string();
        match is_site {
            // The file is to blame: the main file goes before it; but there is nothing else that could stand in for it.
            true => assert!(result.is_err()),
            false => assert!(result.unwrap_err().0.iter().any(|one| one.file == main)),
        }
    }
    std::fs::write(bench.main(), format!("{main}[server]\nuser_range = '51001-51003'\n")).unwrap();
    assert!(bench.reload(&before.source).is_err());
}

#[test]
fn one_file_alone_is_taken_in() {
    let mut bench = Bench::new(&["a", "b", "c"]);
    let before = bench.start().unwrap();
    let main = std::fs::read_to_string(bench.main()).unwrap();
    std::fs::write(bench.main(), "nonsense").unwrap();
    bench.write("a", "nonsense");
    bench.write("b", &site("b", "").replace("pub", "other"));
    bench.write("c", &site("c", "").replace("pub", "other"));
    bench.write("d", &site("d", ""));
    let refused = BTreeMap::new();
    let one = |bench: &mut Bench, source: &Source, name: &str| {
        let before = Before::Running(source);
        let name = OsString::from(format!("{name}.toml"));
        bench.judge(&Judgement {
            before,
            tolerance: Tolerance::EachFile,
            only: Some(&name),
            refused: &refused,
        })
    };
    let root = |judged: &Judged, at: usize| judged.config.sites[at].root.clone().unwrap();
    let only_b = one(&mut bench, &before.source, "b").unwrap();
    assert_eq!((hosts(&only_b.config).len(), names(&only_b)), (3, vec![]));
    assert!(root(&only_b, 1).ends_with("other") && root(&only_b, 2).ends_with("pub"));
    let only_d = one(&mut bench, &only_b.source, "d").unwrap();
    assert_eq!(hosts(&only_d.config), ["a.test", "b.test", "c.test", "d.test"]);
    let only_a = one(&mut bench, &only_d.source, "a").unwrap();
    assert_eq!(names(&only_a), [("a".to_owned(), StandIn::Running)]);
    std::fs::remove_file(bench.file("c")).unwrap();
    std::fs::remove_file(bench.file("d")).unwrap();
    let without_c = one(&mut bench, &only_a.source, "c").unwrap();
    assert_eq!(hosts(&without_c.config), ["a.test", "b.test", "d.test"]);
    std::fs::write(bench.main(), main).unwrap();
    let all = bench.reload(&without_c.source).unwrap();
    assert_eq!(
        (hosts(&all.config), names(&all)),
        (vec!["a.test".into(), "b.test".into()], vec![("a".into(), StandIn::Running)])
    );
}

#[test]
fn what_is_refused_for_another_reason_is_left_out() {
    let mut bench = Bench::new(&["a", "b"]);
    let before = bench.start().unwrap();
    bench.write("b", &site("b", "").replace("pub", "other"));
    let refused = BTreeMap::from([(OsString::from("b.toml"), "it did not come up".to_owned())]);
    let running = Before::Running(&before.source);
    let judgement =
        Judgement { before: running, tolerance: Tolerance::EachFile, only: None, refused: &refused };
    let judged = bench.judge(&judgement).unwrap();
    assert_eq!(
        (names(&judged), &*judged.left_out[0].reason),
        (vec![("b".into(), StandIn::Running)], "it did not come up")
    );
    assert_eq!(judged.config.sites, before.config.sites);
}

#[test]
fn a_file_that_others_may_write_is_one_that_is_wrong() {
    use std::os::unix::fs::PermissionsExt as _;
    let mut bench = Bench::new(&["a", "b"]);
    let before = bench.start().unwrap();
    std::fs::set_permissions(bench.file("b"), std::fs::Permissions::from_mode(0o666)).unwrap();
    let after = bench.reload(&before.source).unwrap();
    assert_eq!(names(&after), [("b".to_owned(), StandIn::Running)]);
    assert!(after.left_out[0].reason.contains("can be written by others"));
}

#[test]
fn what_is_refused_need_not_be_readable() {
    let mut bench = Bench::new(&["a", "b"]);
    let before = bench.start().unwrap();
    bench.write("b", &"#".repeat(crate::FILE_BYTES_MAX as usize + 1));
    bench.write("c", &"#".repeat(crate::FILE_BYTES_MAX as usize + 1));
    let first = bench.reload(&before.source).unwrap();
    let expected = vec![("b".to_owned(), StandIn::Running), ("c".to_owned(), StandIn::Nothing)];
    assert_eq!(names(&first), expected);
    // As the launcher does, which knows that by its copy.
    let refused: BTreeMap<OsString, String> = first
        .left_out
        .iter()
        .map(|left| (left.file.file_name().unwrap().to_owned(), left.reason.clone()))
        .collect();
    let before = Before::Running(&before.source);
    let again = Judgement { before, tolerance: Tolerance::EachFile, only: None, refused: &refused };
    assert_eq!(names(&bench.judge(&again).unwrap()), expected);
}

#[test]
fn a_bad_file_takes_no_uids_of_others() {
    let mut bench = Bench::new(&["a", "b"]);
    let before = bench.start().unwrap();
    let many = |wrong: &str| (0..1200).map(|at| site(&format!("b{at}"), wrong)).collect::<String>();
    bench.write("b", &many("nonsense = 1\n"));
    let after = bench.reload(&before.source).unwrap();
    assert_eq!(names(&after), [("b".to_owned(), StandIn::Running)]);
    assert!(after.left_out[0].reason.ends_with("and 91 more mistakes, which `bulkhead check` says"));
    // If the file is good, there are too few uids, and nobody is to blame alone.
    bench.write("b", &many(""));
    assert!(bench.reload(&before.source).unwrap_err().to_string().contains("`user_range`"));
}

#[test]
fn what_is_said_of_a_file_has_an_end() {
    let mut bench = Bench::new(&["a", "b"]);
    let before = bench.start().unwrap();
    bench.write("b", &site("b", "").replace("../pub", &"\u{e9}".repeat(500_000)));
    let after = bench.reload(&before.source).unwrap();
    assert_eq!(names(&after), [("b".to_owned(), StandIn::Running)]);
    let length = after.left_out[0].reason.len();
    assert!(length <= REASON_BYTES_MAX && length + 2 > REASON_BYTES_MAX, "{length}");
}
