//! Paths that a server behind a site names in place of a body: `X-Accel-Redirect` and `X-Sendfile`.
//!
//! Untrusted input: the values of both fields. Must never: lead out of the site, or out of its root directory.

use crate::path::NormalPath;

/// The path in `X-Accel-Redirect`: one of the site, which may have a query that means nothing to a file.
pub fn accel_redirect(value: &[u8]) -> Option<NormalPath<'static>> {
    let text = std::str::from_utf8(value).ok().filter(|text| text.is_ascii() && text.starts_with('/'))?;
    Some(NormalPath::parse(text.split('?').next()?).ok()?.into_owned())
}

/// The path in `X-Sendfile`, one of the file system: the site's path of that file, if it is below the directory `root`.
pub fn sendfile(value: &[u8], root: &str) -> Option<NormalPath<'static>> {
    let rest = value.strip_prefix(root.as_bytes()).filter(|_| !root.is_empty())?;
    NormalPath::of_file(rest.strip_prefix(b"/")?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_below_the_root_is_named() {
        let path = |value: &str| sendfile(value.as_bytes(), "/srv/www").map(|path| path.as_bytes().to_vec());
        assert_eq!(path("/srv/www/a%20b/c"), Some(b"/a%20b/c".to_vec()));
        for value in ["/srv/www", "/srv/www2/a", "/srv/www/../a", "/etc/passwd", "srv/www/a", ""] {
            assert_eq!(path(value), None, "{value}");
        }
        assert_eq!(sendfile(b"/etc/passwd", ""), None);
    }

    #[test]
    fn a_redirect_is_a_path_of_the_site() {
        let path = |value: &str| accel_redirect(value.as_bytes()).map(|path| path.as_bytes().to_vec());
        assert_eq!(path("/a%20b/c?q=1"), Some(b"/a b/c".to_vec()));
        for value in ["", "a", "@name", "http://a/b", "/../a", "/%2e%2e/a", "/\u{e4}"] {
            assert_eq!(path(value), None, "{value}");
        }
    }
}
