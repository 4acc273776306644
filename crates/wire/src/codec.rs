//! The encoding of messages: a version byte, a type byte, then the fields in order, integers little-endian.
//!
//! Runs in: every process. Sees: bytes from less trusted peers. Never: trusts a length.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// The version of every message; both sides come from one release, so there is one.
pub const VERSION: u8 = 1;

/// The longest message of any kind, in bytes.
///
/// LIMIT: a bundle with [`crate::TAKEN_MAX`] bytes and its fixed part; well below the default send buffer of a
/// Unix socket (212,992 bytes), which is what one message must fit into.
pub const MESSAGE_MAX: usize = 66 * 1024;

/// A message that was refused, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// It ends in the middle of a field.
    Short,
    /// Bytes are left over after the last field.
    Long,
    /// It is of another version.
    Version(u8),
    /// There is no message of this type on this edge.
    Type(u8),
    /// A field holds a value that is not allowed there.
    Value(&'static str),
    /// A field is longer than its limit.
    Limit(usize),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short => write!(f, "message ends in the middle of a field"),
            Self::Long => write!(f, "message has bytes after its last field"),
            Self::Version(found) => write!(f, "message has version {found}; this is version {VERSION}"),
            Self::Type(found) => write!(f, "no message of type {found} on this channel"),
            Self::Value(what) => write!(f, "{what} out of its range"),
            Self::Limit(limit) => write!(f, "field over its limit of {limit} bytes"),
        }
    }
}

impl std::error::Error for DecodeError {}

/// A message of one directed edge.
pub trait Message: Sized {
    /// Appends the encoded message to `out`.
    fn encode(&self, out: &mut Vec<u8>);
    /// Reads a message that must fill `bytes` exactly.
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError>;
    /// The messages of this edge, for peers in other languages.
    fn layouts() -> Vec<Layout>;
}

/// Appends a message to a record of several, behind its length.
pub(crate) fn add_item(record: &mut Vec<u8>, item: &impl Message) {
    let at = record.len();
    record.extend([0; 4]);
    item.encode(record);
    let length = (record.len() - at - 4) as u32;
    record[at..at + 4].copy_from_slice(&length.to_le_bytes());
}

/// How one message is laid out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Its type byte.
    pub number: u8,
    /// What it is called.
    pub name: &'static str,
    /// The names of its fields, in order, and what each is in the words of `python/bulkhead_service/_codec.py`.
    pub fields: Vec<(&'static str, String)>,
}

/// What is left to be read of a message.
pub(crate) struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8], DecodeError> {
        let (head, rest) = self.0.split_at_checked(count).ok_or(DecodeError::Short)?;
        self.0 = rest;
        Ok(head)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (head, rest) = self.0.split_first_chunk::<N>().ok_or(DecodeError::Short)?;
        self.0 = rest;
        Ok(*head)
    }

    /// An item of a record, as [`add_item`] has put it there.
    pub(crate) fn item(&mut self) -> Result<&'a [u8], DecodeError> {
        let length = u32::from_le_bytes(self.array()?) as usize;
        self.bytes(length)
    }

    pub(crate) fn end(&self) -> Result<(), DecodeError> {
        if self.0.is_empty() { Ok(()) } else { Err(DecodeError::Long) }
    }
}

/// A value that can be a field of a message.
pub(crate) trait Field: Sized {
    fn put(&self, out: &mut Vec<u8>);
    fn take(reader: &mut Reader<'_>) -> Result<Self, DecodeError>;
    /// What it is, for [`Layout`]; the type's own name where no peer in another language has need of it.
    fn layout() -> String {
        std::any::type_name::<Self>().into()
    }
}

/// The layout of a record or a choice.
pub(crate) fn layout_of(kind: &str, name: &str, items: &[String]) -> String {
    format!("{kind}(\"{name}\", {})", items.join(", "))
}

macro_rules! integers {
    ($($integer:ty)*) => {$(
        impl Field for $integer {
            fn layout() -> String {
                stringify!($integer).to_uppercase()
            }
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            fn take(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
                reader.array().map(Self::from_le_bytes)
            }
        }
    )*};
}
integers!(u8 u16 u32 u64);

impl Field for bool {
    fn layout() -> String {
        "BOOL".into()
    }
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
    fn take(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match u8::take(reader)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(DecodeError::Value("flag")),
        }
    }
}

