//! Makes the table of all targets from the files in `targets`, so that none can be left out.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

fn main() {
    let folder = Path::new(&env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("targets");
    println!("cargo:rerun-if-changed={}", folder.display());
    let files = fs::read_dir(&folder)
        .expect("there is such a folder")
        .map(|entry| entry.expect("it can be read").path());
    let mut files: Vec<_> = files.collect();
    files.sort();
    let (mut modules, mut table) = (String::new(), String::new());
    for file in &files {
        let name = file.file_stem().expect("it has a name").to_string_lossy();
        writeln!(modules, "#[path = {file:?}]\nmod {name};").expect("a String takes it");
        writeln!(table, "    ({name:?}, |data| {name}::fuzz(data).into()),").expect("a String takes it");
    }
    let out = Path::new(&env::var("OUT_DIR").expect("cargo sets it")).join("targets.rs");
    let text = format!("{modules}\nconst TARGETS: &[(&str, fn(&[u8]) -> Corpus)] = &[\n{table}];\n");
    fs::write(out, text).expect("it can be written");
}
