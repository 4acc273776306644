//! Cookies in a service: only what the service could have issued is a key; values come back as they were set.

use bulkhead_service::{Cookie, Request, Response};

pub fn fuzz(data: &[u8]) {
    bulkhead_service::fuzz_cookie(data);
    // Whatever text a service sets comes back, and brings no attribute.
    let text = String::from_utf8_lossy(data);
    let mut response = Response::text("");
    if response.set_cookie(&Cookie::new("n", &text)).is_err() {
        return;
    }
    let line = response.headers()["set-cookie"].to_str().expect("it is printable");
    let (pair, attributes) = line.split_once("; ").expect("it has attributes");
    assert_eq!(attributes, "Path=/; Secure; HttpOnly; SameSite=Lax");
    let mut request = Request::get("/");
    request.headers_mut().insert("cookie", pair.parse().expect("it is printable"));
    assert_eq!(request.cookie("n").as_deref(), Some(&*text));
}
