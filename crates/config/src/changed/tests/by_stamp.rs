//! What is read of files that differ, by what the kernel says of them, is what is read of all: what runs, what is left
//! out, and every mistake and warning to the letter.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use super::*;
use crate::{Before, Judged, Judgement, Tolerance};

const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

/// What a change is judged beside.
struct Judging {
    bench: Bench,
    source: Source,
    /// How many judgements were made of what differs alone.
    quick: usize,
}

/// All that is said of a change.
type Said = Result<(Config, String), Diagnostics>;

fn said(judged: Result<Judged, Diagnostics>) -> Said {
    judged.map(|Judged { config, left_out, mistakes, .. }| (config, format!("{left_out:#?}{mistakes:#?}")))
}

/// The texts of what is taken in.
fn texts(judged: &Result<Judged, Diagnostics>) -> Vec<(PathBuf, String)> {
    let files = judged.iter().flat_map(|judged| judged.source.files());
    files.map(|(path, text)| (path.to_owned(), text.to_owned())).collect()
}

impl Judging {
    fn new(name: &str) -> Self {
        let mut bench = Bench::new(name, "[[site]]\nname = 'm'\nhost = ['m.test']\nroot = 'other'\n");
        // Everybody may read it, of which a warning tells.
        fs::set_permissions(bench.folder.join("keys/2.pem"), fs::Permissions::from_mode(0o644)).unwrap();
        let main = bench.main();
        let (_, source) = Config::load_again(&main, &NoExaminer, &mut bench.cache).unwrap();
        Self { bench, source, quick: 0 }
    }

    fn judge(&self, cache: &mut Cache, changed: Option<&BTreeSet<OsString>>) -> Result<Judged, Diagnostics> {
        let refused = std::collections::BTreeMap::new();
        let (before, tolerance) = (Before::Running(&self.source), Tolerance::EachFile);
        let judgement = Judgement { before, tolerance, only: None, refused: &refused };
        Config::judge(&self.bench.main(), &NoExaminer, (cache, changed), &judgement)
    }

    /// Has what was read count as settled, once a change has another time than those before it.
    fn settle(&mut self) {
        let probe = self.bench.folder.join("probe");
        let now = || {
            fs::write(&probe, "").unwrap();
            FileVersion::of(&probe.metadata().unwrap()).changed_ns
        };
        let before = now();
        while now() == before {}
        self.bench.cache.settle();
    }

    /// Judges what is there now by what differs, and compares that with two judgements of all files.
    fn compare(&mut self, what: &str) -> Said {
        let mut cache = std::mem::take(&mut self.bench.cache);
        let changed = cache.differing(&self.bench.main());
        let (mut same, mut probe) = (cache.clone(), cache.clone());
        let by_stamp = self.judge(&mut cache, changed.as_ref());
        let is_quick = changed.as_ref().is_some_and(|names| {
            load(&self.bench.main(), &NoExaminer, &mut probe, (names, Unseen::Looked)).is_some()
        });
        self.quick += usize::from(is_quick);
        self.bench.cache = cache;
        let (of_all, texts) = (self.judge(&mut same, None), texts(&by_stamp));
        assert_eq!(texts, self::texts(&of_all), "{what}: texts");
        let anew = said(self.judge(&mut Cache::default(), None));
        if let Ok(judged) = &by_stamp {
            self.source = judged.source.clone();
        }
        let (by_stamp, of_all) = (said(by_stamp), said(of_all));
        assert_eq!(by_stamp, of_all, "{what}: all files were looked at");
        let without_warnings =
            |said: &Said| said.clone().map(|(config, said)| (without_warnings(config), said));
        assert_eq!(without_warnings(&by_stamp), without_warnings(&anew), "{what}: all files were read");
        self.settle();
        by_stamp
    }
}

/// Takes whatever is there away.
fn clear(path: &Path) {
    let _ = fs::remove_file(path).or_else(|_| fs::remove_dir(path));
}

