//! The static part of the demo: index, overview, a page per section.
//!
//! Runs in: `make-site`, under the user who calls it. Sees: the list of packages, escaped wherever it is put out.
//! Never: writes outside of the folder it is given.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use bulkhead_service::escape;

use crate::catalogue::Package;
use crate::page::{ICON, STYLE, page, size, table};

/// How many packages the table of the largest ones has.
const LARGEST: usize = 25;

type Sections<'a> = BTreeMap<&'a str, Vec<&'a Package>>;

/// Writes the whole site and the index of the services below `folder`, readable by everyone.
///
/// # Errors
/// When something cannot be written, with its name.
pub fn write(folder: &Path, packages: &[Package]) -> io::Result<()> {
    make_folder(folder)?;
    for name in ["data", "public", "public/sections", "other"] {
        make_folder(&folder.join(name))?;
    }
    let put = |name: &str, text: &str| put(&folder.join(name), text);
    let sections = sections(packages);
    put("data/packages.json", &serde_json::to_string(packages)?)?;
    for site in ["public", "other"] {
        put(&format!("{site}/style.css"), STYLE)?;
        put(&format!("{site}/favicon.svg"), ICON)?;
        put(&format!("{site}/404.html"), &missing())?;
    }
    put("public/index.html", &index(packages, &sections))?;
    for (section, packages) in &sections {
        put(&format!("public/sections/{section}.html"), &section_page(section, packages))?;
    }
    put("other/index.html", &other())
}

fn make_folder(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)
        .and_then(|()| fs::set_permissions(folder, Permissions::from_mode(0o755)))
        .map_err(|error| named(folder, &error))
}

fn put(file: &Path, text: &str) -> io::Result<()> {
    fs::write(file, text)
        .and_then(|()| fs::set_permissions(file, Permissions::from_mode(0o644)))
        .map_err(|error| named(file, &error))
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot write {}: {error}", path.display()))
}

fn sections(packages: &[Package]) -> Sections<'_> {
    let mut sections = Sections::new();
    for package in packages {
        sections.entry(&package.section).or_default().push(package);
    }
    sections
}

/// The first page.
fn index(packages: &[Package], sections: &Sections<'_>) -> String {
    let total: u64 = packages.iter().map(|package| package.installed_size_kib).sum();
    let mut largest: Vec<&Package> = packages.iter().collect();
    largest.sort_by_key(|package| std::cmp::Reverse(package.installed_size_kib));
    largest.truncate(LARGEST);
    let main = format!(
        "<p class=\"lead\">What is installed on this machine: search it, or look around.</p>\n\
         <ul class=\"figures\"><li><b>{}</b> packages</li><li><b>{}</b> sections</li><li><b>{}</b> installed</li></ul>\n\
         <h2>Sections</h2>\n{}<h2>The {} largest packages</h2>\n{}\
         <h2>Break it</h2>\n<p><a href=\"/crash\">A page whose process you can kill</a>, \
         to see that nothing else notices.</p>\n\
         <p><a href=\"/breakout\">A service that tries to break out of its jail</a>, \
         to see what an attacker who owns one gets.</p>\n",
        packages.len(),
        sections.len(),
        size(total),
        chart(sections),
        largest.len(),
        table(largest.into_iter()),
    );
    page("Packages on this machine", "", &main)
}

/// A bar for each section, as long as it has packages.
fn chart(sections: &Sections<'_>) -> String {
    let mut counts: Vec<(&str, usize)> =
        sections.iter().map(|(name, members)| (*name, members.len())).collect();
    counts.sort_by_key(|(name, count)| (std::cmp::Reverse(*count), *name));
    let most = counts.first().map_or(1, |(_, count)| *count);
    let mut bars = String::new();
    for (name, count) in counts {
        // Formatting into a String does not fail.
        let _ = writeln!(bars, "{}", bar(name, count, most));
    }
    format!("<ul class=\"chart\">\n{bars}</ul>\n")
}

fn bar(name: &str, count: usize, most: usize) -> String {
    let (percent, name) = ((count * 100 / most).max(1), escape(name));
    format!(
        "<li><a href=\"/sections/{name}.html\"><span class=\"name\">{name}</span>\
         <span class=\"bar\"><i style=\"width: {percent}%\"></i></span><span class=\"count\">{count}</span></a></li>"
    )
}

/// What is sent with 404; `error_page` names it.
fn missing() -> String {
    page(
        "Not found",
        "",
        "<p class=\"lead\">There is no such page here. Search for a package, or <a href=\"/\">begin at the first page</a>.</p>\n",
    )
}

/// The page of one section.
fn section_page(section: &str, packages: &[&Package]) -> String {
    let total: u64 = packages.iter().map(|package| package.installed_size_kib).sum();
    let main = format!(
        "<p class=\"lead\">{} packages, {} in all.</p>\n{}",
        packages.len(),
        size(total),
        table(packages.iter().copied())
    );
    page(&format!("Section {section}"), "", &main)
}

/// The page of the other site, which shares nothing with the first one.
fn other() -> String {
    "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
     <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>The other site</title>\n\
     <link rel=\"stylesheet\" href=\"/style.css\">\n<link rel=\"icon\" href=\"/favicon.svg\">\n</head>\n<body>\n<main>\n\
     <h1>The other site</h1>\n\
     <p class=\"lead\">Another host on the same machine: another process, another uid, another root.</p>\n\
     </main>\n</body>\n</html>\n"
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dpkg;

    #[test]
    fn a_site_is_written_for_everyone_to_read() {
        let folder = std::env::temp_dir().join(format!("packages-site-{}", std::process::id()));
        let packages = dpkg::parse(dpkg::SAMPLE);
        write(&folder, &packages).unwrap();
        write(&folder, &packages).unwrap();
        let mode = |name: &str| fs::metadata(folder.join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode("public/sections"), 0o755);
        assert_eq!(mode("data/packages.json"), 0o644);
        let index = fs::read_to_string(folder.join("public/index.html")).unwrap();
        for section in sections(&packages).keys() {
            assert!(index.contains(&format!("/sections/{section}.html")));
            assert_eq!(mode(&format!("public/sections/{section}.html")), 0o644);
        }
        let json = fs::read_to_string(folder.join("data/packages.json")).unwrap();
        assert_eq!(serde_json::from_str::<Vec<Package>>(&json).unwrap(), packages);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn no_packages_make_a_site_too() {
        assert!(index(&[], &Sections::new()).contains("<b>0</b> packages"));
    }
}
