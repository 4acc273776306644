//! Makes the demo's directory: the package list, two static sites, the configuration, the services' programs.
//!
//! Runs in: a shell, as the user who calls it, without privilege. Sees: dpkg's list of installed packages.
//! Never: removes anything, or writes outside of the directory it is given.
//!
//! Usage: `make-site [--sample] DIR`; with `--sample`, or where there is no dpkg, from a list that comes along.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bulkhead_service::escape;
use packages::{Package, Packages, control, page};

const STATUS: &str = "/var/lib/dpkg/status";
const CONFIGURATION: &str = include_str!("../../demo.toml");
const STYLE: &str = include_str!("../style.css");
/// The services of the configuration, in `bin`.
const PROGRAMS: [&str; 3] = ["search", "package", "crash"];

/// Rows of the table of the largest packages.
const LARGEST: usize = 20;
/// Bars in the picture of sections.
const BARS: usize = 12;

fn main() -> ExitCode {
    let (mut sample, mut directory) = (false, None);
    for argument in std::env::args_os().skip(1) {
        match argument.to_str() {
            Some("--sample") => sample = true,
            Some(other) if other.starts_with('-') => return usage(),
            _ if directory.is_some() => return usage(),
            _ => directory = Some(PathBuf::from(argument)),
        }
    }
    let Some(directory) = directory else {
        return usage();
    };
    match make(&directory, sample) {
        Ok(report) => {
            println!("{report}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: make-site [--sample] DIR");
    ExitCode::from(2)
}

/// Writes everything below `directory`, and tells what it did.
fn make(directory: &Path, sample: bool) -> Result<String, String> {
    let packages = read(sample)?;
    let list = serde_json::to_string(&packages.all).map_err(|error| error.to_string())?;
    write(&directory.join("data/packages.json"), &list)?;
    let public = directory.join("public");
    write(&public.join("style.css"), STYLE)?;
    write(&public.join("index.html"), &overview(&packages))?;
    let sections = sections(&packages);
    for (name, members) in &sections {
        let file = public.join("sections").join(page::section_file(name));
        write(&file, &section(name, members))?;
    }
    write(&directory.join("other/index.html"), &other())?;
    write(&directory.join("demo.toml"), CONFIGURATION)?;
    let missing = copy_programs(&directory.join("bin"))?;
    let (count, sections) = (packages.all.len(), sections.len());
    let mut report = format!("{count} packages in {sections} sections: {}", directory.display());
    if !missing.is_empty() {
        let _ = write!(
            report,
            "\nnot found beside make-site, to be put into bin: {}",
            missing.join(", ")
        );
    }
    Ok(report)
}

fn read(sample: bool) -> Result<Packages, String> {
    if sample {
        return Ok(packages::sample());
    }
    match fs::read(STATUS) {
        Ok(text) => Ok(Packages::new(control::parse(&String::from_utf8_lossy(&text)))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(packages::sample()),
        Err(error) => Err(format!("{STATUS}: {error}")),
    }
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    let place = |error: io::Error| format!("{}: {error}", path.display());
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(place)?;
    }
    fs::write(path, text).map_err(place)
}

/// Copies the services' programs from beside this one; names those that are not there.
fn copy_programs(bin: &Path) -> Result<Vec<&'static str>, String> {
    let place = |error: io::Error| format!("{}: {error}", bin.display());
    fs::create_dir_all(bin).map_err(place)?;
    let own = std::env::current_exe().map_err(place)?;
    let mut missing = Vec::new();
    for name in PROGRAMS {
        let from = own.with_file_name(name);
        if !from.is_file() {
            missing.push(name);
            continue;
        }
        // A program that is running cannot be written to, but its name can be given to another file.
        let new = bin.join(format!("{name}.new"));
        fs::copy(&from, &new).map_err(place)?;
        fs::rename(&new, bin.join(name)).map_err(place)?;
    }
    Ok(missing)
}

/// The packages of each section, in the order of names.
fn sections(packages: &Packages) -> BTreeMap<&str, Vec<&Package>> {
    let mut sections: BTreeMap<&str, Vec<&Package>> = BTreeMap::new();
    for package in &packages.all {
        sections.entry(&package.section).or_default().push(package);
    }
    sections
}

fn overview(packages: &Packages) -> String {
    let mut sections: Vec<_> = sections(packages).into_iter().collect();
    sections.sort_by_key(|(name, members)| (std::cmp::Reverse(members.len()), *name));
    let total = packages.all.iter().map(|package| package.installed_kib).sum();
    let mut body = format!(
        "<h1>What is installed here</h1>\n<p class=lead>{} packages in {} sections, {} in all.</p>\n",
        packages.all.len(),
        sections.len(),
        page::size(total)
    );
    body += "<form class=hero action=/search role=search><input type=search name=q autofocus \
             placeholder=\"Name or description\" aria-label=\"Name or description\"><button>Search</button></form>\n";
    let _ = write!(body, "<h2>Sections</h2>\n{}\n<p class=names>", bars(&sections));
    for (name, members) in &sections {
        let _ = writeln!(
            body,
            "<span>{} <small>{}</small></span>",
            page::section_link(name),
            members.len()
        );
    }
    let mut largest: Vec<_> = packages.all.iter().collect();
    largest.sort_by_key(|package| std::cmp::Reverse(package.installed_kib));
    let _ = write!(
        body,
        "</p>\n<h2>The largest packages</h2>\n{}<p>This page and the <a href=\"/sections/{}\">section pages</a> \
         are files, served by the site’s process. <a href=/search>The search</a>, <a href=/package/bash>the \
         package pages</a> and <a href=/crash>the page that crashes</a> are services, each a process of its \
         own.</p>\n",
        page::table(largest.into_iter().take(LARGEST)),
        sections
            .first()
            .map(|(name, _)| page::section_file(name))
            .unwrap_or_default(),
    );
    page::page("Overview", "", &body)
}

/// A picture of how many packages the largest sections have.
fn bars(sections: &[(&str, Vec<&Package>)]) -> String {
    const ROW: usize = 26;
    let shown = &sections[..sections.len().min(BARS)];
    let most = shown.first().map_or(1, |(_, members)| members.len());
    let mut out = format!(
        "<svg class=bars viewBox=\"0 0 720 {}\" role=img aria-label=\"Packages by section\">\n",
        shown.len() * ROW
    );
    for (row, (name, members)) in shown.iter().enumerate() {
        let (top, width) = (row * ROW, 500 * members.len() / most);
        let _ = writeln!(
            out,
            "<a href=\"/sections/{file}\"><text x=140 y={text} text-anchor=end>{name}</text>\
             <rect x=150 y={bar} width={width} height=18 rx=3 /><text class=count x={after} y={text}>{count}</text></a>",
            file = page::section_file(name),
            name = escape(name),
            text = top + 18,
            bar = top + 4,
            width = width.max(2),
            after = 158 + width,
            count = members.len(),
        );
    }
    out + "</svg>"
}

fn section(name: &str, members: &[&Package]) -> String {
    let total = members.iter().map(|package| package.installed_kib).sum();
    let body = format!(
        "<h1>{}</h1>\n<p class=lead>{} packages, {}. <a href=/>All sections</a></p>\n{}",
        escape(name),
        members.len(),
        page::size(total),
        page::table(members.iter().copied())
    );
    page::page(name, "", &body)
}

/// The second site: small, and of another uid.
fn other() -> String {
    "<!doctype html>\n<html lang=en>\n<meta charset=utf-8>\n\
     <meta name=viewport content=\"width=device-width,initial-scale=1\">\n<title>The other site</title>\n\
     <style>body{font:1.1rem/1.6 system-ui,sans-serif;max-width:36rem;margin:15vh auto;padding:0 1rem;\
     color-scheme:light dark}</style>\n<h1>The other site</h1>\n\
     <p>It has a process and a uid of its own. Whoever takes over the process of the packages’ site cannot read \
     this file, this site’s log or its traffic.</p>\n</html>\n"
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_link_to_a_section_leads_somewhere() {
        let packages = packages::sample();
        let directory = std::env::temp_dir().join(format!("make-site-{}", std::process::id()));
        make(&directory, true).unwrap();
        let index = fs::read_to_string(directory.join("public/index.html")).unwrap();
        let mut links = 0;
        for link in index.split("\"/sections/").skip(1) {
            let file = link.split('"').next().unwrap();
            assert!(directory.join("public/sections").join(file).is_file(), "{file}");
            links += 1;
        }
        assert!(links > sections(&packages).len());
        let list = Packages::load(&directory.join("data/packages.json")).unwrap();
        assert_eq!(list.all, packages.all);
        assert_eq!(
            fs::read_to_string(directory.join("demo.toml")).unwrap(),
            CONFIGURATION
        );
        assert!(directory.join("other/index.html").is_file());
        fs::remove_dir_all(&directory).unwrap();
    }
}
