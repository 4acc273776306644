//! The protocol of FastCGI: records, the parameters of a request, and the head of an answer.
//!
//! Runs in: site workers, under the site's uid; pure, no input or output. Sees: requests of clients, and every byte of
//! FastCGI servers. Never: lets either end a value of ours before its end.
//!
//! Source: FastCGI Specification 1.0; RFC 3875.

pub mod parameters;
pub mod record;
pub mod reply;
