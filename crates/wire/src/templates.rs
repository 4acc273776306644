//! Templates and public values of a site: from its publisher to the processes of its services, one version after the
//! other.
//!
//! Runs in: the launcher, publishers, services. Sees: in a publisher, bytes of a service, which may be compromised; in
//! a service, those of its site's publisher. Never: a template on the way from a service.
//!
//! A version comes in parts (`Version`, `Value`, `Template`, `More`), is compiled (`Stage`, answered with `Staged`),
//! and holds from `Activate` on. That is a commit in two phases: the publisher activates nothing that a process has not
//! compiled.
//!
//! Source: Krohn, "Building Secure High-Performance Web Services with OKWS", USENIX ATC 2004, 3.4 (pubd, which has
//! templates and configuration for all services, and publishes changes).

use crate::codec::{Bytes, DecodeError, Field, Reader, Text, messages};
use crate::data::NAME_MAX;

/// LIMIT: bytes of a template in one message; with its fixed part well below [`crate::MESSAGE_MAX`].
pub const SOURCE_PART_MAX: usize = 60 * 1024;
/// LIMIT: bytes of a template's name: its path below the folder of templates.
pub const TEMPLATE_NAME_MAX: usize = 255;
/// LIMIT: bytes of a public value that is text.
pub const VALUE_TEXT_MAX: usize = 4096;
/// LIMIT: bytes of the memory in which a publisher keeps the last two versions. Pages that nothing was written to take
/// none.
pub const MEMORY_BYTES: u64 = 16 << 20;
/// LIMIT: bytes of why a process cannot take a version.
const REASON_MAX: usize = 512;

/// A public value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PublicValue {
    /// Text.
    Text(Text<VALUE_TEXT_MAX>),
    /// A whole number.
    Int(i64),
    /// True or false.
    Bool(bool),
}

impl Field for PublicValue {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Text(text) => {
                out.push(0);
                text.put(out);
            }
            Self::Int(number) => {
                out.push(1);
                out.extend_from_slice(&number.to_le_bytes());
            }
            Self::Bool(value) => {
                out.push(2);
                value.put(out);
            }
        }
    }
    fn take(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match u8::take(reader)? {
            0 => Self::Text(Text::take(reader)?),
            1 => Self::Int(i64::from_le_bytes(reader.array()?)),
            2 => Self::Bool(bool::take(reader)?),
            _ => return Err(DecodeError::Value("type of a public value")),
        })
    }
}

messages! {
    /// From the launcher to a publisher.
    pub enum LauncherToPublisher {
        /// First of all: how often buffered log records are handed to the logger.
        1 => Limits { flush_ms: u32 },
        /// The folder of templates comes along.
        2 => Folder {},
        /// A public value.
        3 => Value { name: Text<NAME_MAX>, value: PublicValue },
        /// All of the above has been said: read and compile.
        4 => Begin {},
        /// A channel from a process of the service comes along.
        5 => Attach { service: Text<NAME_MAX> },
        /// Asks for `Counters`.
        6 => Report {},
        /// Read the folder again and publish what is there; a socket comes along on which the administrator is told the
        /// end of it.
        7 => Republish {},
        /// Memory comes along in which the publisher is to keep each version before it activates it.
        8 => Memory {},
        /// What the publisher before has kept comes along, to be read: the last version of it holds, and not what the
        /// folder has.
        9 => Kept {},
    }
}

messages! {
    /// From a publisher to a service.
    pub enum PublisherToService {
        /// A version follows, which takes the place of one that was not activated.
        1 => Version { version: u64 },
        /// A public value of it.
        2 => Value { name: Text<NAME_MAX>, value: PublicValue },
        /// A template of it; unless it is complete, `More` follows.
        3 => Template { name: Text<TEMPLATE_NAME_MAX>, complete: bool, source: Bytes<SOURCE_PART_MAX> },
        /// More of the template before.
        4 => More { complete: bool, source: Bytes<SOURCE_PART_MAX> },
        /// The version is complete: compile it, and say `Staged` or `Refused`.
        5 => Stage { version: u64 },
        /// The version that was staged holds for requests that begin from now on; say `Active`.
        6 => Activate { version: u64 },
        /// The version that was staged will not be activated.
        7 => Discard { version: u64 },
        /// The answer to `Serving`: nothing was on its way before.
        8 => Go {},
    }
}

messages! {
    /// From a service to a publisher.
    pub enum ServiceToPublisher {
        /// The version is compiled.
        1 => Staged { version: u64 },
        /// It cannot be compiled.
        2 => Refused { version: u64, reason: Text<REASON_MAX> },
        /// The version holds.
        3 => Active { version: u64 },
        /// The process is about to take requests: from `Go` on, no version is activated without it.
        4 => Serving {},
    }
}
