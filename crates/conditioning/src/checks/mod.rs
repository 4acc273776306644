//! Checks of a request head beyond its syntax: nothing passes that is only ever sent to do harm.
//!
//! Runs in: gates, site workers, filters; pure, allocates nothing. Sees: heads, which anybody may send. Never:
//! panics, or takes longer than a few looks at each byte.
//!
//! The crate `request` decides what a head *is*, and refuses what could be read in two ways; this refuses what is
//! unambiguous and harmful (`Lenient`), what readers take for different things (`Standard`), or what is merely strange
//! (`Strict`). It knows nothing of a head but its lines, so a
//! filter may use it alone.

mod line;
mod target;

use std::fmt;

/// How much is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Only what does harm to programs that are not careful.
    Lenient,
    /// Refuses heads that two readers could understand differently, and attacks, as well; passes heads that Apache,
    /// nginx and Caddy pass and servers behind them read in one way.
    Standard,
    /// Refuses unusual heads as well, though some harmless client might send them.
    Strict,
}

/// How much of what is too much, by setting.
///
/// LIMIT: the strict ones are above what browsers, their cookies and common programs send; the lenient ones are where
/// the work that a careless program does (quadratic, at worst) begins to hurt.
struct CheckLimits {
    method_bytes: usize,
    target_bytes: usize,
    /// Slashes in a row.
    slashes: usize,
    /// Parts of a path.
    segments: usize,
    /// `&` and `;` in a query.
    parameters: usize,
    lines: usize,
    name_bytes: usize,
    value_bytes: usize,
    /// Lines of one name.
    repeated: usize,
    /// Commas in a value.
    elements: usize,
    /// Ranges in a `Range`.
    ranges: usize,
}

/// LIMIT: bytes of a target, but in strict checks.
pub const TARGET_BYTES_MAX: usize = 16 << 10;

const STRICT: CheckLimits = CheckLimits {
    method_bytes: 16,
    target_bytes: 4 << 10,
    slashes: 3,
    segments: 64,
    parameters: 200,
    lines: 64,
    name_bytes: 64,
    value_bytes: 8 << 10,
    repeated: 8,
    elements: 100,
    ranges: 8,
};

const LENIENT: CheckLimits = CheckLimits {
    method_bytes: 32,
    target_bytes: TARGET_BYTES_MAX,
    slashes: 16,
    segments: 512,
    parameters: 2000,
    lines: LINES_MAX,
    name_bytes: 256,
    value_bytes: 32 << 10,
    repeated: 32,
    elements: 1000,
    ranges: 64,
};

/// LIMIT: lines in any setting, as many as the crate `request` takes.
const LINES_MAX: usize = 100;

/// The faults of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadFault {
    /// It is not whole, or its first line is not a method, a target and a version.
    Shape,
    /// A control character, a NUL or a bare carriage return.
    Control,
    /// A line that continues the one before it.
    Folded,
    /// A line without a name, or whose name is no token.
    Name,
    /// A longer method than the limit.
    Method,
    /// A longer target than the limit.
    Target,
    /// More slashes in a row than the limit: the beck attack.
    Slashes,
    /// A path of more parts than the limit.
    Segments,
    /// A query of more parameters than the limit.
    Parameters,
    /// A path that climbs above its root.
    Climbing,
    /// An encoding of what is not encoded but to hide it: NUL, slash, backslash, control characters, `%` itself.
    Hidden,
    /// A `%` that begins no encoding, or a byte that no target has.
    Encoding,
    /// More header lines than the limit.
    Lines,
    /// More lines of one name than the limit.
    Repeated,
    /// A longer name than the limit.
    NameLength,
    /// A longer value than the limit.
    ValueLength,
    /// A list of more elements than the limit.
    Elements,
    /// More ranges than the limit.
    Ranges,
    /// A `Host` that no client has reason to send.
    Host,
    /// A `Connection` that takes away a header line which is not of the connection.
    Connection,
    /// A header line that exists only for attacks on programs behind.
    Forged,
}

impl fmt::Display for HeadFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())
    }
}

