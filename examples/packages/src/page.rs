//! What every page of the demo looks like.
//!
//! Runs in: `make-site` and the services. Sees: text of any origin, for which it has no use but to escape it.
//! Never: puts out text that is not escaped.

use std::fmt::Write as _;
use std::fmt::{self, Display};

use bulkhead_service::http::header::ALLOW;
use bulkhead_service::{Method, Request, Response, StatusCode, escape, url_encode};

use crate::catalogue::Package;

/// The look of all pages; `make-site` puts it beside them.
pub const STYLE: &str = include_str!("style.css");

/// The icon of all pages, beside them as well.
pub const ICON: &str = include_str!("favicon.svg");

/// A whole page: `title` and `query`, the text in the search form, are escaped here; `main` is HTML.
pub fn page(title: &str, query: &str, main: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<link rel=\"stylesheet\" href=\"/style.css\">\n\
         <link rel=\"icon\" href=\"/favicon.svg\">\n</head>\n<body>\n\
         <header><a class=\"home\" href=\"/\">Packages</a>{form}<nav><a href=\"/crash\">Crash</a> <a href=\"/breakout\">Breakout</a></nav></header>\n\
         <main>\n<h1>{title}</h1>\n{main}</main>\n\
         <footer>Served by Bulkhead: each part of this site is a process of its own, under its own uid.</footer>\n\
         </body>\n</html>\n",
        title = escape(title),
        form = form(query),
    )
}

/// The search form.
fn form(query: &str) -> String {
    format!(
        "<form action=\"/search\" role=\"search\"><input type=\"search\" name=\"q\" value=\"{}\" \
         placeholder=\"Name or words\" aria-label=\"Search packages\" maxlength=\"200\"><button>Search</button></form>",
        escape(query)
    )
}

/// A link to a package's page.
pub fn link(name: &str) -> String {
    format!("<a href=\"/package/{}\">{}</a>", url_encode(name), escape(name))
}

/// A link to a section's page.
pub fn section_link(section: &str) -> String {
    format!("<a href=\"/sections/{}.html\">{}</a>", url_encode(section), escape(section))
}

/// A table of packages.
pub fn table<'a>(packages: impl Iterator<Item = &'a Package>) -> String {
    let mut rows = String::new();
    for package in packages {
        // Formatting into a String does not fail.
        let _ = writeln!(
            rows,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td class=\"size\">{}</td></tr>",
            link(&package.name),
            escape(&package.summary),
            section_link(&package.section),
            size(package.installed_size_kib),
        );
    }
    format!(
        "<table class=\"packages\">\n<thead><tr><th>Package</th><th>Summary</th><th>Section</th><th class=\"size\">Size</th></tr></thead>\n\
         <tbody>\n{rows}</tbody>\n</table>\n"
    )
}

/// A size for people.
pub fn size(kib: u64) -> impl Display {
    struct Size(u64);
    impl Display for Size {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            match self.0 {
                0..1024 => write!(f, "{} KiB", self.0),
                1024..1_048_576 => write!(f, "{}.{} MiB", self.0 / 1024, self.0 % 1024 * 10 / 1024),
                _ => write!(f, "{}.{} GiB", self.0 / 1_048_576, self.0 % 1_048_576 * 10 / 1_048_576),
            }
        }
    }
    Size(kib)
}

/// The answer to a request that is neither `GET` nor `HEAD`, for services that know nothing else.
pub fn refuse_other_methods(request: &Request) -> Option<Response> {
    let known = [Method::GET, Method::HEAD].contains(request.method());
    (!known).then(|| Response::status_page(StatusCode::METHOD_NOT_ALLOWED).with_header(ALLOW, "GET, HEAD"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stays_text() {
        let attack = "\"><script>alert('x')</script>";
        let page = page(attack, attack, "");
        assert!(!page.contains("<script"), "{page}");
        assert_eq!(page.matches("&quot;&gt;&lt;script&gt;alert(&#39;x&#39;)").count(), 3);
    }

    #[test]
    fn links_are_encoded() {
        assert_eq!(link("g++"), "<a href=\"/package/g%2B%2B\">g++</a>");
        assert_eq!(link("\"<"), "<a href=\"/package/%22%3C\">&quot;&lt;</a>");
    }

    #[test]
    fn a_table_is_escaped() {
        let package = Package {
            name: "a&b".to_owned(),
            section: "<x>".to_owned(),
            summary: "<b>bold</b>".to_owned(),
            ..Package::default()
        };
        let table = table([&package].into_iter());
        assert!(table.contains("<td>&lt;b&gt;bold&lt;/b&gt;</td>"), "{table}");
        assert!(!table.contains("<x>") && !table.contains("<b>"), "{table}");
    }

    #[test]
    fn sizes_are_readable() {
        let sizes = [0, 1023, 1536, 1_048_576 * 5 / 2].map(|kib| size(kib).to_string());
        assert_eq!(sizes, ["0 KiB", "1023 KiB", "1.5 MiB", "2.5 GiB"]);
    }
}
