//! Publishers: what each is sent, its folder of templates, and its channels to services.
//!
//! Runs in: the launcher, as root. Sees: the checked configuration. Never: reads a template, or what a publisher
//! reports.

use std::os::fd::OwnedFd;

use config::{PublicValue, Templates};
use wire::templates::{LauncherToPublisher, MEMORY_BYTES};
use wire::{LauncherToService, Role, Text};

use crate::Supervisor;
use crate::error::{Error, during};
use crate::process::Stage;
use crate::setup::links;
use crate::spawn::context::{SpawnContext, duplicate};
use crate::spawn::process_spec::ProcessSpec;

impl SpawnContext {
    /// The templates of a publisher.
    fn templates(&self, spec: &ProcessSpec) -> Option<&Templates> {
        spec.site(&self.config).filter(|_| spec.role == Role::Publisher)?.templates.as_ref()
    }

    /// The folder of a publisher's templates.
    pub fn templates_folder(&self, spec: &ProcessSpec) -> Result<OwnedFd, Error> {
        let templates = self.templates(spec).ok_or_else(|| Error::NoTemplates { name: spec.name.clone() })?;
        self.published(&templates.folder)
    }

    /// What a publisher is sent before it reads its templates.
    fn publisher_setup(
        &self,
        spec: &ProcessSpec,
        memory: OwnedFd,
        kept: Option<OwnedFd>,
    ) -> Result<Vec<(LauncherToPublisher, Option<OwnedFd>)>, Error> {
        let limits = LauncherToPublisher::Limits { flush_ms: self.config.log.flush_ms };
        let folder = self.templates_folder(spec)?;
        let mut messages = vec![(limits, None), (LauncherToPublisher::Folder {}, Some(folder))];
        let values = self.templates(spec).into_iter().flat_map(|templates| &templates.values);
        messages.extend(values.map(|(name, value)| {
            let name = Text::new(name.as_str());
            (LauncherToPublisher::Value { name, value: on_the_wire(value) }, None)
        }));
        messages.push((LauncherToPublisher::Memory {}, Some(memory)));
        messages.extend(kept.map(|kept| (LauncherToPublisher::Kept {}, Some(kept))));
        messages.push((LauncherToPublisher::Begin {}, None));
        Ok(messages)
    }
}

fn on_the_wire(value: &PublicValue) -> wire::templates::PublicValue {
    match value {
        PublicValue::Text(text) => wire::templates::PublicValue::Text(Text::new(text.as_str())),
        PublicValue::Int(number) => wire::templates::PublicValue::Int(*number),
        PublicValue::Bool(value) => wire::templates::PublicValue::Bool(*value),
    }
}

impl Supervisor {
    /// Sends a new publisher what it must know; `goes_on` says whether it is to go on with the version that holds.
    ///
    /// SECURITY: what is in the memory, nobody reads but the publisher that follows in the same slot.
    pub fn configure_publisher(&mut self, serial: u64, goes_on: bool) -> Result<(), Error> {
        let slot = self.processes()[&serial].slot;
        let memory =
            sys::memfd::of_size(c"versions", MEMORY_BYTES).map_err(during("make memory for versions"))?;
        let kept = self.kept(slot, serial).filter(|_| goes_on).map(sys::memfd::to_be_read).transpose();
        let kept = kept.map_err(during("open the memory of a publisher"))?;
        let its = duplicate(&memory)?;
        for (message, descriptor) in self.context().publisher_setup(self.spec(slot), its, kept)? {
            self.send(serial, &message, descriptor);
        }
        if let Some(process) = self.process_mut(serial) {
            process.memory = Some(memory);
        }
        Ok(())
    }

    /// What the process before in a slot has kept: the one that serves, or else the one that has ended.
    fn kept(&self, slot: usize, serial: u64) -> Option<&OwnedFd> {
        let state = self.slot(slot);
        let before =
            state.current.filter(|&current| current != serial).and_then(|current| self.process(current));
        let serving = before.filter(|process| process.stage == Stage::Serving);
        serving.and_then(|process| process.memory.as_ref()).or(state.memory.as_ref())
    }

    /// Makes the channels between a new publisher and the services that have its templates, or the other way round;
    /// those that retire included, which have requests to answer yet.
    pub(crate) fn connect_publisher(&mut self, serial: u64) -> Result<(), Error> {
        let (role, site) = (self.spec_of(serial).role, self.spec_of(serial).site);
        if !matches!(role, Role::Publisher | Role::Service) {
            return Ok(());
        }
        for other in self.of_site(site).collect::<Vec<_>>() {
            let (service, publisher) = match role {
                Role::Publisher => (other, serial),
                _ if self.is_active(other) => (serial, other),
                _ => continue,
            };
            if links::has_templates(&self.context().config, self.spec_of(service), self.spec_of(publisher)) {
                let name = self.context().service(self.spec_of(service)).map(|(_, one)| one.name.clone());
                let of_publisher =
                    LauncherToPublisher::Attach { service: Text::new(name.unwrap_or_default()) };
                self.join((service, &LauncherToService::Publisher {}), (publisher, &of_publisher))?;
            }
        }
        Ok(())
    }
}
