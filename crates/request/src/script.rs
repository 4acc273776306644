//! Names of scripts: where one ends in a path, and which files are the source of one; and names that end with a suffix.
//!
//! Untrusted input: paths in their normal form, and names of files. Must
//! never: take another name for a script than the backend would run.
//!
//! Two questions about a suffix: "is this a script" ([`split_script`]) is about what is executed, and leaves hidden
//! names out; "does a rule for this suffix mean this name" ([`ends_with`], [`has_name`]) is about names, and leaves
//! none out.

/// Suffixes of the scripts whose sources are never sent as files, unless the operator says so: what Debian's Apache
/// hands to PHP, and what PHP was called before.
const SOURCES: [&str; 12] = [
    ".php", ".phtml", ".phar", ".phps", ".pht", ".php3", ".php4", ".php5", ".php7", ".php8", ".inc.php",
    ".phpt",
];

/// The endings that editors, compressors and people add to the name of a copy.
const COPIES: [&str; 13] =
    ["~", ".bak", ".old", ".orig", ".save", ".swp", ".swo", ".tmp", ".copy", ".gz", ".br", ".zst", ".dist"];

/// Whether a file of this name, or what it is a copy of, is a script: one with a suffix in `routed`, or one of the
/// usual ones that is not in `sent`. Without regard to case: file systems and servers that ignore case would run it.
pub fn is_source<'s>(name: &[u8], routed: impl Iterator<Item = &'s str>, sent: &[String]) -> bool {
    let name = without_copies(name);
    let is = |suffix: &str| ends_with_ignoring_case(name, suffix.as_bytes());
    let mut routed = routed;
    routed.any(is) || (SOURCES.iter().any(|suffix| is(suffix)) && !sent.iter().any(|suffix| is(suffix)))
}

fn without_copies(mut name: &[u8]) -> &[u8] {
    while let Some(copy) = COPIES.iter().find(|copy| ends_with_ignoring_case(name, copy.as_bytes())) {
        name = &name[..name.len() - copy.len()];
    }
    name
}

fn ends_with_ignoring_case(name: &[u8], suffix: &[u8]) -> bool {
    name.len() >= suffix.len() && name[name.len() - suffix.len()..].eq_ignore_ascii_case(suffix)
}

/// The script and the rest of a path that names one: the first segment that ends with `suffix` ends the script.
///
/// SECURITY: the script is whatever comes first, so that `/photo.jpg/x.php` is the script `/photo.jpg/x.php`, which no
/// folder has, and never `/photo.jpg`. A name that is nothing but the suffix is hidden, and no script.
pub fn split_script<'p>(path: &'p [u8], suffix: &str) -> Option<(&'p [u8], &'p [u8])> {
    let mut end = 0;
    for segment in path.split_inclusive(|&byte| byte == b'/') {
        end += segment.len();
        let name = segment.strip_suffix(b"/").unwrap_or(segment);
        if is_script(name, suffix) {
            return Some(path.split_at(end - (segment.len() - name.len())));
        }
    }
    None
}

/// Whether the last segment ends with `suffix`, whatever else it is.
pub fn ends_with(path: &[u8], suffix: &str) -> bool {
    last_name(path).ends_with(suffix.as_bytes())
}

/// Whether a segment ends with `suffix`, whatever else it is: what follows may be for a script to read.
pub fn has_name(path: &[u8], suffix: &str) -> bool {
    path.split(|&byte| byte == b'/').any(|name| name.ends_with(suffix.as_bytes()))
}

fn last_name(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or(path)
}

/// A name that is hidden is none of a script, and so is one that is nothing but the suffix.
pub fn is_script(name: &[u8], suffix: &str) -> bool {
    name.len() > suffix.len() && name.ends_with(suffix.as_bytes()) && !name.starts_with(b".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts() {
        for (path, split) in [
            ("/a.php", Some(("/a.php", ""))),
            ("/a.php/b", Some(("/a.php", "/b"))),
            ("/a.php/", Some(("/a.php", "/"))),
            ("/d/a.php/b.php/c", Some(("/d/a.php", "/b.php/c"))),
            ("/photo.jpg/x.php", Some(("/photo.jpg/x.php", ""))),
            ("/.php", None),
            ("/.a.php", None),
            ("/a.phpx", None),
            ("/a.PHP", None),
            ("/", None),
            ("/php", None),
        ] {
            let split = split.map(|(script, rest): (&str, &str)| (script.as_bytes(), rest.as_bytes()));
            assert_eq!(split_script(path.as_bytes(), ".php"), split, "{path}");
        }
    }

    #[test]
    fn names_that_end_with_a_suffix() {
        for (path, last, any) in [
            ("/x/a.php", true, true),
            ("/.php", true, true),
            ("/.a.php", true, true),
            ("/a.php/b", false, true),
            ("/.php/b", false, true),
            ("/a.php/", false, true),
            ("/a.phpx", false, false),
            ("/a.PHP", false, false),
            ("/php", false, false),
            ("/", false, false),
        ] {
            assert_eq!(ends_with(path.as_bytes(), ".php"), last, "{path}");
            assert_eq!(has_name(path.as_bytes(), ".php"), any, "{path}");
        }
    }

    #[test]
    fn sources_and_copies_of_them() {
        let is = |name: &str| is_source(name.as_bytes(), [".py"].into_iter(), &[".phps".to_owned()]);
        for name in [
            "a.php",
            "d/A.PHP",
            "a.phtml",
            "a.phar",
            "a.php~",
            "a.php.bak",
            "a.php.gz",
            "a.php.old.br",
            "x.py",
            "x.PY.gz",
            ".php",
        ] {
            assert!(is(name), "{name}");
        }
        for name in ["a.phps", "a.html", "a.gz", "php", "a.php.html", "a.phpx", "~", ".gz", "a.pyc"] {
            assert!(!is(name), "{name}");
        }
    }
}
