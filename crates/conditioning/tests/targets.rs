//! The first line of a head, at its limits and around them.

use conditioning::checks::{HeadFault, Setting, check};

fn found(line: &str, setting: Setting) -> Option<HeadFault> {
    check(format!("{line}\r\nHost: a.test\r\n\r\n").as_bytes(), setting).err()
}

/// docs/guide/conditioning.md has the numbers.
#[test]
fn a_method_has_a_longest_length() {
    for (setting, most) in [(Setting::Strict, 16), (Setting::Lenient, 32)] {
        let line = |count| format!("{} / HTTP/1.1", "M".repeat(count));
        assert_eq!(found(&line(most), setting), None);
        assert_eq!(found(&line(most + 1), setting), Some(HeadFault::Method));
    }
}

#[test]
fn slashes_of_an_absolute_target_are_counted_from_its_path_on() {
    let line = |authority: &str, slashes| format!("GET http://{authority}{} HTTP/1.1", "/".repeat(slashes));
    for authority in ["a", "a.test", "a-very-long-name.test:8080"] {
        assert_eq!(found(&line(authority, 3), Setting::Strict), None, "{authority}");
        assert_eq!(found(&line(authority, 4), Setting::Strict), Some(HeadFault::Slashes), "{authority}");
    }
    assert_eq!(found("GET http://a.test HTTP/1.1", Setting::Strict), None);
    assert_eq!(found("GET http:// HTTP/1.1", Setting::Strict), None, "no path, no slashes");
}

#[test]
fn a_request_line_has_three_words() {
    for line in ["GET /", "GET  / HTTP/1.1", "GET / HTTP/1.1 x", " / HTTP/1.1", "GET / FTP/1.1", "GET"] {
        assert_eq!(found(line, Setting::Lenient), Some(HeadFault::Shape), "{line}");
    }
}
