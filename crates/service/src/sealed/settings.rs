//! The limits of a sealed cache.
//!
//! Runs in: a service's worker, as it is initialised. Sees: numbers of the service's author. Never: lets a limit
//! be absent.

use std::time::Duration;

use super::key::{KEY_LENGTH, SEAL_LENGTH};
use super::store::Store;
use crate::Error;

/// LIMIT: browsers keep no cookie for longer (RFC 6265bis 5.5).
const TIME_MAX: Duration = Duration::from_secs(400 * 24 * 3600);

/// The limits of a [`super::SealedCache`]; the default is safe, and meant for a small service.
///
/// ```
/// use bulkhead_service::SealedSettings;
///
/// let settings = SealedSettings { entries_max: 500, ..SealedSettings::default() };
/// # assert_eq!(settings.entry_bytes_max, 16 * 1024);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedSettings {
    /// The longest state of one user, in bytes; 16 KiB.
    pub entry_bytes_max: usize,
    /// How many states are kept at most; 10,000. Beyond that, those not used for longest go.
    pub entries_max: usize,
    /// The size of all states together, in bytes, 320 more counted for each; 16 MiB.
    pub total_bytes_max: usize,
    /// How long a state is kept after it was last put in; also the cookie's age. 1 hour.
    pub lifetime: Duration,
    /// A key that is older than this is replaced when its state is next put in; 1 hour.
    pub rotate_after: Duration,
    /// A key that was used more often than this is replaced likewise; 1000.
    pub rotate_uses: u32,
    /// How long a key works after it was replaced, for requests that are under way; 30 s. No key is replaced before
    /// it is as old as this.
    pub overlap: Duration,
    /// Sends the key over connections without TLS, too: whoever can listen gets it, and with it the user's state.
    ///
    /// Without it the cookie has the attribute `Secure`. Browsers then return it over TLS only (and, most of them, to
    /// `localhost`), and a service that is reached otherwise finds no state.
    pub danger_plaintext: bool,
}

impl Default for SealedSettings {
    fn default() -> Self {
        Self {
            entry_bytes_max: 16 * 1024,
            entries_max: 10_000,
            total_bytes_max: 16 << 20,
            lifetime: Duration::from_secs(3600),
            rotate_after: Duration::from_secs(3600),
            rotate_uses: 1000,
            overlap: Duration::from_secs(30),
            danger_plaintext: false,
        }
    }
}

impl SealedSettings {
    /// Checks that the limits go together.
    pub(super) fn check(&self) -> Result<(), Error> {
        let second = Duration::from_secs(1);
        // While a key is replaced, it has a place beside the state.
        let state = self.entry_bytes_max.min(usize::MAX / 2) + SEAL_LENGTH;
        let needed = Store::size(state) + Store::size(KEY_LENGTH + SEAL_LENGTH);
        if self.total_bytes_max < needed {
            return Err(format!(
                "`total_bytes_max` of a sealed cache is {}; with `entry_bytes_max` = {} it must be at least {needed}",
                self.total_bytes_max, self.entry_bytes_max
            )
            .into());
        }
        if self.entries_max < 2 {
            return Err("`entries_max` of a sealed cache must be at least 2".into());
        }
        let times = second..=TIME_MAX;
        if !times.contains(&self.lifetime) || !times.contains(&self.rotate_after) {
            let rule = "must be at least 1 s and at most 400 days";
            return Err(format!("`lifetime` and `rotate_after` of a sealed cache {rule}").into());
        }
        if self.overlap > self.rotate_after {
            return Err("`overlap` of a sealed cache must not be longer than `rotate_after`".into());
        }
        Ok(())
    }
}