impl Field for SocketAddr {
    fn layout() -> String {
        "ADDRESS".into()
    }
    fn put(&self, out: &mut Vec<u8>) {
        let ip = match self.ip() {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        out.extend_from_slice(&ip.octets());
        self.port().put(out);
    }
    fn take(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let ip = Ipv6Addr::from(reader.array::<16>()?);
        let ip = ip.to_ipv4_mapped().map_or(IpAddr::V6(ip), IpAddr::V4);
        Ok(Self::new(ip, u16::take(reader)?))
    }
}

/// Bytes of a message, at most `MAX` of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bytes<const MAX: usize>(pub Vec<u8>);

impl<const MAX: usize> Field for Bytes<MAX> {
    fn layout() -> String {
        format!("Bytes({MAX})")
    }
    fn put(&self, out: &mut Vec<u8>) {
        debug_assert!(self.0.len() <= MAX, "a sender keeps the limit of its own message");
        (self.0.len() as u32).put(out);
        out.extend_from_slice(&self.0);
    }
    fn take(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let count = u32::take(reader)? as usize;
        if count > MAX {
            return Err(DecodeError::Limit(MAX));
        }
        Ok(Self(reader.bytes(count)?.to_vec()))
    }
}

/// Text of a message, at most `MAX` bytes of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Text<const MAX: usize>(String);

impl<const MAX: usize> Text<MAX> {
    /// Takes `text`, cut at the limit (at a character's border).
    pub fn new(text: impl Into<String>) -> Self {
        let mut text = text.into();
        text.truncate(text.floor_char_boundary(MAX));
        Self(text)
    }

