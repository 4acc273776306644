//! Server-sent events.
//!
//! Runs in: a service's worker. Sees: what the service sends. Never: lets a value bring in a field or another event;
//! keeps a client of a worker that retires.
//!
//! Source: HTML Living Standard, 9.2 (Server-sent events).

use std::fmt::Write as _;
use std::time::Duration;

use http::HeaderName;
use http::header::CACHE_CONTROL;
use serde::Serialize;

use crate::writer::{Writer, WrittenBody};
use crate::{Context, Error, Request, Response};

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// LIMIT: how long nothing is sent (HTML 9.2.7 advises 15 s), unless `idle_timeout` is shorter than twice that.
const QUIET_MAX: Duration = Duration::from_secs(15);

/// A comment, which clients leave out.
const COMMENT: &[u8] = b":\n\n";

/// One event.
///
/// ```
/// use bulkhead_service::Event;
///
/// let event = Event::data("2 articles\nleft").name("stock").id("17");
/// assert_eq!(event.to_string(), "event: stock\nid: 17\ndata: 2 articles\ndata: left\n\n");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    name: String,
    id: Option<String>,
    retry: Option<Duration>,
    data: String,
}

/// Where events are sent to, made by [`Response::events`].
#[derive(Debug)]
pub struct Events(Writer);

impl Event {
    /// An event with this text.
    pub fn data(text: impl Into<String>) -> Self {
        Self { data: text.into(), ..Self::default() }
    }

    /// An event whose text is `value` as JSON.
    ///
    /// # Errors
    /// It cannot be written as JSON.
    pub fn json(value: &impl Serialize) -> Result<Self, Error> {
        Ok(Self::data(serde_json::to_string(value)?))
    }

    /// The same with a name, for which a page listens; without one it is a `message`.
    #[must_use]
    pub fn name(self, name: &str) -> Self {
        Self { name: one_line(name), ..self }
    }

    /// The same with an id, which a client that comes back names: [`Request::last_event_id`].
    #[must_use]
    pub fn id(self, id: &str) -> Self {
        Self { id: Some(one_line(id)), ..self }
    }

    /// The same, and the client waits for so long before it comes back after the end of the stream.
    #[must_use]
    pub fn retry(self, after: Duration) -> Self {
        Self { retry: Some(after), ..self }
    }
}

/// A field has one line; an id with NUL would not count.
fn one_line(text: &str) -> String {
    text.chars().filter(|character| !['\r', '\n', '\0'].contains(character)).collect()
}

impl std::fmt::Display for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if !self.name.is_empty() {
            writeln!(f, "event: {}", self.name)?;
        }
        if let Some(id) = &self.id {
            writeln!(f, "id: {id}")?;
        }
        if let Some(retry) = self.retry {
            writeln!(f, "retry: {}", retry.as_millis())?;
        }
        // `\r\n`, `\n` and `\r` end a line each.
        for line in self.data.replace("\r\n", "\n").split(['\r', '\n']) {
            writeln!(f, "data: {line}")?;
        }
        f.write_char('\n')
    }
}

impl Events {
    /// Sends an event, once there is room for it.
    ///
    /// This future, and all that sends, is dropped where it waits when the client has gone or the worker retires.
    pub async fn send(&self, event: &Event) {
        self.0.write(event.to_string()).await;
    }
}

impl Response {
    /// A stream of server-sent events, which `make` sends. It ends with `make`, with the client, or with the worker:
    /// then the browser connects again by itself, to the next worker. A comment is sent when nothing else was for a
    /// while.
    ///
    /// ```
    /// use std::time::Duration;
    /// use bulkhead_service::{Context, Event, Response};
    ///
    /// fn clock(cx: &Context) -> Response {
    ///     Response::events(cx, async |events| {
    ///         for tick in 0_u64.. {
    ///             events.send(&Event::data("tick").id(&tick.to_string())).await;
    ///             tokio::time::sleep(Duration::from_secs(1)).await;
    ///         }
    ///     })
    /// }
    /// ```
    pub fn events<F>(cx: &Context, make: impl FnOnce(Events) -> F) -> Self
    where
        F: Future<Output = ()> + 'static,
    {
        let body = body(cx, make, QUIET_MAX.min(cx.limits().idle_timeout / 2));
        Self::written("text/event-stream", body).with_header(CACHE_CONTROL, "no-store")
    }
}

/// Sends the events of `make`, and a comment after each `quiet` without an event.
fn body<F>(cx: &Context, make: impl FnOnce(Events) -> F, quiet: Duration) -> WrittenBody
where
    F: Future<Output = ()> + 'static,
{
    let body = WrittenBody::new(|writer| {
        let sending = make(Events(writer));
        async move {
            sending.await;
            Ok(())
        }
    });
    body.until(cx.drained()).idling(COMMENT, quiet)
}

impl Request {
    /// The id of the last event that a client has got that comes back: whatever the client made up.
    pub fn last_event_id(&self) -> Option<&str> {
        self.headers().get(LAST_EVENT_ID)?.to_str().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::cell::Cell;
    use std::rc::Rc;

    use http_body_util::BodyExt as _;

    fn run(test: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(test);
    }

    #[test]
    fn no_value_brings_in_a_field() {
        let event = Event::data("a\r\nb\rdata: c\n")
            .name("x\nid: 9")
            .id("1\r\n\0")
            .retry(Duration::from_millis(1500));
        assert_eq!(
            event.to_string(),
            "event: xid: 9\nid: 1\nretry: 1500\ndata: a\ndata: b\ndata: data: c\ndata: \n\n"
        );
        assert_eq!(Event::json(&["a\nb"]).unwrap().to_string(), "data: [\"a\\nb\"]\n\n");
    }

    #[test]
    fn a_stream_ends_with_what_sends() {
        run(async {
            let cx = Context::for_test(&[]);
            let response = Response::events(&cx, async |events| {
                for word in ["one", "two"] {
                    events.send(&Event::data(word)).await;
                }
            });
            assert_eq!(response.headers()["content-type"], "text/event-stream");
            assert_eq!(response.into_text().await.unwrap(), "data: one\n\ndata: two\n\n");
        });
    }

    #[test]
    fn a_quiet_stream_sends_comments_and_ends_when_the_worker_retires() {
        run(async {
            let cx = Context::for_test(&[]);
            let held = Rc::new(Cell::new(true));
            let ours = held.clone();
            let send = |events: Events| async move {
                events.send(&Event::data("x")).await;
                std::future::pending::<()>().await;
                drop(ours);
            };
            let mut body = body(&cx, send, Duration::from_millis(20));
            let mut pieces = Vec::new();
            for _ in 0..3 {
                pieces.push(body.frame().await.unwrap().unwrap().into_data().unwrap());
            }
            assert_eq!(pieces, ["data: x\n\n", ":\n\n", ":\n\n"]);
            cx.tasks().drain();
            assert!(body.frame().await.is_none());
            drop(body);
            assert_eq!(Rc::strong_count(&held), 1, "what sends has gone with the body");
        });
    }

    #[test]
    fn a_body_that_fails_is_not_whole() {
        run(async {
            let response = Response::stream("text/plain", async |writer| {
                writer.write("").await;
                writer.write("half").await;
                Err("no more".into())
            });
            let mut body = response.into_http().into_body();
            assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "half");
            assert_eq!(body.frame().await.unwrap().unwrap_err().to_string(), "no more");
        });
    }
}
