//! A service for the tests: tells what its process is and has, and does what a test asks for.
//!
//! Runs in: its own process under its own uid, inside its jail; it is no part of the demo, and must not be put on
//! a server. Sees: requests of tests. Never: asks for a privilege.
fn main() {}
