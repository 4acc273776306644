//! Functions of a specialised server, which answer what a route with `hook` names.
//!
//! Runs in: a site worker of the operator's own, under the site's uid, inside its jail. Untrusted input: requests, as
//! far as the function looks at them. Must never: be called before the terms of the routes are met.
//!
//! Source: the function hooks of rwasa.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::pin::Pin;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::request::Parts;
use http::{Method, Response, StatusCode, Uri};
use http_body_util::BodyExt as _;

use crate::http::body::{BodyError, BoundedBody, ResponseBody};
use crate::http::conn_info::ConnInfo;
use crate::http::response;
use crate::proxy::headers;
use crate::proxy::timeout::Timeouts;

/// A function's answer to a request.
#[derive(Debug)]
pub enum Answer {
    /// There is nothing of this name: 404.
    None,
    /// It is none of the function's business: a file of this name is the answer, as if the route were not there.
    Pass,
    /// This. Compression, and what has to be said of the connection, are added to it.
    Response(Box<Response<Bytes>>),
}

impl Answer {
    /// Plain text.
    pub fn text(text: impl Into<Bytes>) -> Self {
        Self::content("text/plain; charset=utf-8", text)
    }

    /// A page.
    pub fn html(page: impl Into<Bytes>) -> Self {
        Self::content("text/html; charset=utf-8", page)
    }

    /// Content of this media type; one that cannot stand in a header is left out.
    pub fn content(media: &str, content: impl Into<Bytes>) -> Self {
        let mut response = Response::new(content.into());
        if let Ok(media) = HeaderValue::try_from(media) {
            response.headers_mut().insert(header::CONTENT_TYPE, media);
        }
        response.into()
    }

    /// A status, with its usual page.
    pub fn status(status: StatusCode) -> Self {
        let page = request::error::page(status, "");
        match Self::html(page) {
            Self::Response(mut response) => {
                *response.status_mut() = status;
                Self::Response(response)
            }
            other => other,
        }
    }
}

impl<B: Into<Bytes>> From<Response<B>> for Answer {
    fn from(response: Response<B>) -> Self {
        Self::Response(Box::new(response.map(Into::into)))
    }
}

impl From<Option<Answer>> for Answer {
    fn from(answer: Option<Answer>) -> Self {
        answer.unwrap_or(Self::None)
    }
}

/// A request, as a function gets it.
pub struct Request {
    parts: Parts,
    peer: SocketAddr,
    body: BoundedBody,
}

impl Request {
    /// The method.
    pub fn method(&self) -> &Method {
        &self.parts.method
    }

    /// The target: path and query, as sent.
    pub fn uri(&self) -> &Uri {
        &self.parts.uri
    }

    /// The headers.
    pub fn headers(&self) -> &HeaderMap {
        &self.parts.headers
    }

    /// The client.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The body, once all of it is there; at most `body_bytes` of `[limits]`.
    ///
    /// # Errors
    /// It is too large, too slow, or the client has gone; the client is told so, whatever the answer.
    pub async fn body(self) -> Result<Bytes, BodyError> {
        Ok(self.body.collect().await?.to_bytes())
    }
}

type HookFuture = Pin<Box<dyn Future<Output = Answer>>>;

/// The functions of a server, by their names.
#[derive(Default)]
pub struct Hooks(HashMap<String, Box<dyn Fn(Request) -> HookFuture>>);

impl Hooks {
    /// Adds a function; one that was there under this name is replaced.
    pub fn add<F, A>(&mut self, name: &str, function: F)
    where
        F: Fn(Request) -> A + 'static,
        A: Future<Output = Answer> + 'static,
    {
        self.0.insert(name.to_owned(), Box::new(move |request| Box::pin(function(request))));
    }

