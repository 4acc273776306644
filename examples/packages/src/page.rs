//! What a page of the demo looks like, whoever makes it.
//!
//! Runs in: the generator and the services' workers. Sees: text of any origin, to be escaped. Never: puts out
//! text as markup.

use std::fmt::Write as _;

use bulkhead_service::{escape, url_encode};

use crate::Package;

/// A whole page around `body`, which is HTML; `query` is what the search field shows.
pub fn page(title: &str, query: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=en>\n<head>\n<meta charset=utf-8>\n\
         <meta name=viewport content=\"width=device-width,initial-scale=1\">\n\
         <title>{title} · Packages</title>\n<link rel=stylesheet href=/style.css>\n</head>\n<body>\n\
         <header><nav><a class=brand href=/>Packages</a>\n\
         <form action=/search role=search><input type=search name=q value=\"{query}\" \
         placeholder=\"Search packages\" aria-label=\"Search packages\"><button>Search</button></form>\n\
         <a href=/crash>Crash</a></nav></header>\n<main>\n{body}</main>\n\
         <footer>Served by Bulkhead: every site and every service is a process with a uid of its own.</footer>\n\
         </body>\n</html>\n",
        title = escape(title),
        query = escape(query),
    )
}

/// A link to a package's page.
pub fn link(name: &str) -> String {
    format!("<a href=\"/package/{}\">{}</a>", url_encode(name), escape(name))
}

/// The name of a section's file, which also is the last part of its address.
pub fn section_file(section: &str) -> String {
    let safe = |c: char| {
        if c.is_ascii_alphanumeric() || "-_.".contains(c) {
            c
        } else {
            '-'
        }
    };
    let name: String = section.chars().map(safe).collect();
    format!("{}.html", name.trim_start_matches('.'))
}

/// A link to a section's page.
pub fn section_link(section: &str) -> String {
    format!(
        "<a href=\"/sections/{}\">{}</a>",
        section_file(section),
        escape(section)
    )
}

/// A size as people say it.
pub fn size(kib: u64) -> String {
    match kib {
        0..1024 => format!("{kib} KiB"),
        1024..1_048_576 => format!("{:.1} MiB", kib as f64 / 1024.0),
        _ => format!("{:.1} GiB", kib as f64 / 1_048_576.0),
    }
}

/// A table of packages.
pub fn table<'a>(packages: impl IntoIterator<Item = &'a Package>) -> String {
    let mut out = String::from(
        "<div class=scroll><table><thead><tr><th>Package<th>What it is<th>Section<th class=number>Size</thead>\n<tbody>\n",
    );
    for package in packages {
        let _ = writeln!(
            out,
            "<tr><td>{}<td>{}<td>{}<td class=number>{}",
            link(&package.name),
            escape(&package.summary),
            section_link(&package.section),
            size(package.installed_kib)
        );
    }
    out + "</tbody></table></div>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_becomes_markup() {
        let page = page("<b>", "\"><script>", "");
        assert!(!page.contains("<b>") && !page.contains("<script>"), "{page}");
        assert_eq!(link("g++"), "<a href=\"/package/g%2B%2B\">g++</a>");
        assert_eq!(section_file("../x/y"), "-x-y.html");
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(size(12), "12 KiB");
        assert_eq!(size(2048), "2.0 MiB");
        assert_eq!(size(3 << 20), "3.0 GiB");
    }
}
