//! Every key with a path, every component of the path that a tenant owns, every trick: what is opened is never root's
//! or bob's.
//!
//! Runs in: `cargo test`, as root alone, since it needs files of several users. The keys are those of the table.

#![allow(clippy::unwrap_used, reason = "a test that cannot make its files should panic")]

use std::collections::BTreeSet;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{PermissionsExt as _, chown, lchown, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode, OFlags, RenameFlags};

use super::*;

const ALICE: u32 = 1001;
const BOB: u32 = 1002;
/// The components that are a tenant's, the last of which is what a key names.
const COMPONENTS: [&str; 4] = ["alice", "a", "b", "target"];

/// How often a name is opened at least that changes all the time, unless `BULKHEAD_RACES` says another number for all
/// races together.
const OPENINGS: u32 = 30;
/// How many times as often until all has been seen that may come of it: the one that changes it may have no processor
/// meanwhile.
const PATIENCE: u32 = 2000;
/// The file of a folder by which it is told which it is.
const WHOSE: &str = "whose";

/// What a tenant puts in the place of a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trick {
    None,
    /// A link to what is root's alone.
    LinkToSecret,
    /// A link to what is root's, and everybody can read.
    LinkToOpen,
    /// A link to what is another tenant's.
    LinkToBob,
    /// A link to a link of root's, which leads where the tenant may not go.
    LinkTwice,
    /// Another name of a file of root's.
    HardLink,
    Fifo,
    Device,
    Socket,
}

const TRICKS: [Trick; 9] = [
    Trick::None,
    Trick::LinkToSecret,
    Trick::LinkToOpen,
    Trick::LinkToBob,
    Trick::LinkTwice,
    Trick::HardLink,
    Trick::Fifo,
    Trick::Device,
    Trick::Socket,
];

/// A tree in which `secret`, `open` and `bob` have whatever `alice` has, from the component at which they take its
/// place.
struct Tree(tempfile::TempDir);

impl Tree {
    fn new(is_folder: bool) -> Self {
        let tree = Self(tempfile::tempdir().unwrap());
        fs::set_permissions(tree.0.path(), fs::Permissions::from_mode(0o755)).unwrap();
        for (top, uid, mode) in
            [("alice", ALICE, 0o700), ("secret", 0, 0o700), ("open", 0, 0o755), ("bob", BOB, 0o700)]
        {
            let top = tree.at(top);
            let mut made = vec![top.clone(), top.join("a"), top.join("a/b")];
            made.iter().for_each(|folder| fs::create_dir_all(folder).unwrap());
            let target = top.join("a/b/target");
            let file = match is_folder {
                true => fs::create_dir(&target).map(|()| target.join(WHOSE)).unwrap(),
                false => target.clone(),
            };
            fs::write(file, top.file_name().unwrap().as_encoded_bytes()).unwrap();
            made.push(target);
            for path in made {
                chown(&path, Some(uid), Some(uid)).unwrap();
                fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            }
        }
        symlink(tree.at("secret"), tree.at("root-link")).unwrap();
        tree
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    /// The path of the component of this number, below the tree of `top`.
    fn component(&self, top: &str, number: usize) -> PathBuf {
        COMPONENTS[1..=number].iter().fold(self.at(top), |path, name| path.join(name))
    }

    /// Plants a trick at a component; whether that is possible there.
    fn plant(&self, trick: Trick, number: usize) -> bool {
        let place = self.component("alice", number);
        let other = |top: &str| self.component(top, number);
        if trick != Trick::None {
            fs::rename(&place, self.at("aside")).unwrap();
        }
        let made = |kind: FileType| {
            let device = rustix::fs::makedev(1, 5);
            rustix::fs::mknodat(CWD, &place, kind, Mode::from_raw_mode(0o666), device).is_ok()
        };
        let linked = |target: PathBuf| {
            symlink(target, &place).unwrap();
            lchown(&place, Some(ALICE), Some(ALICE)).is_ok()
        };
        match trick {
            Trick::None => true,
            Trick::LinkToSecret => linked(other("secret")),
            Trick::LinkToOpen => linked(other("open")),
            Trick::LinkToBob => linked(other("bob")),
            Trick::LinkTwice => linked(other("root-link")),
            Trick::HardLink => fs::hard_link(other("secret"), &place).is_ok(),
            Trick::Fifo => made(FileType::Fifo),
            Trick::Socket => made(FileType::Socket),
            // Where containers may make none.
            Trick::Device => made(FileType::CharacterDevice),
        }
    }
}

/// What the launcher does with the path of a key; whose it has opened.
fn open(row: &PathKey, path: &Path) -> Result<String, PathFault> {
    let opener = Opener::trusting([0, 0]);
    let mut file = match row.kind {
        Kind::File => opener.file(path)?,
        Kind::Program => {
            let found = opener.look(row.class, path)?;
            found.check_owner()?;
            found.open_file()?
        }
        Kind::Folder | Kind::Made | Kind::Socket => {
            let folder = opener.folder(row.class, path)?;
            rustix::fs::openat(folder, WHOSE, OFlags::RDONLY, Mode::empty()).unwrap().into()
        }
    };
    let mut read = String::new();
    file.read_to_string(&mut read).unwrap();
    Ok(read)
}

fn is_folder(row: &PathKey) -> bool {
    !matches!(row.kind, Kind::File | Kind::Program)
}

/// Whether the rule of a key allows it.
fn is_allowed(row: &PathKey, trick: Trick) -> bool {
    match row.class {
        // All of it is in a folder of a tenant's.
        Class::Own => false,
        Class::Private => trick == Trick::None,
        Class::Published => matches!(trick, Trick::None | Trick::LinkToOpen),
    }
}

#[test]
fn no_trick_at_any_component_of_any_key_leads_to_what_is_anothers() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let (mut cases, mut allowed) = (0, 0);
    for row in PATH_KEYS {
        for (number, name) in COMPONENTS.iter().enumerate() {
            // The first component is in a folder of root's, where a tenant can plant nothing.
            for trick in TRICKS.into_iter().filter(|trick| number > 0 || *trick == Trick::None) {
                let tree = Tree::new(is_folder(row));
                if !tree.plant(trick, number) {
                    continue;
                }
                let begun = Instant::now();
                let opened = open(row, &tree.component("alice", COMPONENTS.len() - 1));
                let what = || format!("{} {}: {trick:?} at {name}", row.table, row.key);
                assert!(begun.elapsed() < Duration::from_secs(5), "{} is waited for", what());
                assert_eq!(opened.is_ok(), is_allowed(row, trick), "{}: {opened:?}", what());
                if let Ok(read) = &opened {
                    let whose = if trick == Trick::LinkToOpen { "open" } else { "alice" };
                    assert_eq!(read, whose, "{}", what());
                    allowed += 1;
                }
                cases += 1;
            }
        }
    }
    assert!(cases > PATH_KEYS.len() * 20 && allowed > PATH_KEYS.len(), "{cases} {allowed}");
}

