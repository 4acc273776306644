//! `X-Accel-Redirect` and `X-Sendfile`: whatever a server names, it is a path of the site, and its file is below the
//! root.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path};

use request::path::{ESCAPED_SLASH, NormalPath};
use request::sendfile::{accel_redirect, sendfile};

const ROOT: &str = "/srv/www";

pub fn fuzz(data: &[u8]) {
    if let Some(path) = accel_redirect(data) {
        looks_right(&path);
        assert_eq!(NormalPath::parse(&path.spelling()), Ok(path.clone()));
        // A query means nothing.
        assert_eq!(accel_redirect(&[data, b"?/../x"].concat()), Some(path));
    }
    let value = [ROOT.as_bytes(), data].concat();
    let Some(path) = sendfile(&value, ROOT) else { return };
    looks_right(&path);
    assert_eq!(sendfile(&value, "/srv/ww"), None, "a root ends with a name");
    // The file system would find the same below the root, step by step.
    let below = Path::new(OsStr::from_bytes(&value)).strip_prefix(ROOT).expect("it is below the root");
    let names: Vec<_> = below.components().collect();
    assert!(names.iter().all(|name| matches!(name, Component::Normal(_))));
    let normal = Path::new(OsStr::from_bytes(&path.as_bytes()[1..])).components();
    assert!(normal.eq(names));
}

fn looks_right(path: &NormalPath<'_>) {
    let bytes = path.as_bytes();
    assert!(bytes.starts_with(b"/") && !bytes.windows(2).any(|two| two == b"//"));
    let dots: [&[u8]; 2] = [b".", b".."];
    assert!(!bytes.split(|&byte| byte == b'/').any(|name| dots.contains(&name)));
    // No file has a slash in its name. Backends that take an escaped one for a separator get no such path.
    if bytes.split(|&byte| byte == b'/' || byte == ESCAPED_SLASH).any(|name| name == b"..") {
        assert!(path.readings().is_err());
    }
}
