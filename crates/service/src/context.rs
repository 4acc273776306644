//! The settings that a service gets at its start, and its way to the error log.
//!
//! Runs in: a service's worker. Sees: its own arguments, written by the operator. Never: anything of a request.

use std::collections::HashMap;
use std::fmt::Display;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use wire::WorkerLimits;
use wire::log::Level;
use worker::log::Log;

use crate::data::Sources;
use crate::tasks::Tasks;
use crate::{DataSource, SealedCache, SealedSettings, Sessions, Templates};

/// An error, in words for the operator.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// The settings that a service gets at its start; a clone is the same context.
#[derive(Clone, Debug)]
pub struct Context {
    arguments: Vec<String>,
    limits: Limits,
    log: Option<Log>,
    sources: Rc<HashMap<String, DataSource>>,
    tasks: Tasks,
    templates: Option<Templates>,
}

/// The limits that hold for this worker, from the operator's configuration.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The longest request head, in bytes.
    pub head_bytes: usize,
    /// The longest request body, in bytes; the SDK enforces it.
    pub body_bytes: u64,
    /// How many connections the worker holds at once.
    pub connections: u32,
    /// How long a started request head may take to arrive.
    pub head_timeout: Duration,
    /// How long a connection may go without any progress.
    pub idle_timeout: Duration,
}

impl Context {
    pub(crate) fn new(
        arguments: Vec<String>,
        limits: Limits,
        log: Log,
        sources: &Sources,
        templates: Option<Templates>,
    ) -> Self {
        let sources = sources.iter().map(|(name, attached)| (name.clone(), attached.source.clone()));
        let (sources, tasks) = (Rc::new(sources.collect()), Tasks::new());
        Self { arguments, limits, log: Some(log), sources, tasks, templates }
    }

    /// A context outside of Bulkhead, for a service's own tests; its events go to standard error.
    pub fn for_test(arguments: &[&str]) -> Self {
        Self {
            arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(),
            limits: Limits {
                head_bytes: 8192,
                body_bytes: 1 << 20,
                connections: 64,
                head_timeout: Duration::from_secs(10),
                idle_timeout: Duration::from_secs(60),
            },
            log: None,
            sources: Rc::default(),
            tasks: Tasks::new(),
            templates: None,
        }
    }

    /// The same with the templates of a folder, as they are now, for a service's own tests.
    ///
    /// # Errors
    /// The folder cannot be read, or a template has a mistake.
    pub fn with_templates(self, folder: impl AsRef<Path>) -> Result<Self, Error> {
        Ok(Self { templates: Some(Templates::of_folder(folder.as_ref())?), ..self })
    }

    /// The arguments of this program, without its name.
    pub fn arguments(&self) -> &[String] {
        &self.arguments
    }

    /// The value that follows the argument `name`, as in `--index FILE`.
    ///
    /// # Errors
    /// When it is not there, in words for the operator.
    pub fn option(&self, name: &str) -> Result<&str, Error> {
        let mut rest = self.arguments.iter().skip_while(|argument| *argument != name);
        rest.nth(1)
            .map(String::as_str)
            .ok_or_else(|| format!("the argument `{name} VALUE` is missing from `command`").into())
    }

    /// The limits that hold for this worker.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Writes a line to the error log.
    pub fn event(&self, level: Level, text: impl Display) {
        match &self.log {
            Some(log) => log.event(level, text),
            None => eprintln!("{text}"),
        }
    }

    /// The data source of this name, which `data` of the service must have.
    ///
    /// Calls wait until its proxy is there; they may be made in `init`.
    ///
    /// # Errors
    /// The service has no such source, in words for the operator.
    pub fn data(&self, name: &str) -> Result<DataSource, Error> {
        self.sources.get(name).cloned().ok_or_else(|| {
            let mut known: Vec<&str> = self.sources.keys().map(String::as_str).collect();
            known.sort_unstable();
            let known = if known.is_empty() { "none".into() } else { known.join(", ") };
            format!("`data` of this service has no {name:?} in the configuration, but {known}").into()
        })
    }

    /// The templates and public values of the site, for which the service must have `templates = true`. The first
    /// version is there before `init`.
    ///
    /// # Errors
    /// The service has none, in words for the operator.
    pub fn templates(&self) -> Result<Templates, Error> {
        self.templates
            .clone()
            .ok_or_else(|| "this service has no `templates = true` in the configuration".into())
    }

    /// A cache of users' states, each sealed under a key that only that user's cookie holds.
    ///
    /// The cookie is called `name` and sent with requests below `path`; let that be the service's own path, so that
    /// no other service of the site is shown the keys. Two caches of one service need two names. The limits are those
    /// of [`SealedSettings::default`].
    ///
    /// # Errors
    /// In words for the operator, when a name or path cannot stand in a cookie, or there are no random bytes.
    pub fn sealed_cache(&self, name: &str, path: &str) -> Result<SealedCache, Error> {
        self.sealed_cache_with(name, path, SealedSettings::default())
    }

    /// As [`Self::sealed_cache`], with other limits.
    ///
    /// # Errors
    /// As there, and when the limits contradict each other.
    pub fn sealed_cache_with(
        &self,
        name: &str,
        path: &str,
        settings: SealedSettings,
    ) -> Result<SealedCache, Error> {
        SealedCache::new(name, path, settings)
    }

    /// Sessions of users, each a `T`, in a [sealed cache](Self::sealed_cache) of this name and path.
    ///
    /// # Errors
    /// As there.
    pub fn sessions<T>(&self, name: &str, path: &str) -> Result<Sessions<T>, Error> {
        self.sessions_with(name, path, SealedSettings::default())
    }

    /// As [`Self::sessions`], with other limits.
    ///
    /// # Errors
    /// As [`Self::sealed_cache_with`].
    pub fn sessions_with<T>(
        &self,
        name: &str,
        path: &str,
        settings: SealedSettings,
    ) -> Result<Sessions<T>, Error> {
        Ok(Sessions::new(self.sealed_cache_with(name, path, settings)?))
    }

    pub(crate) fn tasks(&self) -> &Tasks {
        &self.tasks
    }

    /// This process's arguments. Any that is not UTF-8 is kept, with marks for what is not.
    pub(crate) fn program_arguments() -> Vec<String> {
        std::env::args_os().skip(1).map(|argument| argument.to_string_lossy().into_owned()).collect()
    }
}

impl From<&WorkerLimits> for Limits {
    fn from(limits: &WorkerLimits) -> Self {
        let milliseconds = |ms: u32| Duration::from_millis(ms.into());
        Self {
            head_bytes: limits.head_bytes as usize,
            body_bytes: limits.body_bytes,
            connections: limits.connections,
            head_timeout: milliseconds(limits.head_timeout_ms),
            idle_timeout: milliseconds(limits.idle_timeout_ms),
        }
    }
}
