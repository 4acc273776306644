//! The demo's service `breakout`: the attacker has won already; this is what they get.
//!
//! Runs in: its own process under its own uid, inside its jail. Sees: requests of clients, of which it only looks
//! at what form they want the answer in. Never: does lasting harm with what it gets.
//!
//! usage: breakout [--hints JSON] [--path /breakout] [--data NAME [--database FILE] [--credential FILE]]
//!
//! The hints are what lies outside of the jail, as `bulkhead-probe` takes it. With `--data` it stands in the place of
//! `search` of examples/matching, and asks the database as well; the files are where the database and the password of a
//! server would be.

mod database;
mod page;

use std::cell::RefCell;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use bulkhead_service::http::header::{ACCEPT, ALLOW, CACHE_CONTROL};
use bulkhead_service::{Bytes, Context, Error, Method, Request, Response, Service, StatusCode};
use probe::hints::ProbedKind;
use probe::score::{self, Score};
use probe::{Hints, ProbeReport};

use database::{Asked, Database};

/// How long what was found is shown before it is looked for again.
///
/// LIMIT: a look takes about a second of one processor, so visitors can make it busy for a sixtieth of the time.
const FRESH: Duration = Duration::from_secs(60);

struct Breakout {
    hints: Hints,
    path: String,
    database: Option<Database>,
    found: RefCell<Option<Found>>,
}

/// What was found, in the three forms in which it is asked for.
struct Found {
    at: Instant,
    html: Bytes,
    json: Bytes,
    text: Bytes,
}

/// The form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Html,
    Json,
    Text,
}

impl Service for Breakout {
    async fn init(cx: &Context) -> Result<Self, Error> {
        let mut hints = cx.option("--hints").map_or_else(|_| Ok(Hints::default()), Hints::parse)?;
        hints.kind = ProbedKind::Service;
        let path = cx.option("--path").unwrap_or("/breakout").to_owned();
        Ok(Self { hints, path, database: Database::new(cx)?, found: RefCell::new(None) })
    }

    async fn process(&self, request: Request) -> Response {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return Response::status_page(StatusCode::METHOD_NOT_ALLOWED).with_header(ALLOW, "GET, HEAD");
        }
        if request.path() != self.path {
            return Response::status_page(StatusCode::NOT_FOUND);
        }
        if request.uri().query() == Some("sweep") {
            return Response::new("application/json", probe::sweep::run().to_string())
                .with_header(CACHE_CONTROL, "no-store");
        }
        self.answer(form(&request)).await.with_header(CACHE_CONTROL, "no-store")
    }
}

impl Breakout {
    /// What was found; looks again if that is too old.
    async fn answer(&self, form: Form) -> Response {
        let is_fresh = |found: &Found| found.at.elapsed() < FRESH;
        if !self.found.borrow().as_ref().is_some_and(is_fresh) {
            let asked = match &self.database {
                Some(database) => Some(database.ask().await),
                None => None,
            };
            *self.found.borrow_mut() = Some(self.look(asked.as_deref()));
        }
        let found = self.found.borrow();
        let Some(found) = found.as_ref() else {
            return Response::status_page(StatusCode::INTERNAL_SERVER_ERROR);
        };
        match form {
            Form::Html => Response::html(found.html.clone()),
            Form::Json => Response::new("application/json", found.json.clone()),
            Form::Text => Response::text(found.text.clone()),
        }
    }

    fn look(&self, asked: Option<&[Asked]>) -> Found {
        let hints = Hints { fds: probe::given_descriptors(), ..self.hints.clone() };
        let report = probe::attempts(&hints);
        let score = score::from_report(&report);
        Found {
            at: Instant::now(),
            html: page::html(&report, &score, asked).into(),
            json: json(&report, &score, asked).into(),
            text: page::text(&report, &score, asked).into(),
        }
    }
}

fn json(report: &ProbeReport, score: &Score, asked: Option<&[Asked]>) -> String {
    let mut json = report.to_json();
    json["score"] = score.to_json();
    if let Some(asked) = asked {
        json["database"] = database::json(asked);
    }
    json.to_string()
}

/// `?json` and `?text` say it; else the first of the two types that `Accept` has.
fn form(request: &Request) -> Form {
    match request.uri().query() {
        Some("json") => return Form::Json,
        Some("text") => return Form::Text,
        _ => {}
    }
    let accept = request.headers().get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let types = accept.split(',').map(|part| part.split(';').next().unwrap_or_default().trim());
    let known = |name: &str| match name {
        "text/html" => Some(Form::Html),
        "application/json" => Some(Form::Json),
        "text/plain" => Some(Form::Text),
        _ => None,
    };
    types.filter_map(known).next().unwrap_or(Form::Html)
}

fn main() -> ExitCode {
    bulkhead_service::main::<Breakout>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(requests: Vec<Request>) -> Vec<(StatusCode, String)> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            // Only a few attempts: here they would succeed beside other tests.
            let few = r#"{"only":["umask","sweep","mount"],"inline":true}"#;
            let breakout = Breakout::init(&Context::for_test(&["--hints", few])).await.unwrap();
            let mut answers = Vec::new();
            for request in requests {
                let response = breakout.process(request).await;
                let status = response.status();
                answers.push((status, response.into_text().await.unwrap()));
            }
            answers
        })
    }

    #[test]
    fn three_forms_of_one_look() {
        let answers = ask(vec![
            Request::get("/breakout"),
            Request::get("/breakout?json"),
            Request::get("/breakout?text"),
            Request::get("/breakout/else"),
        ]);
        assert!(answers[0].1.starts_with("<!doctype html>"), "{}", answers[0].1);
        let json: serde_json::Value = serde_json::from_str(&answers[1].1).unwrap();
        assert_eq!(json["summary"]["attempts"], 3);
        assert_eq!(json["kind"], "service");
        assert_eq!(json["score"]["checks"].as_array().unwrap().len(), 81);
        assert!(answers[2].1.contains("umask"), "{}", answers[2].1);
        assert_eq!(answers[3].0, StatusCode::NOT_FOUND);
    }

    #[test]
    fn the_form_is_what_was_asked_for() {
        let with = |accept: &'static str| {
            let mut request = Request::get("/breakout");
            request.headers_mut().insert(ACCEPT, accept.parse().unwrap());
            form(&request)
        };
        assert_eq!(with("application/json"), Form::Json);
        assert_eq!(with("text/html,application/xhtml+xml,*/*;q=0.8"), Form::Html);
        assert_eq!(with("text/plain;q=0.5"), Form::Text);
        assert_eq!(with("*/*"), Form::Html);
    }
}
