//! The demo's service `search`: full-text search in the list of packages.
//!
//! Runs in: its own process under its own uid, inside its jail, where `data` is the only folder it may read.
//! Sees: queries that clients made up. Never: puts a query out without escaping it.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use bulkhead_service::{Context, Error, Level, Request, Response, Service, escape, url_encode};
use packages::catalogue::{Catalogue, Package};
use packages::page::{page, refuse_other_methods, table};
use packages::rank::{Hit, Index};

/// How many hits a page shows.
const PAGE: usize = 50;

struct Search {
    catalogue: Catalogue,
    index: Index,
}

/// One page of an answer.
struct Answer<'a> {
    query: &'a str,
    hits: Vec<Hit>,
    /// From 1 on.
    page: usize,
    took: Duration,
}

impl Service for Search {
    async fn init(cx: &Context) -> Result<Self, Error> {
        let catalogue = Catalogue::read(Path::new(cx.option("--index")?))?;
        let index = Index::new(catalogue.packages());
        let (packages, words) = (catalogue.packages().len(), index.words());
        cx.event(Level::Info, format_args!("indexed {words} words of {packages} packages"));
        Ok(Self { catalogue, index })
    }

    async fn process(&self, request: Request) -> Response {
        if let Some(refusal) = refuse_other_methods(&request) {
            return refusal;
        }
        // Raw: people look for `g++ (compiler)`, and every output is escaped.
        let query = request.raw_param("q").unwrap_or_default();
        let page = request.optional_param_as("page").ok().flatten();
        let answer = self.answer(query.trim(), page.unwrap_or(1));
        match request.param("format").as_deref() {
            Some("json") => Response::json(&self.json(&answer)),
            _ => Response::html(self.html(&answer)),
        }
    }
}

impl Search {
    fn answer<'a>(&self, query: &'a str, page: usize) -> Answer<'a> {
        let start = Instant::now();
        let hits = self.index.search(query);
        let took = start.elapsed();
        let page = page.clamp(1, pages(hits.len()));
        Answer { query, hits, page, took }
    }

    /// The hits of the answer's page.
    fn shown<'a>(&'a self, answer: &'a Answer<'_>) -> impl Iterator<Item = (&'a Package, u32)> {
        let hits = answer.hits.iter().skip((answer.page - 1) * PAGE).take(PAGE);
        hits.filter_map(|hit| Some((self.catalogue.packages().get(hit.package)?, hit.score)))
    }

    fn html(&self, answer: &Answer<'_>) -> String {
        if answer.query.is_empty() {
            let note = "<p class=\"lead\">Names, summaries and descriptions are searched for all of your words.</p>\n";
            return page("Search packages", "", note);
        }
        let mut main = format!(
            "<p class=\"lead\">{} for <b>{}</b>, found in {} µs.</p>\n",
            count(answer.hits.len()),
            escape(answer.query),
            answer.took.as_micros()
        );
        if !answer.hits.is_empty() {
            main += &table(self.shown(answer).map(|(package, _)| package));
            main += &neighbours(answer);
        }
        page("Search packages", answer.query, &main)
    }

    fn json(&self, answer: &Answer<'_>) -> serde_json::Value {
        let found = self.shown(answer).map(|(package, score)| {
            serde_json::json!({
                "name": package.name,
                "version": package.version,
                "section": package.section,
                "summary": package.summary,
                "score": score,
            })
        });
        serde_json::json!({
            "query": answer.query,
            "hits": answer.hits.len(),
            "page": answer.page,
            "pages": pages(answer.hits.len()),
            "took_us": u64::try_from(answer.took.as_micros()).unwrap_or(u64::MAX),
            "packages": found.collect::<Vec<_>>(),
        })
    }
}

/// How many pages there are for so many hits; at least one.
fn pages(hits: usize) -> usize {
    hits.div_ceil(PAGE).max(1)
}

fn count(hits: usize) -> String {
    match hits {
        0 => "No hits".to_owned(),
        1 => "1 hit".to_owned(),
        _ => format!("{hits} hits"),
    }
}

/// The links to the page before and the page after.
fn neighbours(answer: &Answer<'_>) -> String {
    let pages = pages(answer.hits.len());
    let link = |page: usize, text: &str| {
        if (1..=pages).contains(&page) {
            format!("<a href=\"/search?q={}&amp;page={page}\">{text}</a>", url_encode(answer.query))
        } else {
            "<span></span>".to_owned()
        }
    };
    let mut text = "<p class=\"pages\">".to_owned();
    let (before, after) = (link(answer.page - 1, "← before"), link(answer.page + 1, "after →"));
    // Formatting into a String does not fail.
    let _ = writeln!(text, "{before}<span>Page {} of {pages}</span>{after}</p>", answer.page);
    text
}

fn main() -> ExitCode {
    bulkhead_service::main::<Search>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(target: &str) -> String {
        let packages = (0..120).map(|number| Package {
            name: format!("web{number}"),
            summary: "a <b>server</b>".to_owned(),
            ..Package::default()
        });
        let catalogue = Catalogue::new(packages.collect());
        let index = Index::new(catalogue.packages());
        let search = Search { catalogue, index };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let response = search.process(Request::get(target)).await;
            response.into_text().await.unwrap()
        })
    }

    #[test]
    fn hits_come_in_pages() {
        let page = ask("/search?q=server&page=3");
        assert!(page.contains("120 hits"), "{page}");
        assert!(page.contains("Page 3 of 3"));
        assert!(page.contains(">web119<") && !page.contains(">web99<"));
        for nonsense in ["0", "99", "-1", "x", "18446744073709551615"] {
            assert!(ask(&format!("/search?q=server&page={nonsense}")).contains("120 hits"));
        }
    }

    #[test]
    fn no_query_is_just_the_form() {
        let page = ask("/search?q=+");
        assert!(page.contains("name=\"q\" value=\"\"") && !page.contains("<table>"));
    }

    #[test]
    fn a_query_takes_no_part_in_the_page() {
        let page = ask("/search?q=%22%3E%3Cscript%3Ealert(1)%3C/script%3E");
        assert!(!page.contains("<script"), "{page}");
        assert!(page.contains("&quot;&gt;&lt;script&gt;"));
    }

    #[test]
    fn programs_get_json() {
        let json: serde_json::Value = serde_json::from_str(&ask("/search?q=web7&format=json")).unwrap();
        assert_eq!(json["packages"][0]["name"], "web7");
        assert_eq!(json["hits"], 11);
        assert_eq!(json["pages"], 1);
    }
}
