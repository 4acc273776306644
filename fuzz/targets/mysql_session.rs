//! All that a MySQL server says on a connection of a data proxy: packets, login, statements, rows.

pub fn fuzz(data: &[u8]) {
    dataproxy::fuzzing::mysql_session(data);
}
