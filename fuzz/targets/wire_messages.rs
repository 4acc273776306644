//! Messages between processes: whatever the bytes, a decoder answers, and what it accepts has one encoding.
//!
//! Runs in: `fuzz/run`. The first byte chooses the edge, the rest is what a compromised peer sends on it.
#![no_main]

use std::fmt::Debug;

use libfuzzer_sys::{Corpus, fuzz_target};
use wire::{
    AdminToLauncher, ChildToLauncher, FromWorker, LauncherToAdmin, LauncherToGate, LauncherToLogger,
    LauncherToService, LauncherToSite, Message, ToWorker,
};

fuzz_target!(|data: &[u8]| -> Corpus {
    let Some((edge, bytes)) = data.split_first() else {
        return Corpus::Reject;
    };
    match edge {
        0 => check::<ChildToLauncher>(bytes),
        1 => check::<AdminToLauncher>(bytes),
        2 => check::<ToWorker>(bytes),
        3 => check::<FromWorker>(bytes),
        4 => check::<LauncherToGate>(bytes),
        5 => check::<LauncherToSite>(bytes),
        6 => check::<LauncherToService>(bytes),
        7 => check::<LauncherToLogger>(bytes),
        8 => check::<LauncherToAdmin>(bytes),
        _ => return Corpus::Reject,
    }
    Corpus::Keep
});

fn check<M: Message + Debug + PartialEq>(bytes: &[u8]) {
    let Ok(message) = M::decode(bytes) else { return };
    let mut again = Vec::new();
    message.encode(&mut again);
    assert_eq!(again, bytes, "{message:?} has two encodings");
    assert_eq!(M::decode(&again), Ok(message));
}
