//! A version in parts, as it is sent and as it is kept: taken apart, and put together again.
//!
//! Sees: in a service, messages of a publisher; in a publisher, what the process before has kept. Never: takes more
//! than a version may have.
//!
//! Both directions of one thing stand side by side in one file.

use wire::templates::{PublisherToService, SOURCE_PART_MAX};
use wire::{Bytes, Text};

use crate::{Sources, TEMPLATE_BYTES_MAX, VALUES_MAX};

impl Sources {
    /// All of it in parts, from `Version` to `Stage`.
    pub fn parts(&self, version: u64) -> impl Iterator<Item = PublisherToService> {
        let values = self.values.iter().map(|(name, value)| PublisherToService::Value {
            name: Text::new(name.as_str()),
            value: value.clone(),
        });
        let templates = self.templates.iter().flat_map(|(name, source)| template(name, source.as_bytes()));
        let begin = std::iter::once(PublisherToService::Version { version });
        begin.chain(values).chain(templates).chain([PublisherToService::Stage { version }])
    }
}

fn template(name: &str, source: &[u8]) -> impl Iterator<Item = PublisherToService> {
    let (first, rest) = source.split_at(source.len().min(SOURCE_PART_MAX));
    let first = PublisherToService::Template {
        name: Text::new(name),
        complete: rest.is_empty(),
        source: Bytes(first.to_vec()),
    };
    let count = rest.len().div_ceil(SOURCE_PART_MAX);
    let rest = rest.chunks(SOURCE_PART_MAX).enumerate().map(move |(at, part)| PublisherToService::More {
        complete: at + 1 == count,
        source: Bytes(part.to_vec()),
    });
    std::iter::once(first).chain(rest)
}

/// The parts of a version so far.
#[derive(Debug, Default)]
pub struct Incoming {
    version: u64,
    sources: Sources,
    /// The template whose end is to come.
    open: Option<(String, Vec<u8>)>,
    /// The fault of the version.
    fault: Option<String>,
}

impl Incoming {
    /// Takes a part: every message up to `Stage`, in order.
    pub fn take(&mut self, part: PublisherToService) {
        match part {
            PublisherToService::Version { version } => *self = Self { version, ..Self::default() },
            _ if self.fault.is_some() => {}
            PublisherToService::Value { name, value } => {
                self.sources.values.insert(name.as_str().to_owned(), value);
                if self.sources.values.len() > VALUES_MAX {
                    self.fault(format!("it has more than {VALUES_MAX} public values"));
                }
            }
            PublisherToService::Template { name, complete, source } => {
                if self.open.replace((name.as_str().to_owned(), Vec::new())).is_some() {
                    self.fault("a template has no end".into());
                }
                self.more(complete, source.0);
            }
            PublisherToService::More { complete, source } => self.more(complete, source.0),
            PublisherToService::Stage { .. }
            | PublisherToService::Activate { .. }
            | PublisherToService::Discard { .. }
            | PublisherToService::Go {} => self.fault("there is an order in the middle of it".into()),
        }
    }

    fn more(&mut self, complete: bool, source: Vec<u8>) {
        let Some((name, mut bytes)) = self.open.take() else {
            return self.fault("more came of no template".into());
        };
        bytes.extend(source);
        if !complete && bytes.len() <= TEMPLATE_BYTES_MAX {
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

    /// The version, once all of it has come: it is the one that was announced, and that its content says.
    ///
    /// # Errors
    /// The fault of the version.
    pub fn whole(self, version: u64) -> Result<Sources, String> {
        let is_whole = self.open.is_none() && self.version == version;
        match self.fault {
            Some(fault) => Err(fault),
            None if is_whole && self.sources.version() == version => Ok(self.sources),
            None => Err("it has not come whole".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text_value;

    fn sources() -> Sources {
        let mut sources = Sources::default();
        for length in [0, 1, SOURCE_PART_MAX - 1, SOURCE_PART_MAX, SOURCE_PART_MAX + 1, TEMPLATE_BYTES_MAX] {
            sources.add(format!("a{length}"), "x".repeat(length)).unwrap();
        }
        sources.values.insert("company".into(), text_value("ACME"));
        sources
    }

    fn taken(parts: impl IntoIterator<Item = PublisherToService>) -> Incoming {
        let mut incoming = Incoming::default();
        let parts = parts.into_iter().filter(|part| !matches!(part, PublisherToService::Stage { .. }));
        parts.for_each(|part| incoming.take(part));
        incoming
    }

    #[test]
    fn what_is_taken_apart_is_put_together_again() {
        let sources = sources();
        let version = sources.version();
        assert_eq!(taken(sources.parts(version)).whole(version), Ok(sources));
    }

    #[test]
    fn what_lacks_a_part_is_refused() {
        let sources = sources();
        let version = sources.version();
        let parts: Vec<_> = sources.parts(version).collect();
        for without in 0..parts.len() - 1 {
            let mut some = parts.clone();
            some.remove(without);
            taken(some).whole(version).unwrap_err();
        }
        let order = [PublisherToService::Version { version }, PublisherToService::Go {}];
        let refused = taken(order.into_iter().chain(sources.parts(version).skip(1)));
        assert_eq!(refused.whole(version), Err("there is an order in the middle of it".into()));
    }
}
