//! The list of installed packages, as dpkg keeps it.
//!
//! Runs in: `make-site`, under the user who calls it. Sees: `/var/lib/dpkg/status`, which dpkg wrote from the
//! packages' own control files. Never: fails; what is no field of an installed package is passed over.

use std::collections::BTreeMap;

use crate::catalogue::Package;

/// An excerpt of a real list, for machines without dpkg.
pub const SAMPLE: &str = include_str!("../sample-status");

/// The installed packages in `status`, each name once, sorted by name.
pub fn parse(status: &str) -> Vec<Package> {
    let mut packages = BTreeMap::new();
    for package in status.split("\n\n").filter_map(package) {
        packages.entry(package.name.clone()).or_insert(package);
    }
    packages.into_values().collect()
}

/// The package that a paragraph tells about, if it is installed.
fn package(paragraph: &str) -> Option<Package> {
    let fields = fields(paragraph);
    let field = |name: &str| fields.get(name).map_or("", String::as_str);
    let installed = field("Status").split(' ').next_back() == Some("installed");
    let name = field("Package");
    if !installed || name.is_empty() {
        return None;
    }
    let (summary, description) = field("Description").split_once('\n').unwrap_or((field("Description"), ""));
    Some(Package {
        name: name.to_owned(),
        version: field("Version").to_owned(),
        section: section(field("Section")),
        maintainer: field("Maintainer").to_owned(),
        installed_size_kib: field("Installed-Size").parse().unwrap_or(0),
        depends: depends(&[field("Pre-Depends"), field("Depends")]),
        homepage: field("Homepage").to_owned(),
        summary: summary.to_owned(),
        description: unfold(description),
    })
}

/// The fields of a paragraph; the lines of one value are separated by newlines, as they stand there.
fn fields(paragraph: &str) -> BTreeMap<&str, String> {
    let mut fields: BTreeMap<&str, String> = BTreeMap::new();
    let mut current = "";
    for line in paragraph.lines() {
        if line.starts_with([' ', '\t']) {
            if let Some(value) = fields.get_mut(current) {
                value.push('\n');
                value.push_str(line);
            }
        } else if let Some((name, value)) = line.split_once(':') {
            current = name;
            fields.insert(name, value.trim().to_owned());
        }
    }
    fields
}

/// The section without its archive area, as in `contrib/net`, in characters that may be a file's name.
fn section(field: &str) -> String {
    let name = field.rsplit('/').next().unwrap_or_default();
    let plain = |character: char| {
        if character.is_ascii_alphanumeric() { character } else { '-' }
    };
    match name {
        "" => "other".to_owned(),
        name => name.chars().map(|character| plain(character).to_ascii_lowercase()).collect(),
    }
}

/// The names in lists of dependencies, each once; of alternatives the first.
fn depends(lists: &[&str]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for relation in lists.iter().flat_map(|list| list.split(',')) {
        let first = relation.split('|').next().unwrap_or_default();
        let name = first.trim().split([' ', '(', ':', '\n']).next().unwrap_or_default();
        if !name.is_empty() && !names.iter().any(|other| other == name) {
            names.push(name.to_owned());
        }
    }
    names
}

/// A long description as text: paragraphs become lines of their own, lines with more indent stay as they are.
///
/// Debian Policy 5.6.13: one space and text is flowing text, two spaces are verbatim, ` .` is an empty line.
fn unfold(description: &str) -> String {
    let mut text = String::new();
    let mut flowing = false;
    for line in description.lines() {
        let line = line.strip_prefix(' ').unwrap_or(line).trim_end();
        let flows = !line.is_empty() && !line.starts_with(' ') && line != ".";
        text.push_str(match (text.is_empty(), flowing && flows) {
            (true, _) => "",
            (false, true) => " ",
            (false, false) => "\n",
        });
        text.push_str(if line == "." { "" } else { line });
        flowing = flows;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Package: zeta\nStatus: install ok installed\nSection: contrib/net\nVersion: 1:2.0-1\n\
        Installed-Size: 12\nPre-Depends: libc6 (>= 2.36)\nDepends: libc6, a | b, python3:any (<< 4),\n libz (= 1)\n\
        Conffiles:\n /etc/zeta 0123\nHomepage: https://zeta.example/\n\
        Description: a thing: the last\n One line\n goes on.\n .\n  - verbatim\n  - again\n\n\
        Package: gone\nStatus: deinstall ok config-files\nVersion: 1\n\n\
        Package: alpha\nStatus: install ok installed\nVersion: 3\n\n\
        Package: alpha\nStatus: install ok installed\nVersion: 4\n\nnonsense\n\n";

    #[test]
    fn installed_packages_are_found_once_and_sorted() {
        let packages = parse(STATUS);
        let names: Vec<_> = packages.iter().map(|package| package.name.as_str()).collect();
        assert_eq!(names, ["alpha", "zeta"]);
        assert_eq!((packages[0].version.as_str(), packages[0].section.as_str()), ("3", "other"));
    }

    #[test]
    fn every_field_is_read() {
        let zeta = &parse(STATUS)[1];
        assert_eq!((zeta.version.as_str(), zeta.section.as_str()), ("1:2.0-1", "net"));
        assert_eq!(zeta.installed_size_kib, 12);
        assert_eq!(zeta.depends, ["libc6", "a", "python3", "libz"]);
        assert_eq!(zeta.homepage, "https://zeta.example/");
        assert_eq!(zeta.summary, "a thing: the last");
        assert_eq!(zeta.description, "One line goes on.\n\n - verbatim\n - again");
    }

    #[test]
    fn a_section_is_no_path() {
        assert_eq!(section("../../ETC/pass wd"), "pass-wd");
        assert_eq!(section(".."), "--");
    }

    #[test]
    fn nonsense_is_no_package() {
        assert!(parse("").is_empty());
        assert!(parse(" \n:\n: :\n\n\n\n x").is_empty());
    }

    #[test]
    fn the_sample_holds_packages() {
        let packages = parse(SAMPLE);
        assert!(packages.len() >= 40, "{}", packages.len());
        assert!(packages.iter().all(|package| !package.summary.is_empty()));
    }
}
