//! Limits on actions of an HTTP/2 client that cost the client nothing and the server something.
//!
//! Runs in: site workers; pure. Sees: which frames came, which anybody may send. Never: counts what is part of
//! ordinary use against a client: limits are for windows of time, and far above it.
//!
//! Rapid reset: CVE-2023-44487. Resets that a client provokes (MadeYouReset): CVE-2025-8671. Continuation flood:
//! CVE-2024-27316. Ping, settings, empty frames, priorities: CVE-2019-9511 to 9518.

use std::fmt;
use std::time::{Duration, Instant};

/// An action of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamEvent {
    /// It opened a stream.
    Opened,
    /// It reset a stream that was not answered yet.
    Reset,
    /// We reset a stream because of an error of the client's.
    Provoked,
    /// A HEADERS frame of so many bytes began a block.
    Headers(u32),
    /// A CONTINUATION frame of so many bytes.
    Continuation(u32),
    /// The block is complete (END_HEADERS).
    HeadersEnd,
    /// A SETTINGS frame that wants an acknowledgement.
    Settings,
    /// A PING frame that wants an acknowledgement.
    Ping,
    /// A DATA frame without data that does not end its stream.
    EmptyData,
    /// A PRIORITY or WINDOW_UPDATE frame.
    Adjustment,
    /// A DATA frame, or what is left of one for a stream that was reset.
    Data {
        /// Bytes that somebody wants.
        useful: u32,
        /// All bytes, with the head of the frame and its padding; of a short frame, what it costs.
        all: u32,
    },
    /// A DATA frame with data, or a response that went out whole: what the connection is for.
    Progress,
}

/// LIMIT: how many bytes may come for each useful one before they count: a frame of eight counts as 32, which is not
/// too much.
pub const USEFUL_SHARE: u64 = 4;

/// How much of what is too much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResetLimits {
    /// How long a window is.
    pub window: Duration,
    /// Streams that a client resets before they are answered, in a window.
    pub resets: u32,
    /// Streams that it makes us reset, in a window.
    pub provoked: u32,
    /// CONTINUATION frames of one block.
    pub continuations: u32,
    /// Bytes of one block.
    pub block_bytes: u32,
    /// SETTINGS frames in a window.
    pub settings: u32,
    /// PING frames in a window.
    pub pings: u32,
    /// Empty DATA frames in a window.
    pub empty_data: u32,
    /// Bytes of DATA frames in a window beyond [`USEFUL_SHARE`] times those that somebody wants.
    pub useless_bytes: u32,
    /// PRIORITY and WINDOW_UPDATE frames in a window, for each that made progress (and one).
    pub adjustments: u32,
}

impl Default for ResetLimits {
    fn default() -> Self {
        Self {
            window: Duration::from_secs(10),
            // A browser that leaves a page resets what is under way: 100 streams at most by default.
            resets: 200,
            provoked: 50,
            // As many as a block of `block_bytes` needs at the least, in frames of 16 KiB.
            continuations: 16,
            block_bytes: 256 * 1024,
            settings: 32,
            pings: 64,
            empty_data: 64,
            // The windows of a few dozen uploads that were refused; or 75,000 frames of one byte.
            useless_bytes: 2 << 20,
            adjustments: 200,
        }
    }
}

/// The limit that a client exceeded: the connection is to be ended (ENHANCE_YOUR_CALM).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excess {
    /// Streams reset.
    Resets,
    /// Streams that we were made to reset.
    Provoked,
    /// CONTINUATION frames, or bytes of a block.
    Continuation,
    /// SETTINGS frames.
    Settings,
    /// PING frames.
    Pings,
    /// Empty DATA frames.
    EmptyData,
    /// Bytes of DATA frames that nobody wants.
    UselessData,
    /// PRIORITY and WINDOW_UPDATE frames.
    Adjustments,
}

impl fmt::Display for Excess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Resets => "too many streams reset",
            Self::Provoked => "too many streams made to be reset",
            Self::Continuation => "a header block of too many frames or bytes",
            Self::Settings => "too many SETTINGS frames",
            Self::Pings => "too many PING frames",
            Self::EmptyData => "too many empty DATA frames",
            Self::UselessData => "too many bytes of DATA frames that nobody wants",
            Self::Adjustments => "too many PRIORITY or WINDOW_UPDATE frames",
        })
    }
}

/// The actions in the window of time.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    opened: u32,
    resets: u32,
    provoked: u32,
    settings: u32,
    pings: u32,
    empty_data: u32,
    adjustments: u32,
    progress: u32,
    useful_bytes: u64,
    data_bytes: u64,
}

/// One connection.
#[derive(Clone, Copy, Debug)]
pub struct Abuse {
    limits: ResetLimits,
    since: Option<Instant>,
    counts: Counts,
    /// Frames and bytes of the block that is under way.
    block: (u32, u32),
}

impl Abuse {
    /// A connection on which nothing happened yet.
    pub fn new(limits: ResetLimits) -> Self {
        Self { limits, since: None, counts: Counts::default(), block: (0, 0) }
    }

    /// Notes what happened; whether it is too much.
    pub fn note(&mut self, event: StreamEvent, now: Instant) -> Result<(), Excess> {
        if self.since.is_none_or(|since| now.duration_since(since) >= self.limits.window) {
            (self.since, self.counts) = (Some(now), Counts::default());
        }
        let Self { limits, counts, .. } = self;
        match event {
            StreamEvent::Opened => {
                counts.opened = counts.opened.saturating_add(1);
                Ok(())
            }
            StreamEvent::Progress => {
                counts.progress = counts.progress.saturating_add(1);
                Ok(())
            }
            StreamEvent::Reset => {
                bump(&mut counts.resets, limits.resets.max(counts.opened / 2), Excess::Resets)
            }
            StreamEvent::Provoked => bump(&mut counts.provoked, limits.provoked, Excess::Provoked),
            StreamEvent::Settings => bump(&mut counts.settings, limits.settings, Excess::Settings),
            StreamEvent::Ping => bump(&mut counts.pings, limits.pings, Excess::Pings),
            StreamEvent::EmptyData => bump(&mut counts.empty_data, limits.empty_data, Excess::EmptyData),
            StreamEvent::Adjustment => {
                let most = limits.adjustments.saturating_mul(counts.progress.saturating_add(1));
                bump(&mut counts.adjustments, most, Excess::Adjustments)
            }
            StreamEvent::Data { useful, all } => {
                counts.useful_bytes += u64::from(useful);
                counts.data_bytes += u64::from(all);
                let allowed = counts.useful_bytes * USEFUL_SHARE + u64::from(limits.useless_bytes);
                if counts.data_bytes <= allowed { Ok(()) } else { Err(Excess::UselessData) }
            }
            StreamEvent::Headers(bytes) => self.block(0, bytes),
            StreamEvent::Continuation(bytes) => self.block(1, bytes),
            StreamEvent::HeadersEnd => {
                self.block = (0, 0);
                Ok(())
            }
        }
    }

    fn block(&mut self, frames: u32, bytes: u32) -> Result<(), Excess> {
        let (had, held) = self.block;
        self.block = (had.saturating_add(frames), held.saturating_add(bytes));
        match self.block.0 <= self.limits.continuations && self.block.1 <= self.limits.block_bytes {
            true => Ok(()),
            false => Err(Excess::Continuation),
        }
    }
}

fn bump(count: &mut u32, most: u32, excess: Excess) -> Result<(), Excess> {
    *count = count.saturating_add(1);
    if *count <= most { Ok(()) } else { Err(excess) }
}
