//! Orders of the administrator: whatever a client says on the socket, it is refused in words or is one of the orders.
//!
//! Runs in: `fuzz/run`. The answers to an order are made of what was understood, so this looks at that too.
#![no_main]

use admin::{Order, REQUEST_MAX};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if data.len() > REQUEST_MAX {
        return;
    }
    match Order::parse(data) {
        Ok(Order::Relaunch { name } | Order::Probe { name, .. }) => assert!(name.len() <= data.len()),
        Ok(_) => {}
        Err(error) => assert!(!error.is_empty()),
    }
    assert_eq!(Order::parse(data), Order::parse(data));
});
