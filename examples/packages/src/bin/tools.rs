//! A service for the tests: what the SDK does for web services, one path for each.
//!
//! Runs in: its own process under its own uid, inside its jail; it is no part of the demo. Sees: what tests send.
//! Never: asks for a privilege.

use std::process::ExitCode;
use std::time::Duration;

use bulkhead_service::{
    Context, Cookie, Error, Event, Files, Level, RateLimit, Request, Response, Service, Sessions, StatusCode,
    html,
};

struct Tools {
    cx: Context,
    sessions: Sessions<String>,
    limit: RateLimit,
    /// None without `files = true`.
    files: Option<Files>,
}

impl Service for Tools {
    async fn init(cx: &Context) -> Result<Self, Error> {
        Ok(Self {
            cx: cx.clone(),
            sessions: cx.sessions("tools", "/tools")?,
            limit: RateLimit::per_minute(2),
            files: cx.files().ok(),
        })
    }

    async fn process(&self, mut request: Request) -> Response {
        self.answer(&mut request).await.unwrap_or_else(|refusal| refusal)
    }
}

impl Tools {
    async fn answer(&self, request: &mut Request) -> Result<Response, Response> {
        match request.path() {
            "/tools/query" => query(request),
            "/tools/form" => form(request).await,
            "/tools/upload" => upload(request).await,
            "/tools/redirect" => Ok(Response::see_other(&request.raw_param("to").unwrap_or_default())),
            "/tools/save" => self.save(request).await,
            "/tools/saved" => self.saved(request).await,
            "/tools/events" => Ok(self.events(request)),
            "/tools/stream" => Ok(stream(request.param_as("lines")?)),
            "/tools/json" => Ok(Response::json(&request.json::<Vec<i64>>().await?.iter().sum::<i64>())),
            "/tools/later" => Ok(self.later(request.param_as("ms")?)),
            "/tools/limited" => self.limited(request),
            "/tools/within" => within(request).await,
            "/tools/cookie" => cookie(request),
            "/tools/account" if request.method() == "POST" => self.log_in(request).await,
            "/tools/account" => self.account(request),
            "/tools/leave" => self.leave(request),
            _ => Err(Response::status_page(StatusCode::NOT_FOUND)),
        }
    }
}

impl Tools {
    /// Counts from where the client was, with so many milliseconds between two events.
    fn events(&self, request: &Request) -> Response {
        let first = request.last_event_id().and_then(|id| id.parse().ok()).map_or(0, |id: u64| id + 1);
        let pause = Duration::from_millis(request.param_as("ms").unwrap_or(10));
        let cx = self.cx.clone();
        Response::events(&self.cx, move |events| async move {
            let told = Told(cx);
            for number in first..first.saturating_add(1_000_000) {
                events.send(&Event::data(format!("event {number}")).id(&number.to_string())).await;
                tokio::time::sleep(pause).await;
            }
            drop(told);
        })
    }

    fn files(&self) -> Result<&Files, Response> {
        self.files
            .as_ref()
            .ok_or_else(|| Response::text("no files\n").with_status(StatusCode::NOT_IMPLEMENTED))
    }

    /// Keeps each file, and says what it is called.
    async fn save(&self, request: &mut Request) -> Result<Response, Response> {
        let files = self.files()?;
        let mut parts = request.multipart()?;
        let mut names = Vec::new();
        while let Some(mut part) = parts.next().await? {
            names.push(part.save(files, 1 << 20).await?.name);
        }
        Ok(Response::json(&names))
    }

    async fn saved(&self, request: &Request) -> Result<Response, Response> {
        let content = self.files()?.read(&request.raw_param("name").unwrap_or_default()).await;
        let content = content.map_err(|_| Response::status_page(StatusCode::NOT_FOUND))?;
        Ok(Response::new("application/octet-stream", content))
    }

    fn limited(&self, request: &Request) -> Result<Response, Response> {
        match request.param("key") {
            Some(key) => self.limit.check_key(&key)?,
            None => self.limit.check(request)?,
        }
        Ok(Response::text("go on\n"))
    }

    /// Says something in the log after so many milliseconds, and when the worker retires.
    fn later(&self, ms: u64) -> Response {
        let cx = self.cx.clone();
        self.cx.spawn(async move {
            cx.drained().await;
            tokio::time::sleep(Duration::from_millis(ms)).await;
            cx.event(Level::Info, "this was done later");
        });
        self.cx.spawn_until_drained(std::future::pending());
        Response::text("it will be done\n")
    }
}

/// Says that what sends events has gone.
struct Told(Context);

impl Drop for Told {
    fn drop(&mut self) {
        self.0.event(Level::Info, "nobody listens any more");
    }
}

fn stream(lines: u64) -> Response {
    Response::stream("text/plain; charset=utf-8", move |writer| async move {
        for line in 0..lines {
            writer.write(format!("line {line}\n")).await;
        }
        if lines == 13 { Err("thirteen lines are not to be".into()) } else { Ok(()) }
    })
}

async fn within(request: &Request) -> Result<Response, Response> {
    let limit = Duration::from_millis(request.param_as("limit")?);
    let work = tokio::time::sleep(Duration::from_millis(request.param_as("work")?));
    request.within(limit, work).await?;
    Ok(Response::text("in time\n"))
}

impl Tools {
    fn account(&self, request: &Request) -> Result<Response, Response> {
        let mut session = self.sessions.of(request);
        let (name, field) = (session.get().cloned(), session.csrf_field()?);
        let page =
            html!("<p>{}<form method=post action=\"/tools/account\">{}<input name=name></form>", name, field);
        Ok(session.save(Response::html(page))?)
    }

    async fn log_in(&self, request: &mut Request) -> Result<Response, Response> {
        let form = request.form().await?;
        let mut session = self.sessions.of(request);
        session.check(request, &form)?;
        session.log_in(form.get_as("name")?);
        Ok(session.save(Response::see_other("/tools/account"))?)
    }

    fn leave(&self, request: &Request) -> Result<Response, Response> {
        let mut session = self.sessions.of(request);
        session.check_header(request)?;
        session.log_out();
        Ok(session.save(Response::text("bye\n"))?)
    }
}

/// Says what was in the cookie, and puts in what is asked for.
fn cookie(request: &Request) -> Result<Response, Response> {
    let mut response = Response::text(format!("{:?}\n", request.cookie("word")));
    match request.raw_param("set") {
        Some(word) => response.set_cookie(&Cookie::new("word", &word).path("/tools"))?,
        None => response.remove_cookie("word", "/tools")?,
    }
    Ok(response)
}

fn query(request: &Request) -> Result<Response, Response> {
    let id: i64 = request.param_as("id")?;
    let (filtered, raw) = (request.param("q"), request.raw_param("q"));
    Ok(Response::html(html!("<p title=\"{}\">{} {}", raw, id, filtered)))
}

async fn form(request: &mut Request) -> Result<Response, Response> {
    let form = request.form().await?;
    let lines: String = form.iter_raw().map(|(name, value)| format!("{name}={value}\n")).collect();
    Ok(Response::text(lines))
}

async fn upload(request: &mut Request) -> Result<Response, Response> {
    let mut parts = request.multipart()?;
    let mut lines = String::new();
    while let Some(mut part) = parts.next().await? {
        let mut bytes = 0;
        while let Some(piece) = part.chunk().await? {
            bytes += piece.len();
        }
        lines += &format!("{} {:?} {bytes}\n", part.name(), part.client_file_name());
    }
    Ok(Response::text(lines))
}

fn main() -> ExitCode {
    bulkhead_service::main::<Tools>()
}
