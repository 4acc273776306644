//! The stapler: asks the responders of authorities whether sites' certificates are valid, checks what they answer, and
//! gives it to the sites' workers, who hand it to clients with the certificate (OCSP stapling).
//!
//! Runs in: one `stapler` process, under a uid of its own, with an empty root and the machine's network, of which
//! Landlock leaves it TCP to the ports of `ocsp_ports` and to port 53. Sees: chains from the signer; and from the
//! network, answers of responders and of DNS servers. Never: has a key, says a word to the signer, or hears one of
//! a site: what is asked, and where, is in the certificates that the operator has installed.
//!
//! Private keys are with the signer, which reads nothing from the network; clients are with sites, which have none. Who
//! takes this process over can have sites staple nonsense, and clients that look at it go away; no more.
//!
//! Source: RFC 6960.

pub mod answer;
mod chains;
mod fetch;
pub mod responder;
mod schedule;
mod serve;
mod stapler;
pub mod subject;

pub use serve::serve;
