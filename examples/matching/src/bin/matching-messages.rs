//! The service `messages`: what people write to each other.
//!
//! Runs in: its own process under its own uid, inside its jail. Sees: the viewer's login, and the viewer's messages.
//! Never: sees a password, or the messages of somebody who is away.

use std::process::ExitCode;

use bulkhead_service::{
    Context, Error, Method, Pages, Request, Response, Serde, Service, Sessions, StatusCode, context,
    url_encode,
};
use matching::{Site, Viewer, failed, notice};
use serde::{Deserialize, Serialize};

/// LIMIT: of a message.
const CHARACTERS_MAX: usize = 2000;

struct Messages {
    site: Site,
    /// They keep nothing but the token by which a form is known.
    forms: Sessions<()>,
}

#[derive(Deserialize, Serialize)]
struct Newest {
    name: String,
    text: String,
    mine: bool,
    sent: String,
}

#[derive(Deserialize, Serialize)]
struct Message {
    text: String,
    mine: bool,
    sent: String,
}

impl Service for Messages {
    async fn init(cx: &Context) -> Result<Self, Error> {
        Ok(Self { site: Site::new(cx)?, forms: cx.sessions("messages-form", "/messages")? })
    }

    async fn process(&self, mut request: Request) -> Response {
        let with = request.path_below("/messages/");
        let answer = match (request.method(), with) {
            (&Method::GET | &Method::HEAD, None) if request.path() == "/messages" => {
                self.inbox(&request).await
            }
            (&Method::GET | &Method::HEAD, Some(with)) => self.conversation(&request, &with).await,
            (&Method::POST, Some(with)) => self.send(&mut request, &with).await,
            _ => Ok(Response::status_page(StatusCode::NOT_FOUND)),
        };
        answer.unwrap_or_else(|refusal| refusal)
    }
}

impl Messages {
    async fn inbox(&self, request: &Request) -> Result<Response, Response> {
        let pages = self.site.pages(request);
        let viewer = self.site.somebody(request).await?;
        let call = self.site.people.many::<Newest>("inbox", (viewer.login.as_bytes(),));
        let newest = call.await.map_err(failed)?;
        Ok(pages.response("messages.html", context! { viewer => viewer.name, newest => Serde(&newest) }))
    }

    async fn conversation(&self, request: &Request, with: &str) -> Result<Response, Response> {
        let pages = self.site.pages(request);
        let viewer = self.site.somebody(request).await?;
        let call = self.site.people.many::<Message>("conversation", (viewer.login.as_bytes(), with));
        let mut messages = call.await.map_err(failed)?;
        messages.reverse();
        let mut form = self.forms.of(request);
        let token = form.csrf_token()?;
        let about = context! { viewer => viewer.name, with, messages => Serde(&messages), token, characters_max => CHARACTERS_MAX };
        Ok(form.save(pages.response("conversation.html", about))?)
    }

    async fn send(&self, request: &mut Request, with: &str) -> Result<Response, Response> {
        let pages = self.site.pages(request);
        let form = request.form().await?;
        self.forms.of(request).check(request, &form)?;
        let viewer = self.site.somebody(request).await?;
        let text = form.raw("text").unwrap_or_default().trim();
        if text.is_empty() || text.chars().count() > CHARACTERS_MAX {
            return Err(refused(&pages, &viewer, "A message has 1 to 2,000 characters."));
        }
        let call = self.site.people.transaction("send_message");
        let sent = call.with((viewer.login.as_bytes(), with, text)).run().await;
        match sent {
            Ok(_) => Ok(Response::see_other(&format!("/messages/{}", url_encode(with)))),
            Err(error) if error.is_constraint() => {
                Err(refused(&pages, &viewer, "There is nobody else of that name."))
            }
            Err(error) => Err(failed(error)),
        }
    }
}

fn refused(pages: &Pages, viewer: &Viewer, text: &str) -> Response {
    notice(pages, Some(viewer), StatusCode::BAD_REQUEST, text)
}

fn main() -> ExitCode {
    bulkhead_service::main::<Messages>()
}
