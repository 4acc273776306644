//! Reads dpkg's list of packages.
//!
//! Runs in: the generator. Sees: `/var/lib/dpkg/status`, written by the package manager. Never: fails; what it
//! does not know it leaves out.

use std::collections::HashMap;

use crate::Package;

/// The installed packages in the text of a status file.
pub fn parse(status: &str) -> Vec<Package> {
    status
        .split("\n\n")
        .map(fields)
        .filter_map(|fields| package(&fields))
        .collect()
}

/// The fields of one entry; the lines of a value are joined by line feeds.
fn fields(entry: &str) -> HashMap<&str, String> {
    let mut fields = HashMap::new();
    let mut last = "";
    for line in entry.lines() {
        if line.starts_with([' ', '\t']) {
            let value: &mut String = fields.entry(last).or_default();
            value.push('\n');
            value.push_str(&line[1..]);
        } else if let Some((name, value)) = line.split_once(':') {
            last = name;
            fields.insert(name, value.trim().to_owned());
        }
    }
    fields
}

fn package(fields: &HashMap<&str, String>) -> Option<Package> {
    let field = |name: &str| fields.get(name).cloned().unwrap_or_default();
    if !field("Status").ends_with(" installed") {
        return None;
    }
    let description = field("Description");
    let (summary, rest) = description.split_once('\n').unwrap_or((&description, ""));
    let mut depends = names(&field("Pre-Depends"));
    depends.extend(names(&field("Depends")));
    depends.sort();
    depends.dedup();
    Some(Package {
        name: fields.get("Package")?.clone(),
        version: field("Version"),
        section: Some(field("Section"))
            .filter(|section| !section.is_empty())
            .unwrap_or("other".into()),
        maintainer: field("Maintainer"),
        installed_kib: field("Installed-Size").parse().unwrap_or(0),
        depends,
        homepage: field("Homepage"),
        summary: summary.to_owned(),
        description: paragraphs(rest),
    })
}

/// The names in `a (>= 1), b:any | c`.
fn names(relation: &str) -> Vec<String> {
    relation
        .split([',', '|'])
        .filter_map(|one| one.trim().split([' ', '(', ':']).next())
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

/// Fills the lines of paragraphs, which are separated by ` .`; indented lines stay lines.
fn paragraphs(lines: &str) -> String {
    let mut text = String::new();
    let mut filled = false;
    for line in lines.lines() {
        let verbatim = line.starts_with(' ');
        match line {
            "." => text.push_str("\n\n"),
            _ if verbatim => text.push_str(if text.is_empty() { "" } else { "\n" }),
            _ if filled => text.push(' '),
            _ => {}
        }
        if line != "." {
            text.push_str(line.trim());
        }
        filled = line != ".";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_becomes_a_package() {
        let text = "Package: g++\nStatus: install ok installed\nVersion: 4:12\nInstalled-Size: 17\n\
                    Section: devel\nPre-Depends: libc6 (>= 2)\nDepends: cpp:any (= 1) | b, libc6\n\
                    Description: compiler\n One\n two.\n .\n List:\n  - a\n  - b\n\n\
                    Package: gone\nStatus: deinstall ok config-files\n";
        let [package] = parse(text).try_into().unwrap();
        assert_eq!(package.name, "g++");
        assert_eq!(package.depends, ["b", "cpp", "libc6"]);
        assert_eq!(package.installed_kib, 17);
        assert_eq!(package.summary, "compiler");
        assert_eq!(package.description, "One two.\n\nList:\n- a\n- b");
    }
}
