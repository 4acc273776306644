use super::*;

fn map(lines: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        headers.append(name, HeaderValue::from_str(value).unwrap());
    }
    headers
}

fn names(headers: &HeaderMap) -> Vec<&str> {
    let mut names: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
    names.sort_unstable();
    names
}

#[test]
fn the_documentation_has_the_table() {
    let mut table =
        String::from("| of a request, this is not passed on | names | because |\n| --- | --- | --- |\n");
    for Withheld { what, names, families, why } in &WITHHELD {
        let names = names.iter().map(|name| format!("`{name}`"));
        let families = families.iter().map(|family| format!("`{family}*`"));
        let all: Vec<String> = names.chain(families).collect();
        table += &format!("| {what} | {} | {why} |\n", all.join(", "));
    }
    let page = include_str!("../../../../docs/guide/proxy.md");
    assert!(page.contains(&table), "docs/guide/proxy.md has another table than\n{table}");
}

#[test]
fn every_name_of_the_table_is_withheld_and_no_other() {
    for withheld in &WITHHELD {
        let families = withheld.families.iter().map(|family| format!("{family}anything"));
        for name in withheld.names.iter().map(ToString::to_string).chain(families) {
            assert!(!is_passed_on(name.to_uppercase().as_bytes()), "{name}");
            let mut headers = map(&[(&name, "6.6.6.6")]);
            clean_request(&mut headers);
            assert!(headers.is_empty(), "{name}");
        }
    }
    let own = [
        "accept",
        "authorization",
        "content-length",
        "cookie",
        "host",
        "origin",
        "range",
        "traceparent",
        "via",
        "x-client-version",
        "x-http-method-override",
        "x-request-id",
        "x-requested-with",
    ];
    let lines: Vec<(&str, &str)> = own.iter().map(|name| (*name, "1")).collect();
    let mut headers = map(&lines);
    headers.insert("x_real_ip", HeaderValue::from_static("1"));
    clean_request(&mut headers);
    assert_eq!(names(&headers), own);
}

#[test]
fn a_connection_takes_its_own_with_it_but_no_framing() {
    let lines = [
        ("connection", "close, x-own, content-length"),
        ("connection", "host,x-too"),
        ("x-own", "1"),
        ("x-too", "1"),
        ("content-length", "3"),
        ("host", "a"),
        ("transfer-encoding", "chunked"),
        ("keep-alive", "5"),
        ("accept", "*/*"),
    ];
    let mut headers = map(&lines);
    clean_request(&mut headers);
    assert_eq!(names(&headers), ["accept", "content-length", "host"]);
    let mut headers = map(&lines);
    clean_answer(&mut headers);
    assert_eq!(names(&headers), ["accept", "content-length", "host"]);
    clean_trailers(&mut headers);
    assert_eq!(names(&headers), ["accept"]);
}

#[test]
fn what_a_server_says_to_its_proxy_does_not_reach_a_client() {
    let mut headers = map(&[
        ("x-accel-expires", "1"),
        ("x-sendfile", "/etc/passwd"),
        ("bulkhead-client", "1"),
        ("etag", "x"),
    ]);
    clean_answer(&mut headers);
    assert_eq!(names(&headers), ["etag"]);
}

#[test]
fn an_origin_is_said_once() {
    let mut headers = map(&[("host", "a.example")]);
    let origin = ForwardedOrigin { peer: "[::ffff:192.0.2.7]:4000".parse().unwrap(), scheme: "https" };
    set_forwarded(&mut headers, origin, Some(HeaderValue::from_static("a.example")));
    assert_eq!(headers["forwarded"], "for=192.0.2.7;proto=https;host=\"a.example\"");
    assert_eq!(headers["x-forwarded-for"], "192.0.2.7");
    assert_eq!(headers["x-forwarded-host"], "a.example");
    assert_eq!(headers["x-forwarded-proto"], "https");
    let mut lines = Vec::new();
    push_forwarded_lines(&mut lines, origin, b"a.example");
    let of_map: String = ["forwarded", "x-forwarded-for", "x-forwarded-proto", "x-forwarded-host"]
        .iter()
        .map(|name| format!("{name}: {}\r\n", headers[*name].to_str().unwrap()))
        .collect();
    assert_eq!(String::from_utf8(lines).unwrap(), of_map);
    let origin = ForwardedOrigin { peer: "[2001:db8::1]:9".parse().unwrap(), scheme: "http" };
    set_forwarded(&mut headers, origin, None);
    assert_eq!(headers["forwarded"], "for=\"[2001:db8::1]\";proto=http");
}

#[test]
fn a_host_that_could_end_its_quotes_is_left_out() {
    let origin = ForwardedOrigin { peer: "192.0.2.7:4000".parse().unwrap(), scheme: "http" };
    for host in [&b""[..], b"a\"b", b"a\\b", b"a\x80b"] {
        let mut value = Vec::new();
        push_forwarded(&mut value, origin, host);
        assert_eq!(value, b"for=192.0.2.7;proto=http", "{host:?}");
    }
}

#[test]
fn a_target_with_a_host_becomes_a_path_and_its_host_counts() {
    let mut request = Request::get("https://b.example/x?y").header("host", "other.example").body(()).unwrap();
    assert_eq!(settle_host(&mut request).unwrap(), "b.example");
    assert_eq!(
        (request.uri().to_string(), &request.headers()["host"]),
        ("/x?y".into(), &HeaderValue::from_static("b.example"))
    );
    let mut request = Request::get("/x").body(()).unwrap();
    assert_eq!(settle_host(&mut request), None);
}
