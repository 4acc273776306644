//! Commands of the administrator: whatever a client says on the socket, it is refused in words or is one of the
//! commands.
//!
//! The answers to a command are made of what was understood, so this looks at that too.

use admin::{Command, REQUEST_MAX};

pub fn fuzz(data: &[u8]) {
    if data.len() > REQUEST_MAX {
        return;
    }
    match Command::parse(data) {
        Ok(Command::Relaunch { name, .. } | Command::Probe { name, .. }) => assert!(name.len() <= data.len()),
        Ok(_) => {}
        Err(error) => assert!(!error.is_empty()),
    }
    assert_eq!(Command::parse(data), Command::parse(data));
}
