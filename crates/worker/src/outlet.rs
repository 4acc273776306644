//! Connections on their way to workers.
