//! The rules of names: sites, services, URL paths, index files, environment variables, file paths.
//!
//! Runs in: the launcher (root) and the `bulkhead` command. Input: strings of the operator's file. Must
//! never: let through a name that means something else as a file name, a log field or a shell word.

use wire::Role;

use super::KeyFault;

/// LIMIT: a DNS label's length; with folder and suffix it stays a file name.
const NAME_BYTES_MAX: usize = 63;
/// LIMIT: NAME_MAX of Linux file systems.
const FILE_NAME_BYTES_MAX: usize = 255;
/// LIMIT: the least `head_bytes` allowed must hold a request for any path allowed.
const PATH_BYTES_MAX: usize = 512;

/// What the access log of requests to no site is called.
const NO_SITE: &str = "no-site";

/// What commands and logs know besides sites.
fn is_reserved(name: &str) -> bool {
    name == NO_SITE || Role::ALL.iter().any(|role| !role.is_of_a_site() && role.name() == name)
}

/// A site's or service's name: it becomes a file name, a log field and a word of the `bulkhead` command.
pub(crate) fn name(text: &str) -> Result<(), KeyFault> {
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b);
    if text.is_empty() || text.len() > NAME_BYTES_MAX {
        let rule = format!("a name has 1 to {NAME_BYTES_MAX} bytes, and this has {}", text.len());
        return Err(KeyFault::new(rule));
    }
    if !text.bytes().all(allowed) {
        let rule = "a name has only a-z, 0-9, `.`, `_` and `-`";
        let fixed: String = text.to_ascii_lowercase().replace(' ', "-");
        return Err(match fixed.bytes().all(allowed).then(|| name(&fixed)) {
            Some(Ok(())) => KeyFault::with_help(rule, format!("write `\"{fixed}\"`")),
            _ => KeyFault::new(rule),
        });
    }
    if text.starts_with(['.', '_', '-']) {
        return Err(KeyFault::new("a name starts with a letter or a digit"));
    }
    if is_reserved(text) {
        return Err(KeyFault::new(format!(
            "`{text}` is the name of a process of bulkhead's own; choose another"
        )));
    }
    Ok(())
}

/// The path of a URL. Exactly one spelling of each path passes, so that comparing bytes is enough.
pub(crate) fn url_path(text: &str) -> Result<(), KeyFault> {
    if !text.starts_with('/') {
        return Err(KeyFault::with_help(
            "a path starts with `/`",
            format!("write `\"/{}\"`", text.escape_debug()),
        ));
    }
    if text.len() > PATH_BYTES_MAX {
        return Err(KeyFault::new(format!(
            "a path has at most {PATH_BYTES_MAX} bytes, and this has {}",
            text.len()
        )));
    }
    if text.contains("//") {
        return Err(KeyFault::new("a path has no empty segment (`//`)"));
    }
    if text.split('/').any(|segment| segment == "." || segment == "..") {
        return Err(KeyFault::with_help("a path has no `.` or `..` segment", "write where it leads to"));
    }
    text.chars().find(|c| !is_path_char(*c)).map_or(Ok(()), |c| Err(bad_path_char(c)))
}

/// RFC 3986 3.3: pchar without percent-encoding, and `/`.
fn is_path_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || "/-._~!$&'()*+,;=:@".contains(c)
}

fn bad_path_char(c: char) -> KeyFault {
    match c {
        '?' => KeyFault::with_help("a path has no query (`?`)", "leave out the `?` and what follows"),
        '#' => KeyFault::with_help("a path has no fragment (`#`)", "leave out the `#` and what follows"),
        '%' => KeyFault::new("a path has no percent-encoding (`%`)"),
        ' ' => KeyFault::new("a path has no space"),
        c if c.is_control() => {
            KeyFault::new(format!("a path has no control character ({})", c.escape_debug()))
        }
        c => KeyFault::new(format!("a path has no `{}`", c.escape_debug())),
    }
}

/// A site's path: a prefix, which shows by its last `/`.
pub(crate) fn site_path(text: &str) -> Result<(), KeyFault> {
    url_path(text)?;
    if !text.ends_with('/') {
        return Err(KeyFault::with_help("a site's path ends with `/`", format!("write `\"{text}/\"`")));
    }
    Ok(())
}

/// An index entry: looked up inside the folder asked for, and nowhere else.
pub(crate) fn file_name(text: &str) -> Result<(), KeyFault> {
    let plain = !text.is_empty() && text != "." && text != ".." && !text.contains('/');
    if !plain || text.chars().any(char::is_control) || text.len() > FILE_NAME_BYTES_MAX {
        let rule = "an index is the name of a file, without a folder";
        return Err(KeyFault::with_help(rule, "write for example `\"index.html\"`"));
    }
    Ok(())
}

