//! A database that another machine holds: calls go to the doors there, over TLS, with a certificate of this machine's.
//!
//! The other machine, which has the statements, decides who may call them. Here a service is known by its token, and
//! gets a connection of its own to the one door that has its name.
//!
//! Sees: names of statements and values from services; what the other machine answers. Never: lets a service say whose
//! door it wants.

mod client;
mod door;
mod line;

pub(crate) use client::attend;
pub(crate) use door::Door;
