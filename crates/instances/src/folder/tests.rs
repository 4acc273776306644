use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};

use super::*;
use crate::entry::{InstanceKind, InstanceState};

struct Scratch(tempfile::TempDir);

impl Scratch {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn candidates(&self) -> Vec<Candidate> {
        vec![Candidate::new(self.0.path(), "bulkhead", 0o700)]
    }

    fn folder(&self) -> PathBuf {
        self.candidates()[0].path()
    }

    fn register(&self) -> Result<Registration, FolderFault> {
        Registration::among(&self.candidates(), entry())
    }

    fn list(&self) -> FolderListing {
        list_among(&self.candidates())
    }

    /// Writes a file as if a process had done so.
    fn plant(&self, entry: &InstanceEntry) -> PathBuf {
        let path = self.folder().join(name_of(&entry.process));
        fs::write(&path, entry.encode()).unwrap();
        path
    }
}

fn entry() -> InstanceEntry {
    InstanceEntry {
        run_dir: Some("/run/x".into()),
        ..InstanceEntry::new(ProcessIdentity::own().unwrap(), InstanceKind::Run)
    }
}

fn dead(started: u64) -> InstanceEntry {
    let entry = entry();
    InstanceEntry { process: ProcessIdentity { started, ..entry.process }, ..entry }
}

fn mode(path: impl AsRef<Path>) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn a_server_is_there_until_it_ends() {
    let scratch = Scratch::new();
    assert!(scratch.list().servers.is_empty() && scratch.list().refused.is_empty());
    let mut registration = scratch.register().unwrap();
    registration.update(|entry| entry.state = InstanceState::Serving).unwrap();
    let listing = scratch.list();
    assert_eq!(listing.servers.len(), 1);
    assert!(listing.servers[0].lives && &listing.servers[0].entry == registration.entry());
    assert_eq!(listing.servers[0].entry.state, InstanceState::Serving);
    assert_eq!(mode(scratch.folder()), 0o700);
    assert_eq!(mode(scratch.folder().join(name_of(&registration.entry().process))), 0o600);
    drop(registration);
    assert_eq!(fs::read_dir(scratch.folder()).unwrap().count(), 0, "nothing is left");
}

#[test]
fn dead_servers_are_told_from_living_ones_and_removed() {
    let scratch = Scratch::new();
    let registration = scratch.register().unwrap();
    // Its pid is that of a process that lives: this one.
    let left = scratch.plant(&dead(1));
    // In other PID namespaces one runs, and one has ended.
    let in_another = |started| InstanceEntry {
        process: ProcessIdentity { namespace: 1, ..dead(started).process },
        ..dead(started)
    };
    let (elsewhere, ended) = (scratch.plant(&in_another(2)), scratch.plant(&in_another(3)));
    let file = File::open(&elsewhere).unwrap();
    file.lock().unwrap();
    let listing = scratch.list();
    let lives: Vec<bool> = listing.servers.iter().map(|found| found.lives).collect();
    assert_eq!(lives, [false, true]);
    listing.clean();
    assert!(!left.exists() && elsewhere.exists() && !ended.exists());
    assert_eq!(scratch.list().servers.len(), 1);
    // So does the next server that starts.
    let left = scratch.plant(&dead(3));
    drop(registration);
    let _registration = scratch.register().unwrap();
    assert!(!left.exists());
}

#[test]
fn files_that_are_not_the_users_own_are_not_read() {
    let scratch = Scratch::new();
    let _registration = scratch.register().unwrap();
    let target = scratch.0.path().join("target");
    fs::write(&target, dead(4).encode()).unwrap();
    symlink(&target, scratch.folder().join(name_of(&dead(4).process))).unwrap();
    fs::set_permissions(scratch.plant(&dead(5)), Permissions::from_mode(0o622)).unwrap();
    fs::write(scratch.folder().join("6-6"), "garbage").unwrap();
    fs::write(scratch.folder().join("7-7"), vec![b'x'; 10 << 20]).unwrap();
    fs::create_dir(scratch.folder().join("8-8")).unwrap();
    fs::write(scratch.folder().join("9-9"), dead(5).encode()).unwrap();
    fs::write(scratch.folder().join("README"), "no server").unwrap();
    let listing = scratch.list();
    assert_eq!(listing.servers.len(), 1, "{listing:?}");
    assert_eq!(listing.refused.len(), 6, "{listing:?}");
    let not_own = |fault: &&FolderFault| matches!(fault, FolderFault::NotOwn { .. });
    assert_eq!(listing.refused.iter().filter(not_own).count(), 1, "{listing:?}");
}

#[test]
fn a_folder_that_is_not_the_users_own_is_not_used() {
    let scratch = Scratch::new();
    drop(scratch.register().unwrap());
    let own = scratch.0.path().join("bulkhead");
    for path in [own.clone(), scratch.folder()] {
        let before = mode(&path);
        fs::set_permissions(&path, Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(scratch.register(), Err(FolderFault::NotOwn { .. })));
        assert!(matches!(scratch.list().refused[..], [FolderFault::NotOwn { .. }]));
        fs::set_permissions(&path, Permissions::from_mode(before)).unwrap();
    }
    let moved = scratch.0.path().join("moved");
    fs::rename(&own, &moved).unwrap();
    symlink(&moved, &own).unwrap();
    assert!(scratch.register().is_err() && scratch.list().refused.len() == 1);
    // Anybody could put another folder in the place of one below a base like this.
    fs::remove_file(&own).unwrap();
    fs::set_permissions(scratch.0.path(), Permissions::from_mode(0o777)).unwrap();
    assert!(matches!(scratch.register(), Err(FolderFault::NotOwn { .. })));
    fs::set_permissions(scratch.0.path(), Permissions::from_mode(0o1777)).unwrap();
    assert!(scratch.register().is_ok(), "sticky, as /tmp is");
}

#[test]
fn the_next_folder_is_used_where_the_first_is_not_there() {
    let scratch = Scratch::new();
    let candidates = [Candidate::new("/nonexistent", "bulkhead", 0o700), scratch.candidates().remove(0)];
    let _registration = Registration::among(&candidates, entry()).unwrap();
    assert_eq!(list_among(&candidates).servers.len(), 1);
    assert!(matches!(Registration::among(&candidates[..1], entry()), Err(FolderFault::Nowhere { .. })));
}