/// A label of SELinux or AppArmor.
pub(crate) fn program_label(text: &str) -> Result<(), KeyFault> {
    let good = |byte: u8| byte.is_ascii_graphic();
    match text.len() {
        1..=255 if text.bytes().all(good) => Ok(()),
        _ => Err(KeyFault::new("a label is 1 to 255 printable characters without blanks")),
    }
}

/// The name of an environment variable.
pub(crate) fn variable(text: &str) -> Result<(), KeyFault> {
    let rule = "a variable's name has only letters, digits and `_`, and no digit first";
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    match text.bytes().next() {
        Some(first) if !first.is_ascii_digit() && text.bytes().all(allowed) => Ok(()),
        _ => Err(KeyFault::new(rule)),
    }
}

/// A string that goes into a system call: it would be cut at a NUL without a word.
pub(crate) fn no_nul(text: &str) -> Result<(), KeyFault> {
    if text.contains('\0') {
        Err(KeyFault::new("it has a NUL byte, where the system would cut it"))
    } else {
        Ok(())
    }
}

/// The path of a file or folder.
pub(crate) fn file_path(text: &str) -> Result<(), KeyFault> {
    if text.is_empty() {
        return Err(KeyFault::with_help("a file path is not empty", "name one, or leave this out"));
    }
    literal(text)?;
    no_nul(text)
}

/// Refuses what a shell would replace: nothing is replaced here, and a file of such a name is hardly what is meant.
pub(crate) fn literal(text: &str) -> Result<(), KeyFault> {
    if text == "~" || text.starts_with("~/") {
        let help = "write the whole path, for example `\"/home/ann/public\"`";
        return Err(KeyFault::with_help("no `~` is replaced in a path", help));
    }
    if let Some(name) = variable_in(text) {
        let help = "write the whole path; only a service's `environment` has variables";
        return Err(KeyFault::with_help(
            format!("no variable is replaced in a path, and this has {name}"),
            help,
        ));
    }
    if text.contains(['*', '?']) || is_choice(text) {
        let help = "name each file or folder by itself; for a folder for each host there is `vhosts`";
        return Err(KeyFault::with_help(
            "a path is one file or folder, and no pattern (`*`, `?`, `{a,b}`)",
            help,
        ));
    }
    Ok(())
}

/// `$NAME`, `${NAME}` or `{$NAME}`, as shells and other servers write variables.
fn variable_in(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('$')?;
    let name: String =
        rest.trim_start_matches('{').chars().take_while(|c| *c == '_' || c.is_ascii_alphanumeric()).collect();
    (!name.is_empty()).then(|| format!("`${name}`"))
}

/// `{a,b}`, as shells write it.
fn is_choice(text: &str) -> bool {
    let inner = text.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
    inner.is_some_and(|(inner, _)| inner.contains(','))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for good in ["a", "0", "blog", "a.b_c-d", &"x".repeat(63)] {
            assert_eq!(name(good), Ok(()), "{good}");
        }
        for bad in ["", "-a", ".a", "..", "Blog", "a b", "a/b", "é", "a\n", &"x".repeat(64)] {
            assert!(name(bad).is_err(), "{bad}");
        }
        assert_eq!(name("My Blog").unwrap_err().help.unwrap(), "write `\"my-blog\"`");
    }

    #[test]
    fn paths() {
        for good in ["/", "/a", "/a/", "/a/b.c", "/~me/", "/a..b", "/.well-known/"] {
            assert_eq!(url_path(good), Ok(()), "{good}");
        }
        for bad in [
            "", "a", "//", "/a//b", "/..", "/../a", "/./", "/a?b", "/a#b", "/%61", "/a b", "/\u{7f}", "/é",
            "/\\",
        ] {
            assert!(url_path(bad).is_err(), "{bad}");
        }
        assert_eq!(site_path("/a/"), Ok(()));
        assert!(site_path("/a").is_err());
    }

    #[test]
    fn files_and_variables() {
        assert_eq!(file_name("index.html"), Ok(()));
        for bad in ["", ".", "..", "a/b", "/a", "a\0", "a\n"] {
            assert!(file_name(bad).is_err(), "{bad}");
        }
        for good in ["a", "/srv/a.b", "/srv/a~", "./~me", "a$", "C++ {1}", "a b", "[x]"] {
            assert_eq!(file_path(good), Ok(()), "{good}");
        }
        for bad in
            ["", "a\0", "~", "~/a", "$HOME/a", "/srv/${NAME}", "{$ROOT}/a", "sites/*", "a?.pem", "/srv/{a,b}"]
        {
            assert!(file_path(bad).is_err(), "{bad}");
        }
        assert_eq!(variable("RUST_LOG"), Ok(()));
        for bad in ["", "1A", "A-B", "A=B", "É"] {
            assert!(variable(bad).is_err(), "{bad}");
        }
    }
}
