//! Links that leave the root, in made-up trees: what is found is what the kernel finds, and lies in a folder that is
//! named.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use request::path::NormalPath;
use site::files::folders::{Folders, OpenFolder};
use site::files::{FileNames, FoundPath, RootFiles};

/// The root, two folders that links may lead into, and one of somebody else's.
const FOLDERS: [&str; 4] = ["www", "shared", "second", "other"];
/// The parts of a link's target.
const NAMES: [&str; 8] = ["..", "d0", "f0", "f0", "f0", "l0", "l1", "l2"];
const ROUNDS: u64 = 100;

/// A small generator, so that a failure can be repeated by its round.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % end
    }

    fn target(&mut self, top: &Path) -> PathBuf {
        let folder = FOLDERS[self.below(FOLDERS.len())];
        let mut target = match self.below(4) {
            0 => top.join(folder),
            1 => Path::new("..").join(folder),
            2 => Path::new("../..").join(folder),
            _ => PathBuf::new(),
        };
        for _ in 0..=self.below(3) {
            target.push(NAMES[self.below(NAMES.len())]);
        }
        target
    }
}

/// Files that say where they are, and links in all folders but the last.
fn make(top: &Path, random: &mut Random) {
    for folder in FOLDERS {
        for name in [folder.to_owned(), format!("{folder}/d0")] {
            fs::create_dir_all(top.join(&name)).unwrap();
            let file = top.join(&name).join("f0");
            fs::write(&file, file.to_str().unwrap()).unwrap();
            for link in ["l0", "l1", "l2"].iter().filter(|_| folder != "other") {
                symlink(random.target(top), top.join(&name).join(link)).unwrap();
            }
        }
    }
}

fn files(top: &Path) -> RootFiles {
    let open = |name: &str| fs::File::open(top.join(name)).unwrap().into();
    let mut folders = Folders::default();
    folders.set_root(top.join("www").to_str().unwrap());
    for name in ["shared", "second"] {
        folders.add_link_folder(OpenFolder::new(open(name), top.join(name).to_str().unwrap()));
    }
    RootFiles::new(open("www"), Rc::new(FileNames { folders, ..FileNames::default() }))
}

/// All paths of up to three of these names.
fn paths() -> Vec<String> {
    let names = ["l0", "l1", "l2", "d0", "f0"];
    let longer = |paths: &[String]| -> Vec<String> {
        paths.iter().flat_map(|path| names.map(|name| format!("{path}/{name}"))).collect()
    };
    let one = longer(&[String::new()]);
    let two = longer(&one);
    let three = longer(&two);
    [one, two, three].concat()
}

#[test]
fn what_links_lead_to_is_what_the_kernel_says_and_in_a_named_folder() {
    let (paths, mut crossed, mut refused) = (paths(), 0, 0);
    for round in 0..ROUNDS {
        let top = tempfile::tempdir().unwrap();
        let top = top.path().canonicalize().unwrap();
        make(&top, &mut Random(round));
        let files = files(&top);
        for path in &paths {
            let real = top.join("www").join(&path[1..]).canonicalize();
            let Ok(FoundPath::File(file)) = files.lookup(&NormalPath::parse(path).unwrap()) else {
                refused += usize::from(real.is_ok_and(|real| real.starts_with(top.join("other"))));
                continue;
            };
            let mut own = String::new();
            fs::File::from(file.fd).read_to_string(&mut own).unwrap();
            let place = Path::new(&own).strip_prefix(&top).unwrap();
            assert!(!place.starts_with("other"), "round {round}: {path} leads to {own}");
            // A target may name on its way, outside of all folders, what is not there.
            if let Ok(real) = real {
                assert_eq!(real, Path::new(&own), "round {round}: {path}");
            }
            crossed += usize::from(!place.starts_with("www"));
        }
    }
    assert!(crossed > 30 && refused > 15, "{crossed} links crossed, {refused} were refused");
}
