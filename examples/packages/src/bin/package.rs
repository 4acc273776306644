//! The demo's service `package`: a page for every package.
//!
//! Runs in: its own process under its own uid, inside its jail, where `data` is the only folder it may read.
//! Sees: whole requests of clients, as their connections are handed to it. Never: takes a name from a request
//! for the name of a file.

use std::path::Path;
use std::process::ExitCode;

use bulkhead_service::{Context, Error, Request, Response, Service, StatusCode, escape, url_encode};
use packages::catalogue::{Catalogue, Package};
use packages::page::{link, page, refuse_other_methods, section_link, size};

struct Pages {
    catalogue: Catalogue,
}

impl Service for Pages {
    async fn init(cx: &Context) -> Result<Self, Error> {
        let catalogue = Catalogue::read(Path::new(cx.option("--index")?))?;
        Ok(Self { catalogue })
    }

    async fn process(&self, request: Request) -> Response {
        if let Some(refusal) = refuse_other_methods(&request) {
            return refusal;
        }
        let name = request.path_below("/package/").unwrap_or_default();
        match self.catalogue.find(&name) {
            Some(package) => Response::html(page(&package.name, "", &self.describe(package))),
            None => Response::html(missing(&name)).with_status(StatusCode::NOT_FOUND),
        }
    }
}

impl Pages {
    fn describe(&self, package: &Package) -> String {
        let depends: Vec<_> = package.depends.iter().map(|name| self.dependency(name)).collect();
        let needed_by: Vec<_> =
            self.catalogue.needed_by(&package.name).map(|other| link(&other.name)).collect();
        format!(
            "<p class=\"lead\">{}</p>\n<pre>{}</pre>\n{}{}{}",
            escape(&package.summary),
            escape(&package.description),
            facts(package),
            list("Depends on", &depends),
            list("Needed by", &needed_by),
        )
    }

    /// A dependency; one that is not in the catalogue, such as a virtual package, has no page.
    fn dependency(&self, name: &str) -> String {
        match self.catalogue.find(name) {
            Some(_) => link(name),
            None => escape(name).to_string(),
        }
    }
}

/// What is known of a package, line by line.
fn facts(package: &Package) -> String {
    format!(
        "<dl><dt>Version</dt><dd>{}</dd><dt>Section</dt><dd>{}</dd><dt>Installed size</dt><dd>{}</dd>\
         <dt>Maintainer</dt><dd>{}</dd><dt>Home page</dt><dd>{}</dd></dl>\n",
        escape(&package.version),
        section_link(&package.section),
        size(package.installed_size_kib),
        escape(&package.maintainer),
        homepage(&package.homepage),
    )
}

/// A link to a home page.
///
/// SECURITY: only the web's own schemes become links; `javascript:` would run in our page.
fn homepage(address: &str) -> String {
    let text = escape(address);
    if address.starts_with("https://") || address.starts_with("http://") {
        format!("<a href=\"{text}\" rel=\"noreferrer\">{text}</a>")
    } else {
        text.to_string()
    }
}

/// A list under a heading; `items` are HTML.
fn list(heading: &str, items: &[String]) -> String {
    let count = items.len();
    let items: String = items.iter().map(|item| format!("<li>{item}</li>")).collect();
    let items = if count == 0 { "<li>none</li>".to_owned() } else { items };
    format!("<h2>{heading} ({count})</h2>\n<ul class=\"names\">{items}</ul>\n")
}

fn missing(name: &str) -> String {
    let main = format!(
        "<p class=\"lead\">There is no package <b>{}</b> here.</p>\n<p><a href=\"/search?q={}\">Search for it</a></p>\n",
        escape(name),
        url_encode(name)
    );
    page("No such package", name, &main)
}

fn main() -> ExitCode {
    bulkhead_service::main::<Pages>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(target: &str) -> (StatusCode, String) {
        let package = |name: &str, depends: &[&str]| Package {
            name: name.to_owned(),
            depends: depends.iter().map(|&name| name.to_owned()).collect(),
            description: "<i>".to_owned(),
            homepage: "javascript:alert(1)".to_owned(),
            ..Package::default()
        };
        let catalogue = Catalogue::new(vec![package("g++", &["libc6", "c-compiler"]), package("libc6", &[])]);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let response = Pages { catalogue }.process(Request::get(target)).await;
            (response.status(), response.into_text().await.unwrap())
        })
    }

    #[test]
    fn dependencies_are_links_both_ways() {
        let (status, page) = ask("/package/g%2B%2B");
        assert_eq!(status, StatusCode::OK);
        assert!(
            page.contains("<a href=\"/package/libc6\">") && page.contains("<li>c-compiler</li>"),
            "{page}"
        );
        assert!(ask("/package/libc6").1.contains("<a href=\"/package/g%2B%2B\">g++</a>"));
        assert_eq!(ask("/package/g++").0, StatusCode::OK);
    }

    #[test]
    fn text_stays_text() {
        let (_, page) = ask("/package/libc6");
        assert!(page.contains("<pre>&lt;i&gt;</pre>") && !page.contains("href=\"javascript"), "{page}");
    }

    #[test]
    fn an_unknown_name_is_not_found() {
        for target in
            ["/package/", "/package/..%2f..%2fetc%2fpasswd", "/package/%00", "/package/%3Cscript%3E"]
        {
            let (status, page) = ask(target);
            assert_eq!(status, StatusCode::NOT_FOUND, "{target}");
            assert!(!page.contains("<script"), "{page}");
        }
    }
}
