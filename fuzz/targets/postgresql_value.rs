//! A value as a PostgreSQL server writes it, which may have been taken over.

pub fn fuzz(data: &[u8]) {
    dataproxy::fuzzing::postgresql_value(data);
}
