//! How a site's files are answered with.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: none. Must never: differ from what the operator
//! wrote.

use std::time::Duration;

use request::accept_encoding::Encoding;

/// The settings.
#[derive(Clone, Debug)]
pub struct Settings {
    /// For how many seconds a copy may be used unasked; 0 for "ask every time"; `None`: nothing is said.
    pub cache_control: Option<u32>,
    /// How long a file is not looked at; `None` for the worker's own choice.
    pub stat_interval: Option<Duration>,
    /// Whether folders without an index file are listed.
    pub listing: bool,
    /// Encodings for content, the most preferred first.
    pub encodings: Vec<Encoding>,
    /// Effort for what is kept.
    pub static_level: u8,
    /// Effort for what is made anew for every request.
    pub dynamic_level: u8,
    /// Larger files are sent as they are.
    pub max_bytes: u64,
    /// Pages of errors: status, and file below the root.
    pub error_pages: Vec<(u16, String)>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            cache_control: None,
            stat_interval: None,
            listing: false,
            encodings: Vec::new(),
            static_level: 9,
            dynamic_level: 2,
            max_bytes: 32 << 20,
            error_pages: Vec::new(),
        }
    }
}
