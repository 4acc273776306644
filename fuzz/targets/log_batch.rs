//! Batches of log records: whatever a compromised client sends, reading ends, and what was read has one encoding.

use wire::log::{Batch, append, begin};

pub fn fuzz(data: &[u8]) {
    let Ok(batch) = Batch::decode(data) else { return };
    let mut again = Vec::new();
    begin(&mut again, batch.sequence);
    let mut whole = true;
    for record in batch {
        assert!(whole, "nothing is read after an error");
        match record {
            Ok(record) => append(&mut again, &record),
            Err(_) => whole = false,
        }
    }
    assert!(data.starts_with(&again), "a record has two encodings");
    assert!(!whole || again.len() == data.len(), "a record is missing");
}
