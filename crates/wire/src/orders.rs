//! Orders of the administrator to a service, and its answers.
//!
//! Runs in: the admin role and services. Sees: in the admin role, text of a service, which may be compromised; in a
//! service, what the administrator has typed. Never: passes the launcher, which makes the channel and hands both ends
//! over.
//!
//! Source: Krohn, "Building Secure High-Performance Web Services with OKWS", USENIX ATC 2004, 4.1 (control messages to
//! one, some or all services).

use crate::codec::{Text, messages};

/// LIMIT: bytes of the word of an order.
pub const ORDER_NAME_MAX: usize = 63;
/// LIMIT: bytes of its argument.
pub const ORDER_ARGUMENT_MAX: usize = 2048;
/// LIMIT: bytes of an answer.
pub const ORDER_ANSWER_MAX: usize = 16 * 1024;

messages! {
    /// From the admin role to a service: one order on a channel.
    pub enum AdminToService {
        /// Say what you have done and are doing.
        1 => Diagnostics {},
        /// An order of the service's own.
        2 => Order { name: Text<ORDER_NAME_MAX>, argument: Text<ORDER_ARGUMENT_MAX> },
    }
}

messages! {
    /// From a service to the admin role: one answer.
    pub enum ServiceToAdmin {
        /// It is done.
        1 => Done { text: Text<ORDER_ANSWER_MAX> },
        /// It is not.
        2 => Failed { reason: Text<ORDER_ANSWER_MAX> },
    }
}