impl HeadFault {
    /// The fault, for a sentence.
    pub fn words(self) -> &'static str {
        match self {
            Self::Shape => "not a whole request head",
            Self::Control => "a control character",
            Self::Folded => "a header line in several parts",
            Self::Name => "a header line without a proper name",
            Self::Method => "a method that is too long",
            Self::Target => "a target that is too long",
            Self::Slashes => "too many slashes in a row",
            Self::Segments => "a path of too many parts",
            Self::Parameters => "too many parameters",
            Self::Climbing => "a path that climbs above its root",
            Self::Hidden => "an encoding that hides something",
            Self::Encoding => "an encoding that is none",
            Self::Lines => "too many header lines",
            Self::Repeated => "too many header lines of one name",
            Self::NameLength => "the name of a header line is too long",
            Self::ValueLength => "the value of a header line is too long",
            Self::Elements => "a list of too many elements",
            Self::Ranges => "too many ranges",
            Self::Host => "a strange Host",
            Self::Connection => "a Connection that takes away what is not its own",
            Self::Forged => "a header line that is only used for attacks",
        }
    }
}

impl Setting {
    fn limits(self) -> &'static CheckLimits {
        match self {
            Self::Lenient | Self::Standard => &LENIENT,
            Self::Strict => &STRICT,
        }
    }
}

/// Checks a whole head, from its first byte to the empty line at its end.
pub fn check(head: &[u8], setting: Setting) -> Result<(), HeadFault> {
    let mut lines = Lines { rest: head };
    let limits = setting.limits();
    // RFC 9112 2.2: empty lines before the first one are to be ignored.
    let first = loop {
        match lines.next().ok_or(HeadFault::Shape)?? {
            [] => {}
            first => break first,
        }
    };
    target::check_request_line(first, setting, limits)?;
    let mut names = SeenNames { seen: [0; LINES_MAX], count: 0 };
    for line in lines {
        let line = line?;
        if line.is_empty() {
            return Ok(());
        }
        let line = line::split(line)?;
        line::check(line.name, line.value, setting, limits)?;
        names.add(line.number, limits)?;
    }
    Err(HeadFault::Shape)
}

/// Checks the head of a request that came in parts, as HTTP/2 sends it; names and values without control characters.
pub fn check_fields<'a>(
    method: &str,
    target: &str,
    fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    setting: Setting,
) -> Result<(), HeadFault> {
    let limits = setting.limits();
    target::check(method.as_bytes(), target.as_bytes(), setting, limits)?;
    let mut names = SeenNames { seen: [0; LINES_MAX], count: 0 };
    for (name, value) in fields {
        line::check(name, value, setting, limits)?;
        names.add(line::number(name)?, limits)?;
    }
    Ok(())
}

/// The lines of a head, each without its end.
struct Lines<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Lines<'a> {
    type Item = Result<&'a [u8], HeadFault>;

    fn next(&mut self) -> Option<Self::Item> {
        let end = find_control(self.rest)?;
        let (line, rest) = self.rest.split_at(end);
        match rest {
            [b'\r', b'\n', rest @ ..] | [b'\n', rest @ ..] => {
                self.rest = rest;
                Some(Ok(line))
            }
            // It has not come yet.
            [b'\r'] => None,
            _ => {
                self.rest = &[];
                Some(Err(HeadFault::Control))
            }
        }
    }
}

fn is_control(byte: u8) -> bool {
    byte.is_ascii_control() && byte != b'\t'
}

/// Where the first control character is, eight bytes at a look.
fn find_control(text: &[u8]) -> Option<usize> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let mut words = text.chunks_exact(8);
    let mut passed = 0;
    for word in &mut words {
        let word = word.iter().rev().fold(0_u64, |word, &byte| word << 8 | u64::from(byte));
        // In each byte the highest bit, if it is less than a blank (or if one before it is), or is DEL.
        let low = word.wrapping_sub(ONES * 0x20) & !word;
        let delete = (word ^ (ONES * 0x7f)).wrapping_sub(ONES) & !(word ^ (ONES * 0x7f));
        if (low | delete) & (ONES << 7) != 0
            && let Some(at) = text[passed..passed + 8].iter().position(|&byte| is_control(byte))
        {
            return Some(passed + at);
        }
        passed += 8;
    }
    words.remainder().iter().position(|&byte| is_control(byte)).map(|at| passed + at)
}

/// The names of the lines so far, as numbers: two names of one number are as good as never met, and harm but the
/// client that sends them.
struct SeenNames {
    seen: [u32; LINES_MAX],
    count: usize,
}

impl SeenNames {
    fn add(&mut self, number: u32, limits: &CheckLimits) -> Result<(), HeadFault> {
        if self.count >= limits.lines {
            return Err(HeadFault::Lines);
        }
        let before = self.seen[..self.count].iter().filter(|&&other| other == number).count();
        self.seen[self.count] = number;
        self.count += 1;
        if before < limits.repeated { Ok(()) } else { Err(HeadFault::Repeated) }
    }
}
