//! A row as a MySQL server writes it, which may have been taken over, and what it says of the columns.

pub fn fuzz(data: &[u8]) {
    dataproxy::fuzzing::mysql_row(data);
}
