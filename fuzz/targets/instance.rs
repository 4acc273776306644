//! The files of running servers: what is read is what would be written, and paths are whole ones.

use instances::{BYTES_MAX, InstanceEntry, InstanceKind, NAMES_MAX};

pub fn fuzz(data: &[u8]) {
    let Ok(entry) = InstanceEntry::parse(data) else { return };
    assert!(data.len() <= BYTES_MAX && entry.process.pid > 0);
    assert!(entry.kind == InstanceKind::Guard || entry.run_dir.is_some());
    for names in [entry.folders.len(), entry.aliases.len(), entry.listeners.len()] {
        assert!(names <= NAMES_MAX);
    }
    let paths = entry.run_dir.iter().chain(&entry.config).chain(&entry.folders).chain(&entry.aliases);
    for path in paths {
        assert!(path.is_absolute() && !path.as_os_str().as_encoded_bytes().contains(&0));
    }
    let written = entry.encode();
    assert!(written.len() <= data.len());
    assert_eq!(InstanceEntry::parse(&written), Ok(entry));
}
