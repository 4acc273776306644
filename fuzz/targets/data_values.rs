//! Values of a call, as a data proxy reads them of a service, and results, as a service reads them of a data proxy.

use wire::data::{ResultWriter, ValueReader};

pub fn fuzz(data: &[u8]) {
    if let Ok(values) = ValueReader::new(data).values() {
        let mut again = Vec::new();
        values.iter().for_each(|value| value.borrowed().put(&mut again));
        assert_eq!(again, data, "{values:?} have two encodings");
    }
    results(data);
}

/// Reads results to their end, or to what is none.
fn results(data: &[u8]) -> Option<()> {
    let (mut reader, mut again) = (ValueReader::new(data), Vec::new());
    while !reader.is_at_end() {
        let columns = reader.columns().ok()?;
        ResultWriter::columns(&columns, &mut again);
        // A result without columns has no end of rows but the one that is there.
        loop {
            match reader.end_of_rows().ok()? {
                Some(changed) => break ResultWriter::end(changed, &mut again),
                None => ResultWriter::row(&mut again),
            }
            for _ in &columns {
                reader.value().ok()?.put(&mut again);
            }
        }
    }
    assert_eq!(again, data, "results have two encodings");
    Some(())
}
