//! The target of a request down to a service: its path as the site compares it, and as the service decodes it.

use bulkhead_service::{Params, Request, url_encode};
use request::path::NormalPath;
use request::target::split;

pub fn fuzz(data: &[u8]) {
    let Ok(target) = std::str::from_utf8(data) else { return };
    let segment = url_encode(target).to_string();
    let request = Request::get(&format!("/p/{segment}?{segment}={segment}"));
    assert_eq!(request.path_below("/p/").as_deref(), Some(target));
    let pairs: Vec<_> = Params::parse(&format!("{segment}={segment}")).iter_raw().map(|(a, b)| (a.to_owned(), b.to_owned())).collect();
    assert_eq!(pairs, [(target.to_owned(), target.to_owned())]);
    let is_name = !target.is_empty() && !target.contains(['/', '\0']) && target != "." && target != "..";
    if is_name {
        let path = format!("/{segment}");
        assert_eq!(NormalPath::parse(&path).map(|path| path.as_bytes()[1..].to_vec()), Ok(target.as_bytes().to_vec()));
    }
    // What a gate takes for a target, a service reads the same.
    if let Ok(read) = split("GET", target)
        && let Ok(uri) = target.parse::<http::Uri>()
        && target.starts_with('/')
    {
        assert_eq!(uri.path(), read.path);
    }
}