/// Other bytes of the same length and time.
fn write_alike(path: &Path) {
    let (Ok(text), Ok(found)) = (fs::read_to_string(path), path.metadata()) else { return };
    fs::write(path, text.replace(".test'", ".tesu'")).unwrap();
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_times(fs::FileTimes::new().set_modified(found.modified().unwrap())).unwrap();
}

fn set_mode(path: &Path, mode: u32) {
    if path.is_file() {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
}

/// Does something to a file; what, in words.
fn meddle(random: &mut Random, bench: &mut Bench) -> String {
    let (name, other) = (random.one(&NAMES), random.one(&NAMES));
    let (path, to) = (bench.file(&format!("{name}.toml")), bench.file(&format!("{other}.toml")));
    let elsewhere = bench.folder.join(format!("elsewhere/{name}.toml"));
    let text = site(random, name);
    let kind = random.below(16);
    if (4..=9).contains(&kind) && !path.is_file() || matches!(kind, 0 | 1) && path.is_dir() {
        clear(&path);
    }
    match kind {
        0 | 1 => drop(fs::write(&path, text)),
        2 | 3 => {
            clear(&path);
            fs::write(bench.file(".new"), text).unwrap();
            fs::rename(bench.file(".new"), &path).unwrap();
        }
        4 => drop(fs::rename(&path, &to)),
        5 => drop(fs::write(&path, "half of")),
        6 => write_alike(&path),
        7 => set_mode(&path, 0o666),
        8 => set_mode(&path, 0o644),
        9 | 10 => clear(&path),
        11 => {
            clear(&path);
            fs::create_dir(&path).unwrap();
        }
        12 => {
            clear(&path);
            symlink(format!("../elsewhere/{name}.toml"), &path).unwrap();
            fs::write(&elsewhere, text).unwrap();
        }
        13 => drop(fs::write(&elsewhere, text)),
        14 => {
            clear(&path);
            clear(&elsewhere);
            fs::write(&elsewhere, text).unwrap();
            fs::hard_link(&elsewhere, &path).unwrap();
        }
        _ => clear(&elsewhere),
    }
    format!("{kind} of {name} and {other}")
}

#[test]
fn what_differs_is_judged_as_all_is() {
    let (mut random, mut quick, mut good, mut wrong) = (Random(11), 0, 0, 0);
    for round in 0..8 {
        let mut judging = Judging::new("by-stamp");
        for step in 0..40 {
            let mut what = format!("round {round}, step {step}:");
            for _ in 0..=random.below(2) {
                what = format!("{what} {},", meddle(&mut random, &mut judging.bench));
            }
            if random.below(20) == 0 {
                let main = judging.bench.main();
                let text = fs::read_to_string(&main).unwrap();
                fs::write(&main, format!("# {what}\n{text}")).unwrap();
            }
            match judging.compare(&what) {
                Ok((_, said)) if said == "[][]" => good += 1,
                _ => {
                    wrong += 1;
                    // Most of what is wrong goes, as one that stays has all files looked at.
                    let mended = NAMES.iter().filter(|_| random.below(4) > 0);
                    mended.for_each(|name| clear(&judging.bench.file(&format!("{name}.toml"))));
                    judging.compare(&format!("{what} mended")).unwrap();
                }
            }
        }
        quick += judging.quick;
    }
    assert!(
        good > 60 && wrong > 60 && quick > 60,
        "{good} good ones, {wrong} wrong ones, {quick} by what differs"
    );
}

#[test]
fn each_difference_is_found_and_nothing_else_is_read() {
    let mut judging = Judging::new("differing");
    let text = |name: &str| {
        format!(
            "[[site]]\nname = '{name}'\nhost = ['{name}.test']\nroot = '../other'\ncertificates = ['../keys/2.pem']\n"
        )
    };
    for name in NAMES {
        fs::write(judging.bench.file(&format!("{name}.toml")), text(name)).unwrap();
    }
    let (config, _) = judging.compare("all are new").unwrap();
    assert_eq!(config.warnings.len(), NAMES.len());
    let differing = |judging: &Judging| {
        let names = judging.bench.cache.differing(&judging.bench.main()).unwrap().into_iter();
        names.map(|name| name.into_string().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(differing(&judging), [""; 0]);
    let file = |name: &str| judging.bench.file(name);
    write_alike(&file("a.toml"));
    fs::rename(file("c.toml"), file("d.toml")).unwrap();
    set_mode(&file("e.toml"), 0o640);
    clear(&file("f.toml"));
    fs::write(file("i.toml"), text("i")).unwrap();
    fs::write(file(".j.toml"), "nonsense").unwrap();
    assert_eq!(differing(&judging), ["a.toml", "c.toml", "d.toml", "e.toml", "f.toml", "i.toml"]);
    fs::write(file("c.toml"), text("d").replace('d', "c")).unwrap();
    fs::write(file("d.toml"), text("d")).unwrap();
    let (config, said) = judging.compare("some are others").unwrap();
    let names: Vec<&str> = config.sites.iter().map(|site| site.name.as_str()).collect();
    assert_eq!((names.concat(), said.as_str()), ("mabcdeghi".into(), "[][]"));
    assert_eq!(differing(&judging), [""; 0]);
    let many = (0..=1000).map(|number| judging.bench.file(&format!("n{number}.toml")));
    many.for_each(|path| fs::write(path, "").unwrap());
    assert_eq!(judging.bench.cache.differing(&judging.bench.main()), None, "there are too many");
}

#[test]
fn a_folder_that_is_another_one_has_all_files_read() {
    let judging = Judging::new("folder");
    let differing = || judging.bench.cache.differing(&judging.bench.main());
    assert_eq!(differing(), Some(BTreeSet::new()));
    let sites = judging.bench.folder.join("sites");
    let set = |mode| fs::set_permissions(&sites, fs::Permissions::from_mode(mode)).unwrap();
    set(0o777);
    assert_eq!(differing(), None);
    set(0o755);
    assert!(differing().is_some());
    fs::rename(&sites, judging.bench.folder.join("away")).unwrap();
    assert_eq!(differing(), None);
    fs::create_dir(&sites).unwrap();
    assert_eq!(differing(), None);
    assert_eq!(Cache::default().differing(&judging.bench.main()), None);
}

#[test]
fn texts_of_hundreds_of_files_are_shared_and_told_apart() {
    let (mut bench, mut random) = (Bench::new("hundreds", ""), Random(5));
    let file = |number: u64| format!("n{number}.toml");
    let text = |number: u64, cache: u64| {
        format!(
            "[[site]]\nname = 'n{number}'\nhost = ['n{number}.test']\nroot = '../other'\ncache_control = '{cache}h'\n"
        )
    };
    (0..300).step_by(2).for_each(|number| bench.write(&file(number), &text(number, 1)));
    let main = bench.main();
    let (_, mut before) = Config::load_again(&main, &NoExaminer, &mut bench.cache).unwrap();
    bench.changed.clear();
    for step in 2..200 {
        for _ in 0..=random.below(4) {
            let number = random.below(300);
            match random.below(3) {
                0 => bench.remove(&file(number)),
                _ => bench.write(&file(number), &text(number, random.below(2) * step)),
            }
        }
        let changed = (&bench.changed, Unseen::Looked);
        let (config, source) = load(&main, &NoExaminer, &mut bench.cache, changed).unwrap();
        let (whole, all) = Config::load_again(&main, &NoExaminer, &mut Cache::default()).unwrap();
        assert_eq!(config, whole);
        assert_eq!(source.files().collect::<Vec<_>>(), all.files().collect::<Vec<_>>());
        // Beside a source that shares nothing, all is compared by itself.
        assert_eq!(source.differing(Some(&before)), all.differing(Some(&before)), "step {step}");
        assert_eq!(source.gone_since(&before), all.gone_since(&before), "step {step}");
        let names: Vec<&OsStr> = source.names().collect();
        assert!(
            source
                .gone_since(&before)
                .iter()
                .all(|name| !names.contains(name) && bench.changed.contains(*name))
        );
        before = source;
        bench.changed.clear();
    }
}
