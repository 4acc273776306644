//! Listings of folders, where the operator wants them.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: names of files, which anybody may have chosen, and
//! `Accept`. Must never: show a hidden name, or let a name be more than text.

use std::borrow::Cow;
use std::fmt::Write;

use http::header::{self, HeaderMap, HeaderValue};
use http::{Response, StatusCode};
use request::date;
use request::path::{NormalPath, escape as encode_name};
use rustix::fs::{AtFlags, Dir, FileType};
use serde::Serialize;

use crate::files::RootFiles;
use crate::http::body::ResponseBody;
use crate::http::response;

/// LIMIT: entries of a listing; nobody reads more, and each costs a system call.
const ENTRIES_MAX: usize = 5000;

/// One line.
struct ListingRow {
    name: Vec<u8>,
    folder: bool,
    size: u64,
    modified: u64,
}

/// The listing of the folder at a path; `None` if there is no such folder.
pub(crate) fn answer(
    files: &RootFiles,
    path: &NormalPath<'_>,
    headers: &HeaderMap,
) -> Option<Response<ResponseBody>> {
    let folder = files.folder(files.names().relative(path).filter(|_| path.is_folder())?)?;
    let lines = read(folder)?;
    let json = wants_json(headers);
    let (media, text) = match json {
        true => ("application/json", as_json(&lines)?),
        false => {
            let path = String::from_utf8_lossy(&path.as_bytes()[1..]);
            ("text/html; charset=utf-8", as_html(&path, &lines))
        }
    };
    let mut response = response::empty(StatusCode::OK);
    *response.body_mut() = ResponseBody::Full(text.into());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(header::VARY, HeaderValue::from_static("Accept"));
    Some(response)
}

fn read(folder: std::os::fd::OwnedFd) -> Option<Vec<ListingRow>> {
    let mut lines = Vec::new();
    // Not `read_from`, which would open the folder again, by a path.
    let names = Dir::new(folder.try_clone().ok()?).ok()?;
    for entry in names.take(ENTRIES_MAX) {
        let Ok(entry) = entry else { break };
        let name = entry.file_name().to_bytes();
        if name.starts_with(b".") {
            continue;
        }
        let Ok(stat) = rustix::fs::statat(&folder, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) else {
            continue;
        };
        let kind = FileType::from_raw_mode(stat.st_mode);
        if !matches!(kind, FileType::RegularFile | FileType::Directory) {
            continue;
        }
        lines.push(ListingRow {
            name: name.to_vec(),
            folder: kind == FileType::Directory,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            modified: u64::try_from(stat.st_mtime).unwrap_or(0),
        });
    }
    lines.sort_by(|a, b| (!a.folder, &a.name).cmp(&(!b.folder, &b.name)));
    Some(lines)
}

/// Whether JSON is asked for before HTML; browsers never ask for it.
fn wants_json(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).map(HeaderValue::as_bytes).unwrap_or_default();
    let place = |media: &[u8]| {
        let mut names = accept.split(|byte| *byte == b',');
        names.position(|one| {
            one.split(|byte| *byte == b';')
                .next()
                .unwrap_or_default()
                .trim_ascii()
                .eq_ignore_ascii_case(media)
        })
    };
    match (place(b"application/json"), place(b"text/html")) {
        (Some(json), Some(html)) => json < html,
        (json, _) => json.is_some(),
    }
}

fn as_html(path: &str, lines: &[ListingRow]) -> String {
    let mut title = String::from("/");
    escape(&mut title, path);
    let mut out = format!(
        "<!doctype html>\n<meta charset=\"utf-8\">\n<title>{title}</title>\n<h1>{title}</h1>\n<table>\n"
    );
    if !path.is_empty() {
        out.push_str("<tr><td><a href=\"../\">../</a></td><td></td><td></td></tr>\n");
    }
    for line in lines {
        let slash = if line.folder { "/" } else { "" };
        let _ = write!(out, "<tr><td><a href=\"{}\">", line.href().replace('&', "&amp;"));
        escape(&mut out, &String::from_utf8_lossy(&line.name));
        let date = date::date(line.modified);
        let date = String::from_utf8_lossy(&date);
        let size = if line.folder { String::new() } else { line.size.to_string() };
        let _ = writeln!(out, "{slash}</a></td><td>{size}</td><td>{date}</td></tr>");
    }
    out.push_str("</table>\n");
    out
}

