//! Data proxies, each of which holds one database.
//!
//! Runs in: the launcher, as root. Sees: the checked configuration. Never: lets a data proxy reach more than the folder
//! of its database.

use std::os::fd::OwnedFd;

use jail::Limits;
use jail::policy::Policy;
use wire::data::LauncherToDataProxy;

use super::kind::RoleKind;
use crate::Supervisor;
use crate::error::Error;
use crate::setup::data::DATA_AT;
use crate::spawn::Origin;
use crate::spawn::cgroup::Share;
use crate::spawn::context::SpawnContext;
use crate::spawn::process_spec::ProcessSpec;
use crate::spawn::uid_processes::{DATA_PROXY_THREADS, processes_of_uid};
use crate::spawn::view::View;

/// See the file's head.
pub(super) struct DataProxyRole;

impl RoleKind for DataProxyRole {
    fn ask(&self, supervisor: &mut Supervisor, serial: u64) {
        supervisor.send(serial, &LauncherToDataProxy::Report {}, None);
    }

    fn configure(&self, supervisor: &mut Supervisor, serial: u64) -> Result<(), Error> {
        let messages = supervisor.context().data_proxy_setup(supervisor.spec_of(serial))?;
        supervisor.send_all(serial, messages);
        Ok(())
    }

    fn connect(&self, supervisor: &mut Supervisor, serial: u64) -> Result<(), Error> {
        supervisor.connect_data(serial)
    }

    fn policy(&self, context: &SpawnContext, spec: &ProcessSpec) -> Policy {
        context.data_proxy_policy(spec)
    }

    fn let_reach(
        &self,
        context: &SpawnContext,
        spec: &ProcessSpec,
        _: (&OwnedFd, Origin),
        view: &mut View,
    ) -> Result<(), Error> {
        match context.data_folder(spec)? {
            Some(folder) => view.add_kept(DATA_AT, folder),
            None => Ok(()),
        }
    }

    fn limit(&self, context: &SpawnContext, spec: &ProcessSpec, limits: &mut Limits) {
        limits.processes = processes_of_uid(DATA_PROXY_THREADS);
        limits.memory_bytes = context.data_source(spec).map(|source| source.memory_max);
    }

    fn share(&self, context: &SpawnContext, spec: &ProcessSpec, share: &mut Share) {
        share.memory_max = context.data_source(spec).map(|source| source.memory_max);
        share.processes_max = DATA_PROXY_THREADS;
    }
}
