//! Reading `[[site.service]]`, whose entries are in `keys`.
//!
//! Runs in: the launcher (root) and the `bulkhead` command. Input: tables of the operator's file. Must never: read a
//! program for a service that runs on another machine.

use std::path::PathBuf;

use crate::diagnostic::Problems;
use crate::keys::{reading, service_keys};
use crate::parse::names;
use crate::place::At;
use crate::programs::command_of;
use crate::raw::site::{DOOR, RawService};
use crate::readers::{
    Count, DoorPlace, Finish, Flag, FolderList, GrantList, KeyReader, NameList, OptionalCount,
    OptionalDuration, OptionalNumber, OptionalText, PlacedFlag, RawCommand, ServiceCommand, ServiceName,
    ServicePath, Size, TableSource, Variables, WorkerCount,
};
use crate::remote;
use crate::rules::{CORE_MAX, CPU_PERCENT, MAX_AGE_MS, MAX_REQUESTS, MEMORY_MAX, PROCESSES_MAX, REQUESTS};
use crate::schema::{Network, Recycle, Service, Workers};

service_keys!(reading);

impl RawService {
    /// The absolute path of its program; the server itself has the one of a door.
    fn program(&self) -> Option<PathBuf> {
        match self.remote {
            Some(_) => Some(PathBuf::from(DOOR)),
            None => self.command.program.as_ref().map(|at| at.value.clone()),
        }
    }
}

impl Service {
    /// When its process is replaced.
    pub fn recycle(&self) -> Recycle {
        Recycle { requests: self.max_requests, age_ms: self.max_age_ms, memory: self.recycle_memory }
    }
}

/// Where `remote` stands, if the table says that it is true.
fn door(from: TableSource<'_, '_>) -> Option<usize> {
    from.table.get("remote").filter(|entry| entry.is_true()).map(|entry| entry.offset)
}

impl KeyReader for ServiceName {
    type Raw = Option<String>;

    fn absent(&self) -> Self::Raw {
        None
    }

    fn read(&self, key: &'static str, from: TableSource<'_, '_>, problems: &mut Problems) -> Self::Raw {
        let name = from.table.require(key, "\"search\"", problems);
        name.and_then(|entry| entry.string(names::name, problems)).map(|name| name.value)
    }
}

impl KeyReader for ServicePath {
    type Raw = Option<At<String>>;

    fn absent(&self) -> Self::Raw {
        None
    }

    fn read(&self, key: &'static str, from: TableSource<'_, '_>, problems: &mut Problems) -> Self::Raw {
        if let Some(offset) = door(from) {
            let name = from.table.get("name").and_then(|entry| entry.plain());
            return remote::path(name.filter(|name| names::name(name).is_ok()), offset);
        }
        let path = from.table.require(key, "\"/search\"", problems);
        path.and_then(|entry| entry.string(names::url_path, problems))
    }
}

impl KeyReader for ServiceCommand {
    type Raw = RawCommand;

    fn absent(&self) -> RawCommand {
        RawCommand::default()
    }

    fn read(&self, key: &'static str, from: TableSource<'_, '_>, problems: &mut Problems) -> RawCommand {
        if door(from).is_some() {
            let path = ServicePath.read("path", from, problems).map(|path| path.value);
            let words = [DOOR.to_owned()].into_iter().chain(path).collect();
            return RawCommand { words, program: None };
        }
        let entry = from.table.require(key, "[\"bin/search\"]", problems);
        let (words, program) = entry.and_then(|entry| command_of(&entry, from.dir, problems)).unzip();
        RawCommand { words: words.unwrap_or_default(), program }
    }
}

impl KeyReader for DoorPlace {
    type Raw = Option<usize>;

    fn absent(&self) -> Self::Raw {
        None
    }

    fn read(&self, _: &'static str, from: TableSource<'_, '_>, problems: &mut Problems) -> Self::Raw {
        remote::door(from.table, problems)
    }
}