fn escape(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
}

/// A line as JSON has it.
#[derive(Serialize)]
struct JsonRow<'l> {
    /// For people: bytes that are no UTF-8 are replaced, so that two names may be the same here.
    name: Cow<'l, str>,
    /// Where it is, relative to the folder, whatever its name.
    href: String,
    kind: &'static str,
    size: u64,
    modified: u64,
}

impl ListingRow {
    fn href(&self) -> String {
        let slash = if self.folder { "/" } else { "" };
        // A colon in the first segment of a relative reference would be a scheme (RFC 3986 4.2).
        format!("./{}{slash}", encode_name(&self.name))
    }

    fn entry(&self) -> JsonRow<'_> {
        JsonRow {
            name: String::from_utf8_lossy(&self.name),
            href: self.href(),
            kind: if self.folder { "folder" } else { "file" },
            size: self.size,
            modified: self.modified,
        }
    }
}

fn as_json(lines: &[ListingRow]) -> Option<String> {
    let entries: Vec<_> = lines.iter().map(ListingRow::entry).collect();
    serde_json::to_string(&entries).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &str) -> ListingRow {
        ListingRow { name: name.into(), folder: false, size: 7, modified: 0 }
    }

    #[test]
    fn names_stay_text() {
        let nasty = "<script>alert('1')</script>&\"\\\n.txt";
        let html = as_html("a\"><b>", &[line(nasty), line("javascript:x")]);
        assert!(!html.contains("<script") && !html.contains("\"><b>") && !html.contains("&\""), "{html}");
        assert!(html.contains("href=\"./%3Cscript%3E") && html.contains("href=\"./javascript:x\""), "{html}");
        let json = as_json(&[line(nasty), line("b")]).unwrap();
        let found: Vec<serde_json::Value> = serde_json::from_str(&json).unwrap();
        assert_eq!((found.len(), &found[0]["name"], &found[1]["name"]), (2, &nasty.into(), &"b".into()));
    }

    /// The bytes that a relative reference stands for.
    fn decoded(href: &str) -> Vec<u8> {
        let mut parts = href.strip_prefix("./").unwrap().split('%');
        let mut out = parts.next().unwrap().as_bytes().to_vec();
        for part in parts {
            out.push(u8::from_str_radix(&part[..2], 16).unwrap());
            out.extend(&part.as_bytes()[2..]);
        }
        out
    }

    #[test]
    fn json_is_json_and_leads_to_the_file_whatever_its_name() {
        let bytes = (1..=255u8).filter(|byte| *byte != b'/');
        let alone = bytes.clone().map(|byte| vec![byte]);
        let amid = bytes.map(|byte| vec![b'a', byte, b'\\', 0xe2, 0x80, 0xa8, byte, b'"']);
        for name in alone.chain(amid) {
            let line = ListingRow { name: name.clone(), folder: false, size: 7, modified: 0 };
            let json = as_json(&[line]).unwrap();
            let found: Vec<serde_json::Value> = serde_json::from_str(&json).unwrap();
            assert_eq!(found[0]["name"], *String::from_utf8_lossy(&name), "{name:?}");
            let href = found[0]["href"].as_str().unwrap();
            assert!(href.is_ascii() && !href.contains([' ', '"', '<', '>', '?', '#', '\\']), "{href}");
            assert_eq!(decoded(href), name, "{href}");
        }
    }

    #[test]
    fn json_is_for_who_asks() {
        let asked = |accept: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
            wants_json(&headers)
        };
        assert!(asked("application/json") && asked("application/json;q=0.9, text/html"));
        assert!(
            !asked("text/html,application/xhtml+xml,*/*")
                && !asked("*/*")
                && !asked("text/html, application/json")
        );
    }
}