    /// The text itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<const MAX: usize> Field for Text<MAX> {
    fn layout() -> String {
        format!("Text({MAX})")
    }
    fn put(&self, out: &mut Vec<u8>) {
        (self.0.len() as u16).put(out);
        out.extend_from_slice(self.0.as_bytes());
    }
    fn take(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let count = u16::take(reader)? as usize;
        if count > MAX {
            return Err(DecodeError::Limit(MAX));
        }
        let text = std::str::from_utf8(reader.bytes(count)?).map_err(|_| DecodeError::Value("text"))?;
        Ok(Self(text.to_owned()))
    }
}

/// The most numbers in one message.
///
/// LIMIT: 8 KiB of them; who has more to say sends another message.
pub const NUMBERS_MAX: usize = 1024;

impl Field for Vec<u64> {
    fn layout() -> String {
        format!("List(U64, {NUMBERS_MAX})")
    }
    fn put(&self, out: &mut Vec<u8>) {
        debug_assert!(self.len() <= NUMBERS_MAX, "a sender keeps the limit of its own message");
        (self.len() as u16).put(out);
        self.iter().for_each(|item| item.put(out));
    }
    fn take(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let count = u16::take(reader)? as usize;
        if count > NUMBERS_MAX {
            return Err(DecodeError::Limit(NUMBERS_MAX));
        }
        // SECURITY: the items must be there before room is made for them.
        let mut items = Reader(reader.bytes(count * 8)?);
        (0..count).map(|_| u64::take(&mut items)).collect()
    }
}

/// Declares a structure whose fields are encoded in order.
macro_rules! record {
    ($(#[$outer:meta])* pub struct $name:ident { $($(#[$inner:meta])* $field:ident : $type:ty),* $(,)? }) => {
        $(#[$outer])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name { $($(#[$inner])* pub $field: $type),* }
        impl $crate::codec::Field for $name {
            fn put(&self, out: &mut Vec<u8>) {
                $(self.$field.put(out);)*
            }
            fn take(reader: &mut $crate::codec::Reader<'_>) -> Result<Self, $crate::codec::DecodeError> {
                Ok(Self { $($field: $crate::codec::Field::take(reader)?),* })
            }
            fn layout() -> String {
                let fields = [$((stringify!($field), <$type as $crate::codec::Field>::layout())),*];
                let fields = fields.map(|(name, layout)| format!("(\"{name}\", {layout})"));
                $crate::codec::layout_of("Record", stringify!($name), &fields)
            }
        }
    };
}

/// Declares a record of counts. A count with a word is a reason why something was shed; people are told the word.
macro_rules! counters {
    ($(#[$outer:meta])* pub struct $name:ident {
        $($(#[$inner:meta])* $field:ident : $type:ty $(= $word:literal)?),* $(,)?
    }) => {
        $crate::codec::record! {
            $(#[$outer])*
            #[derive(Default)]
            pub struct $name { $($(#[$inner])* $field: $type),* }
        }
        impl $name {
            /// The reasons among the counts: the name of each, the word that people are told, and how many.
            pub fn reasons(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
                let words: [&[&str]; _] = [$(&[$($word)?]),*];
                self.counts().zip(words).filter_map(|((name, count), words)| Some((name, *words.first()?, count)))
            }
            /// The counts, each under its name.
            pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($field), u64::from(self.$field))),*].into_iter()
            }
            /// Counts from 1 on, in the order of their names, for tests: none of them can take the place of another.
            pub fn numbered() -> Self {
                let mut numbers = 1..=u8::MAX;
                Self { $($field: <$type>::from(numbers.next().unwrap_or_default())),* }
            }
        }
    };
}

/// Declares a field type of few values, one byte each.
macro_rules! choice {
    ($(#[$outer:meta])* pub enum $name:ident { $($(#[$inner:meta])* $number:literal => $variant:ident),* $(,)? }) => {
        $(#[$outer])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$inner])* $variant = $number),* }
        impl $crate::codec::Field for $name {
            fn put(&self, out: &mut Vec<u8>) {
                out.push(*self as u8);
            }
            fn take(reader: &mut $crate::codec::Reader<'_>) -> Result<Self, $crate::codec::DecodeError> {
                match <u8 as $crate::codec::Field>::take(reader)? {
                    $($number => Ok(Self::$variant),)*
                    _ => Err($crate::codec::DecodeError::Value(stringify!($name))),
                }
            }
            fn layout() -> String {
                let names = [$(format!("({}, \"{}\")", $number, stringify!($variant))),*];
                $crate::codec::layout_of("Choice", stringify!($name), &names)
            }
        }
    };
}

/// Declares the messages of one directed edge.
macro_rules! messages {
    ($(#[$outer:meta])* pub enum $name:ident {
        $($(#[$inner:meta])* $number:literal => $variant:ident { $($(#[$doc:meta])* $field:ident : $type:ty),* $(,)? }),* $(,)?
    }) => {
        $(#[$outer])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "the fields of a message are explained at the message")]
        pub enum $name { $($(#[$inner])* $variant { $($(#[$doc])* $field: $type),* }),* }
        impl $crate::codec::Message for $name {
            fn encode(&self, out: &mut Vec<u8>) {
                out.push($crate::codec::VERSION);
                match self {
                    $(Self::$variant { $($field),* } => {
                        out.push($number);
                        $($crate::codec::Field::put($field, out);)*
                    })*
                }
            }
            fn decode(bytes: &[u8]) -> Result<Self, $crate::codec::DecodeError> {
                let mut reader = $crate::codec::Reader(bytes);
                let [version, kind] = reader.array()?;
                if version != $crate::codec::VERSION {
                    return Err($crate::codec::DecodeError::Version(version));
                }
                let message = match kind {
                    $($number => Self::$variant { $($field: $crate::codec::Field::take(&mut reader)?),* },)*
                    other => return Err($crate::codec::DecodeError::Type(other)),
                };
                reader.end()?;
                Ok(message)
            }
            fn layouts() -> Vec<$crate::codec::Layout> {
                vec![$($crate::codec::Layout {
                    number: $number,
                    name: stringify!($variant),
                    fields: vec![$((stringify!($field), <$type as $crate::codec::Field>::layout())),*],
                }),*]
            }
        }
    };
}

pub(crate) use {choice, counters, messages, record};
