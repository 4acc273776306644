//! Makes the demo's folder: static pages, the services' index, and a second site.
//!
//! Runs in: a process of its own before the server starts, under the user who calls it. Sees: dpkg's list of
//! packages. Never: writes outside of the folder it is given.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bulkhead_service::Error;
use packages::{dpkg, site};

const USAGE: &str = "usage: make-site DIR [--status FILE]";
const STATUS: &str = "/var/lib/dpkg/status";

fn main() -> ExitCode {
    match run(std::env::args().skip(1).collect()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Vec<String>) -> Result<(), Error> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (folder, status) = match words[..] {
        [folder] if !folder.starts_with('-') => (folder, None),
        [folder, "--status", file] | ["--status", file, folder] => (folder, Some(PathBuf::from(file))),
        _ => return Err(USAGE.into()),
    };
    let (text, source) = list(status.as_deref())?;
    let packages = dpkg::parse(&text);
    site::write(Path::new(folder), &packages)?;
    println!("made a site of {} packages from {source} in {folder}", packages.len());
    Ok(())
}

/// The list of packages, and where it comes from: the file named, or else dpkg's own, or else our sample.
fn list(status: Option<&Path>) -> Result<(String, String), Error> {
    let file = status.unwrap_or(Path::new(STATUS));
    match std::fs::read(file) {
        Ok(bytes) => Ok((String::from_utf8_lossy(&bytes).into_owned(), file.display().to_string())),
        Err(_) if status.is_none() => Ok((dpkg::SAMPLE.to_owned(), "the sample (no dpkg here)".to_owned())),
        Err(error) => Err(format!("cannot read {}: {error}", file.display()).into()),
    }
}
