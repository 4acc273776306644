//! The admin role: takes the administrator's orders as text and passes them to the launcher as numbers.
//!
//! Runs in: the `admin` process, under its own uid, in a jail without a file system. Sees: bytes of whoever can reach
//! the administration socket; only who begins with the secret of `admin.secret`, which root and the owner can read,
//! gets an answer to an order. Never: sends a string to the launcher, opens anything by name, or runs anything. Who
//! takes over this process can do what an administrator can (list, relaunch, stop), and no more.

mod admin;
mod certified;
mod client;
mod clients;
mod command;
mod conditioned;
mod gather;
mod order;
mod reply;
mod republish;
mod secret;
mod send;
mod serve;
mod targets;

pub use command::{Command, REQUEST_MAX};
pub use serve::{ServeError, serve};
