//! What is taken in of a folder of many sites.

use std::collections::BTreeSet;
use std::fs;

use crate::Config;

/// A folder with a site in each of these files, by its name and what else it says.
fn folder(sites: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in ["sites", "public/in", "other"] {
        fs::create_dir_all(folder.path().join(name)).unwrap();
    }
    let main = "include = \"sites/*.toml\"\n[[listen]]\naddress = \"127.0.0.1:1\"\n\
                [[site]]\nname = \"main\"\nhost = [\"main.test\"]\nroot = \"other\"\n";
    fs::write(folder.path().join("b.toml"), main).unwrap();
    for (name, more) in sites {
        let text = format!("[[site]]\nname = \"{name}\"\n{more}\n");
        fs::write(folder.path().join(format!("sites/{name}.toml")), text).unwrap();
    }
    folder
}

fn names(folder: &tempfile::TempDir, site: &str, others: &[&str]) -> Option<Vec<String>> {
    let mut alike = |run_dir: &std::path::Path| -> Option<BTreeSet<String>> {
        assert_eq!(run_dir, folder.path().join("run"));
        Some(others.iter().map(|&name| name.to_owned()).collect())
    };
    let part = Config::load_part(&folder.path().join("b.toml"), site, &mut alike).unwrap()?;
    let whole = Config::load(&folder.path().join("b.toml")).unwrap();
    assert!(part.sites.iter().all(|site| whole.sites.iter().any(|other| other == site)));
    Some(part.sites.iter().map(|site| site.name.clone()).collect())
}

#[test]
fn of_many_files_those_are_taken_in_that_have_to_do_with_a_site() {
    let plain: Vec<(String, String)> = (0..300)
        .map(|number| (format!("s{number}"), format!("host = [\"h{number}.test\"]\nroot = \"../public\"")))
        .collect();
    let mut sites: Vec<(&str, &str)> = plain.iter().map(|(name, more)| (&**name, &**more)).collect();
    sites.extend([
        ("beside", "host = [\"H7.test\"]\npath = \"/b/\"\nroot = \"../other\""),
        ("further", "host = [\"h9.test\", \"h8.test\"]\npath = \"/f/\"\nroot = \"../other\""),
        ("inside", "host = [\"i.test\"]\nroot = \"../public/in\""),
        ("six", "host = [\"0:0::1\"]\nroot = \"../other\""),
        ("six-again", "host = [\"[::1]\"]\npath = \"/again/\"\nroot = \"../other\""),
        ("escaped", "host = [\"\\u0068.test\"]\nroot = \"../other\""),
    ]);
    let folder = folder(&sites);
    assert_eq!(names(&folder, "s7", &[]).unwrap(), ["beside", "inside", "s7"]);
    assert_eq!(names(&folder, "s8", &["s7"]).unwrap(), ["beside", "further", "inside", "s7", "s8", "s9"]);
    assert_eq!(names(&folder, "main", &[]).unwrap(), ["main"]);
    assert_eq!(names(&folder, "escaped", &[]).unwrap(), ["escaped"]);
    assert_eq!(names(&folder, "six", &[]).unwrap(), ["six-again", "six"]);
    assert_eq!(names(&folder, "s300", &[]), None);
    // The folders of all plain ones are around its own, and two share hosts with these.
    assert_eq!(names(&folder, "inside", &[]).unwrap().len(), 303);
}

#[test]
fn a_file_that_cannot_be_read_is_said_to_be_one() {
    let folder = folder(&[("a", "host = [\"a.test\"]\nroot = \"../public\"")]);
    fs::write(folder.path().join("sites/b.toml"), [0xff]).unwrap();
    let error =
        Config::load_part(&folder.path().join("b.toml"), "a", &mut |_| Some(BTreeSet::new())).unwrap_err();
    assert!(error.to_string().contains("sites/b.toml: byte 0 is not UTF-8"), "{error}");
}
