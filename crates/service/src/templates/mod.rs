//! Templates of the site: one version for each request, from its beginning to its end.
//!
//! Sees: templates and public values that the site's publisher sends. Never: opens a file, or renders with one version
//! what belongs to a request that began with another.
//!
//! A version is one value that never changes, and a request holds the one that it began with. [`Templates`] itself
//! renders nothing: it has to be given the request. So a page that is made of several templates, or a request that
//! renders twice with other work in between, cannot mix two versions.

mod link;

use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use http::StatusCode;
use serde::Serialize;
use serde::de::DeserializeOwned;
use templates::TemplateSet;

pub use templates::RenderError as TemplateError;

pub(crate) use link::PublisherLink;

use crate::{Error, Request, Response};

/// The templates of the site, which may come in a new version at any time; a clone is the same.
///
/// ```no_run
/// use bulkhead_service::{Context, Error, Request, Response, Service, Templates, context};
///
/// struct Shop(Templates);
///
/// impl Service for Shop {
///     async fn init(cx: &Context) -> Result<Self, Error> {
///         Ok(Self(cx.templates()?))
///     }
///
///     async fn process(&self, request: Request) -> Response {
///         self.0.of(&request).response("shop.html", context! { article => request.param("article") })
///     }
/// }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Templates(Arc<RwLock<Option<Pages>>>);

/// One version of the templates and public values: what a request has seen once, it sees to its end. A clone is the
/// same version.
///
/// For services of `tower`, it is in the extensions of each request.
#[derive(Clone, Debug)]
pub struct Pages(Arc<TemplateSet>);

impl Templates {
    /// The version that a request began with.
    ///
    /// A request that the service has made itself, for a test, has the version that holds now.
    pub fn of(&self, request: &Request) -> Pages {
        request.extensions().get::<Pages>().cloned().or_else(|| self.current()).unwrap_or_else(|| {
            // No request comes before the first version.
            Pages(Arc::new(TemplateSet::default()))
        })
    }

    /// The version for a request that begins now; `None` before the first.
    pub(crate) fn current(&self) -> Option<Pages> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Has a version hold for requests that begin from now on.
    pub(crate) fn activate(&self, set: Arc<TemplateSet>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(Pages(set));
    }

    /// Those of a folder, as they are now, for a service's own tests.
    pub(crate) fn of_folder(folder: &Path) -> Result<Self, Error> {
        let in_words = |mistakes: Vec<templates::TemplateMistake>| {
            mistakes.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
        };
        let folder = std::fs::File::open(folder)?.into();
        let sources = templates::read(&folder).map_err(in_words)?;
        let own = Self::default();
        own.activate(Arc::new(TemplateSet::compile(sources).map_err(in_words)?));
        Ok(own)
    }
}

impl Pages {
    /// Renders a template with what it is about: a struct, a map, or `context! { .. }`.
    ///
    /// # Errors
    /// As [`TemplateError`] says.
    pub fn render(&self, name: &str, context: impl Serialize) -> Result<String, TemplateError> {
        self.0.render(name, context)
    }

    /// The same as a response, whose type of content follows from the ending of the name. If it fails, the error log
    /// has why, and the client gets 500.
    pub fn response(&self, name: &str, context: impl Serialize) -> Response {
        match self.render(name, context) {
            Ok(page) => Response::new(content_type(name), page),
            Err(error) => {
                eprintln!("error: {error}");
                Response::status_page(StatusCode::INTERNAL_SERVER_ERROR)
            }
        }
    }

    /// A public value; `None` if there is none of the name, or it is no `T`.
    pub fn value<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        T::deserialize(self.0.value(name)?.clone()).ok()
    }

    /// Which version it is: 16 hexadecimal digits, which say what is in it.
    pub fn version(&self) -> String {
        format!("{:016x}", self.0.version())
    }
}

fn content_type(name: &str) -> &'static str {
    match name.rsplit('.').next() {
        Some("html" | "htm") => "text/html; charset=utf-8",
        Some("xml") => "application/xml",
        Some("json") => "application/json",
        Some("css") => "text/css; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        _ => "text/plain; charset=utf-8",
    }
}

#[cfg(test)]
mod tests;