/// Puts a component of alice's and a link in its place in turns, at moments that are drawn, while a path through it is
/// opened; what came of it, each once.
fn race(row: &PathKey, number: usize, target: &str, (least, seed): (u32, u64)) -> BTreeSet<Option<String>> {
    let tree = Tree::new(is_folder(row));
    let (place, aside) = (tree.component("alice", number), tree.at("aside"));
    symlink(tree.component(target, number), &aside).unwrap();
    lchown(&aside, Some(ALICE), Some(ALICE)).unwrap();
    let (path, is_over) = (tree.component("alice", COMPONENTS.len() - 1), AtomicBool::new(false));
    let mut seen = BTreeSet::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = seed;
            while !is_over.load(Ordering::Relaxed) {
                rustix::fs::renameat_with(CWD, &place, CWD, &aside, RenameFlags::EXCHANGE).unwrap();
                random =
                    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (0..(random >> 33) % 2000).for_each(|_| std::hint::spin_loop());
            }
        });
        let all = outcomes(row.class, target).len();
        for opening in 0..least.saturating_mul(PATIENCE) {
            if opening >= least && seen.len() >= all {
                break;
            }
            seen.insert(open(row, &path).ok());
        }
        is_over.store(true, Ordering::Relaxed);
    });
    seen
}

/// What may come of a race, and will if it goes on for long enough: whose it is, or that it is refused.
fn outcomes(class: Class, target: &str) -> BTreeSet<Option<String>> {
    let (alice, refused) = (Some("alice".to_owned()), None);
    match class {
        Class::Own => [refused].into(),
        Class::Published if target == "open" => [alice, Some(target.to_owned())].into(),
        Class::Private | Class::Published => [alice, refused].into(),
    }
}

#[test]
fn a_name_that_changes_all_the_time_leads_to_nothing_of_anothers_whatever_key_names_it() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let cases: Vec<_> = PATH_KEYS
        .iter()
        .flat_map(|row| (1..COMPONENTS.len()).map(move |number| (row, number)))
        .flat_map(|(row, number)| ["secret", "bob", "open"].map(|target| (row, number, target)))
        .collect();
    let races = std::env::var("BULKHEAD_RACES").map(|number| number.parse::<u32>().expect("it is a number"));
    let least = races.map_or(OPENINGS, |all| all.div_ceil(cases.len() as u32));
    for (seed, (row, number, target)) in cases.into_iter().enumerate() {
        let seen = race(row, number, target, (least, seed as u64));
        let what = format!("{} {}: {} to {target}", row.table, row.key, COMPONENTS[number]);
        assert_eq!(seen, outcomes(row.class, target), "{what}");
    }
}
