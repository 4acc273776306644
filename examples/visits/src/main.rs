//! A service that keeps something of each visitor, which it cannot read itself while that visitor is away.
//!
//! Runs in: a service's worker, under that service's uid, inside its jail. Sees: requests, and the notes of those who
//! are making one. Never: keeps a note, or the key to it, from one request to the next.
//!
//! In the configuration: `command = ["bin/visits"]`, `path = "/visits"`. With the further argument
//! `--danger-plaintext` the cookie is sent without TLS, too; a browser on the same machine does not need that.

use std::alloc::System;
use std::process::ExitCode;

use bulkhead_service::{
    Context, Error, Html, Method, Request, Response, SealedCache, SealedSettings, Service, StatusCode, User,
    html,
};
use zeroize::Zeroizing;
use zeroizing_alloc::ZeroAlloc;

/// Memory is overwritten as it is freed: requests and pages pass through much of it on their way.
#[global_allocator]
static ALLOCATOR: ZeroAlloc<System> = ZeroAlloc(System);

struct Visits {
    sealed: SealedCache,
}

/// What is kept of a visitor: a number, a line feed, and a note.
#[derive(Default)]
struct State {
    count: u64,
    note: Zeroizing<String>,
}

impl State {
    fn of(user: &mut User<'_>) -> Self {
        user.get().and_then(|bytes| Self::read(&bytes)).unwrap_or_default()
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let (count, note) = str::from_utf8(bytes).ok()?.split_once('\n')?;
        Some(Self { count: count.parse().ok()?, note: Zeroizing::new(note.to_owned()) })
    }

    /// Keeps this state with the response; gives the answer.
    fn put(&self, user: &mut User<'_>, mut response: Response) -> Response {
        let bytes = Zeroizing::new(format!("{}\n{}", self.count, *self.note));
        match user.put(response.headers_mut(), bytes.as_bytes()) {
            Ok(()) => response,
            Err(error) => error.into(),
        }
    }

    fn page(&self) -> Html {
        html!(
            "<!doctype html><html lang=en><meta charset=utf-8><title>Visits</title>\n\
             <p>This is your visit number {}. Your note: <q>{}</q></p>\n\
             <form method=post action=/visits><input name=note maxlength=200><button>Keep it</button></form>\n\
             <form method=post action=/visits/forget><button>Forget me</button></form>\n",
            self.count,
            *self.note
        )
    }
}

impl Service for Visits {
    async fn init(cx: &Context) -> Result<Self, Error> {
        let settings = SealedSettings {
            entry_bytes_max: 1024,
            danger_plaintext: cx.arguments().iter().any(|argument| argument == "--danger-plaintext"),
            ..SealedSettings::default()
        };
        Ok(Self { sealed: cx.sealed_cache_with("visits", "/visits", settings)? })
    }

    async fn process(&self, request: Request) -> Response {
        match (request.method(), request.path()) {
            (&Method::GET, "/visits") => self.visit(&request),
            (&Method::POST, "/visits") => self.keep(request).await,
            (&Method::POST, "/visits/forget") => self.forget(&request),
            _ => Response::status_page(StatusCode::NOT_FOUND),
        }
    }
}

impl Visits {
    fn visit(&self, request: &Request) -> Response {
        let mut user = self.sealed.user(request.headers());
        let mut state = State::of(&mut user);
        state.count += 1;
        let response = Response::html(state.page());
        state.put(&mut user, response)
    }

    async fn keep(&self, mut request: Request) -> Response {
        let form = match request.form().await {
            Ok(form) => form,
            Err(error) => return error.into(),
        };
        // Only now: other requests of this user may have been answered meanwhile.
        let mut user = self.sealed.user(request.headers());
        let mut state = State::of(&mut user);
        state.note = Zeroizing::new(form.raw("note").unwrap_or_default().to_owned());
        state.put(&mut user, Response::see_other("/visits"))
    }

    fn forget(&self, request: &Request) -> Response {
        let mut response = Response::see_other("/visits");
        self.sealed.user(request.headers()).forget(response.headers_mut());
        response
    }
}

fn main() -> ExitCode {
    bulkhead_service::main::<Visits>()
}

#[cfg(test)]
mod tests {
    use super::*;

    use bulkhead_service::http::HeaderValue;
    use bulkhead_service::http::header::{COOKIE, SET_COOKIE};

    /// Sends a request with the cookie that the last answer gave; gives the answer's text.
    async fn ask(visits: &Visits, mut request: Request, cookie: &mut Option<HeaderValue>) -> String {
        request.headers_mut().extend(cookie.take().map(|pair| (COOKIE, pair)));
        let response = visits.process(request).await;
        let line = response.headers()[SET_COOKIE].to_str().unwrap();
        *cookie = Some(HeaderValue::from_str(line.split(';').next().unwrap()).unwrap());
        response.into_text().await.unwrap()
    }

    fn post(target: &str, body: &'static str) -> Request {
        let mut request = Request::get(target);
        *request.method_mut() = Method::POST;
        *request.body_mut() = body.into();
        request
    }

    #[test]
    fn each_visitor_has_a_count_and_a_note() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let visits = Visits::init(&Context::for_test(&[])).await.unwrap();
            let visit = || Request::get("/visits");
            let (mut ann, mut tom) = (None, None);
            assert!(ask(&visits, visit(), &mut ann).await.contains("number 1"));
            ask(&visits, post("/visits", "note=a+%3Cb%3E"), &mut ann).await;
            assert!(ask(&visits, visit(), &mut tom).await.contains("number 1"));
            let page = ask(&visits, visit(), &mut ann).await;
            assert!(page.contains("number 2") && page.contains("<q>a &lt;b&gt;</q>"), "{page}");
            assert!(ann.as_ref().unwrap().to_str().unwrap().starts_with("__Secure-visits="));
            ask(&visits, post("/visits/forget", ""), &mut ann).await;
            assert!(ask(&visits, visit(), &mut ann).await.contains("number 1"));
        });
    }
}
