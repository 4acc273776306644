//! A version on its way: its parts, until it is compiled.
//!
//! Sees: messages of a publisher. Never: takes more than a version may have.

use std::sync::Arc;

use templates::{Sources, TemplateSet, VALUES_MAX};
use wire::templates::PublicValue;

/// LIMIT: mistakes that a publisher is told.
const MISTAKES_MAX: usize = 3;

/// What has come of a version so far.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    version: u64,
    sources: Sources,
    /// The template whose end is to come.
    open: Option<(String, Vec<u8>)>,
    /// What is wrong with it.
    fault: Option<String>,
}

impl Incoming {
    pub(super) fn new(version: u64) -> Self {
        Self { version, ..Self::default() }
    }

    pub(super) fn value(&mut self, name: String, value: PublicValue) {
        self.sources.values.insert(name, value);
        if self.sources.values.len() > VALUES_MAX {
            self.fault(format!("it has more than {VALUES_MAX} public values"));
        }
    }

    pub(super) fn template(&mut self, name: String, complete: bool, source: Vec<u8>) {
        if self.open.replace((name, Vec::new())).is_some() {
            self.fault("a template has no end".into());
        }
        self.more(complete, source);
    }

    pub(super) fn more(&mut self, complete: bool, source: Vec<u8>) {
        let Some((name, mut bytes)) = self.open.take() else {
            return self.fault("more came of no template".into());
        };
        if self.fault.is_some() {
            return;
        }
        bytes.extend(source);
        if !complete && bytes.len() <= templates::TEMPLATE_BYTES_MAX {
            self.open = Some((name, bytes));
            return;
        }
        let source = String::from_utf8(bytes).map_err(|_| "a template is not UTF-8".to_owned());
        if let Err(fault) = source.and_then(|source| self.sources.add(name, source)) {
            self.fault(fault);
        }
    }

    fn fault(&mut self, fault: String) {
        self.fault.get_or_insert(fault);
    }

    /// Compiles it, once all of it has come.
    pub(super) fn compile(self, version: u64) -> Result<Arc<TemplateSet>, String> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        let set = TemplateSet::compile(self.sources).map_err(|mistakes| {
            let mistakes: Vec<String> = mistakes.iter().take(MISTAKES_MAX).map(ToString::to_string).collect();
            mistakes.join("; ")
        })?;
        match (set.version(), self.open) {
            (found, None) if [found, self.version] == [version; 2] => Ok(Arc::new(set)),
            _ => Err("it has not come whole".into()),
        }
    }
}
