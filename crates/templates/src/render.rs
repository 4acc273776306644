//! Rendering one page, within limits.

use std::fmt;
use std::io;

use minijinja::value::Serde;
use minijinja::{ErrorKind, Value};
use serde::Serialize;

use crate::{FUEL, PAGE_BYTES_MAX, TemplateSet};

/// Why a page could not be rendered.
#[derive(Debug)]
pub enum RenderError {
    /// There is no such template.
    Unknown(String),
    /// The template has failed: with its name, its line, and why.
    Failed {
        /// Which template; not always the one that was to be rendered.
        template: String,
        /// The line; 0 if it is not known.
        line: usize,
        /// Why.
        reason: String,
    },
    /// The page became too long, or took too many steps.
    TooMuch(&'static str),
}

impl fmt::Display for RenderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(name) => write!(f, "there is no template {name:?}"),
            Self::Failed { template, line, reason } => write!(f, "template {template}:{line}: {reason}"),
            Self::TooMuch(what) => write!(f, "the page {what}"),
        }
    }
}

impl std::error::Error for RenderError {}

/// A page that grows to [`PAGE_BYTES_MAX`] at most.
#[derive(Default)]
struct Page {
    bytes: Vec<u8>,
    is_full: bool,
}

impl io::Write for &mut Page {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > PAGE_BYTES_MAX {
            self.is_full = true;
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl TemplateSet {
    /// Renders a template with what it is about: a struct, a map, or `context! { .. }`.
    ///
    /// # Errors
    /// There is no such template, it has failed, or the page has become too much.
    pub fn render(&self, name: &str, context: impl Serialize) -> Result<String, RenderError> {
        let template = self.environment.get_template(name).map_err(|error| failed(name, &error))?;
        let mut page = Page::default();
        let rendered = template.render_captured_to(Value::from(Serde(context)), &mut page).map(drop);
        match rendered {
            Err(_) if page.is_full => Err(RenderError::TooMuch("has become longer than 8 MiB")),
            Err(error) => Err(failed(name, &error)),
            // minijinja writes nothing but text.
            Ok(()) => Ok(String::from_utf8_lossy(&page.bytes).into_owned()),
        }
    }
}

fn failed(name: &str, error: &minijinja::Error) -> RenderError {
    const { assert!(FUEL == 5_000_000, "the text below says so") };
    match error.kind() {
        ErrorKind::OutOfFuel => RenderError::TooMuch("has taken more than 5 million steps"),
        ErrorKind::TemplateNotFound if error.name().is_none() => RenderError::Unknown(name.to_owned()),
        _ => {
            // An include tells where it stands; what has failed in it is below.
            let mut inner: &dyn std::error::Error = error;
            let mut reason = error.to_string();
            while let Some(source) = inner.source() {
                reason = source.to_string();
                inner = source;
            }
            let of = inner.downcast_ref::<minijinja::Error>().unwrap_or(error);
            let template = of.name().unwrap_or(name).to_owned();
            RenderError::Failed { template, line: of.line().unwrap_or_default(), reason }
        }
    }
}