    /// Whether there is one of this name.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// The names, sorted.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.0.keys().map(String::as_str).collect();
        names.sort_unstable();
        names
    }

    /// Has the function `name` answer; `Err` with the head, if it passes the request on to the files.
    pub(crate) async fn call(
        &self,
        name: &str,
        conn: ConnInfo,
        request: http::Request<BoundedBody>,
    ) -> Result<Response<ResponseBody>, Box<Parts>> {
        // INVARIANT: a worker does not begin to serve with a route whose function it does not have.
        let Some(function) = self.0.get(name) else {
            return Ok(response::error(StatusCode::INTERNAL_SERVER_ERROR));
        };
        let (head, body) = request.into_parts();
        let mut told = http::Request::from_parts(head.clone(), ());
        headers::prepare(&mut told, conn);
        let (parts, ()) = told.into_parts();
        let answer = function(Request { parts, peer: conn.peer, body });
        Ok(match tokio::time::timeout(Timeouts::OWN.answer, answer).await {
            Ok(Answer::None) => response::error(StatusCode::NOT_FOUND),
            Ok(Answer::Pass) => return Err(Box::new(head)),
            // Only the last answer is a function's to give.
            Ok(Answer::Response(response)) if response.status().is_informational() => {
                response::error(StatusCode::INTERNAL_SERVER_ERROR)
            }
            Ok(Answer::Response(response)) => response.map(ResponseBody::Full),
            Err(_) => response::error(StatusCode::GATEWAY_TIMEOUT),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(hooks: &Hooks, name: &str, path: &str) -> Result<Response<ResponseBody>, Box<Parts>> {
        let conn = ConnInfo {
            peer: "192.0.2.1:7".parse().unwrap(),
            local: "192.0.2.2:80".parse().unwrap(),
            tls: false,
            relayed: None,
        };
        let request = http::Request::get(path).body(BoundedBody::empty()).unwrap();
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_time().build().unwrap();
        runtime.block_on(hooks.call(name, conn, request))
    }

    fn hooks() -> Hooks {
        let mut hooks = Hooks::default();
        hooks.add("text", |request: Request| async move {
            Answer::text(format!("{} from {}", request.uri(), request.peer()))
        });
        hooks.add("none", |_| async { Answer::None });
        hooks.add("pass", |request: Request| async {
            assert!(request.body().await.unwrap().is_empty());
            Answer::Pass
        });
        hooks.add("early", |_| async { Answer::status(StatusCode::CONTINUE) });
        hooks
    }

    #[test]
    fn an_answer_is_what_the_function_says() {
        let hooks = hooks();
        let response = call(&hooks, "text", "/a.calc?b").unwrap();
        assert_eq!(response.headers()[header::CONTENT_TYPE], "text/plain; charset=utf-8");
        assert!(matches!(response.body(), ResponseBody::Full(text) if text == "/a.calc?b from 192.0.2.1:7"));
        let status = |name| call(&hooks, name, "/").unwrap().status().as_u16();
        assert_eq!(status("none"), 404);
        assert_eq!(status("early"), 500);
        assert_eq!(status("missing"), 500);
    }

    #[test]
    fn a_function_is_told_of_the_client_by_us() {
        let mut hooks = Hooks::default();
        hooks.add("told", |request: Request| async move {
            let headers = request.headers();
            assert!(!headers.contains_key("x-real-ip") && !headers.contains_key("connection"));
            Answer::text(headers["x-forwarded-for"].to_str().unwrap().to_owned())
        });
        let conn = ConnInfo {
            peer: "192.0.2.1:7".parse().unwrap(),
            local: "192.0.2.2:80".parse().unwrap(),
            tls: false,
            relayed: None,
        };
        let request =
            http::Request::get("/").header("x-real-ip", "6.6.6.6").header("x-forwarded-for", "6.6.6.6");
        let request = request.header("connection", "close").body(BoundedBody::empty()).unwrap();
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_time().build().unwrap();
        let response = runtime.block_on(hooks.call("told", conn, request)).unwrap();
        assert!(matches!(response.body(), ResponseBody::Full(text) if text == "192.0.2.1"));
    }

    #[test]
    fn what_is_passed_keeps_its_head() {
        let head = call(&hooks(), "pass", "/a.calc?b").err().unwrap();
        assert_eq!((head.method, head.uri.to_string()), (Method::GET, "/a.calc?b".to_owned()));
    }
}
