//! Publishers: what each is sent, its folder of templates, and its channels to services.
//!
//! Runs in: the launcher, as root. Sees: the checked configuration. Never: reads a template, or what a publisher reports.

use std::os::fd::OwnedFd;

use config::{PublicValue, Templates};
use wire::templates::LauncherToPublisher;
use wire::{LauncherToService, Role, Text};

use crate::Supervisor;
use crate::directories;
use crate::error::Error;
use crate::spawn::context::SpawnContext;
use crate::spawn::process_spec::ProcessSpec;

impl SpawnContext {
    /// The templates of a publisher.
    fn templates(&self, spec: &ProcessSpec) -> Option<&Templates> {
        let site = self.config.sites.get(usize::from(spec.site)).filter(|_| spec.role == Role::Publisher)?;
        site.templates.as_ref()
    }

    /// Whether a process is one of a service that has a publisher's templates.
    pub fn has_templates(&self, service: &ProcessSpec, publisher: &ProcessSpec) -> bool {
        publisher.role == Role::Publisher
            && service.site == publisher.site
            && self.service(service).is_some_and(|(_, service)| service.templates)
    }

    /// The folder of a publisher's templates.
    pub fn templates_folder(&self, spec: &ProcessSpec) -> Result<OwnedFd, Error> {
        let templates = self.templates(spec).ok_or_else(|| Error::NoTemplates { name: spec.name.clone() })?;
        directories::directory(&templates.folder)
    }

    /// What a publisher is sent before it reads its templates.
    pub fn publisher_setup(
        &self,
        spec: &ProcessSpec,
    ) -> Result<Vec<(LauncherToPublisher, Option<OwnedFd>)>, Error> {
        let limits = LauncherToPublisher::Limits { flush_ms: self.config.log.flush_ms };
        let folder = self.templates_folder(spec)?;
        let mut messages = vec![(limits, None), (LauncherToPublisher::Folder {}, Some(folder))];
        let values = self.templates(spec).into_iter().flat_map(|templates| &templates.values);
        messages.extend(values.map(|(name, value)| {
            let name = Text::new(name.as_str());
            (LauncherToPublisher::Value { name, value: on_the_wire(value) }, None)
        }));
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
    /// Makes the channels between a new publisher and the services that have its templates, or the other way round; those that
    /// retire included, which have requests to answer yet.
    pub fn connect_publisher(&mut self, serial: u64) -> Result<(), Error> {
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
            if self.context().has_templates(self.spec_of(service), self.spec_of(publisher)) {
                let name = self.context().service(self.spec_of(service)).map(|(_, one)| one.name.clone());
                let of_publisher =
                    LauncherToPublisher::Attach { service: Text::new(name.unwrap_or_default()) };
                self.join((service, &LauncherToService::Publisher {}), (publisher, &of_publisher))?;
            }
        }
        Ok(())
    }
}
