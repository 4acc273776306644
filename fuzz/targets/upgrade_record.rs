//! The record that a launcher hands to its successor: whole, or refused; what is read is written in one way.

use wire::successor::{LauncherToSuccessor, seal, unseal};

pub fn fuzz(data: &[u8]) {
    crate::message::check::<LauncherToSuccessor>(data);
    if let Ok(items) = unseal(data) {
        assert_eq!(unseal(&seal(&items)), Ok(items));
    }
    // Behind a head that is right, so that bytes reach the items.
    let mut record = seal([]);
    record.truncate(10);
    record.extend((data.len() as u64).to_le_bytes());
    let sum = data.iter().fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    record.extend(sum.to_le_bytes());
    record.extend(data);
    if let Ok(items) = unseal(&record) {
        assert_eq!(unseal(&seal(&items)), Ok(items));
    }
}
