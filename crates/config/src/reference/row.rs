//! A line of a table of docs/configuration.md.
//!
//! Runs in: `cargo test`. Input: none.

use crate::readers::{
    Bytes, Bytes32, Count, DoorPlace, Duration, Flag, FolderList, GrantList, NameList, OptionalCount,
    OptionalDuration, OptionalNumber, OptionalText, PlacedFlag, ReadElsewhere, ServiceCommand, ServiceName,
    ServicePath, Size, Variables, WorkerCount,
};
use crate::rules::Bounds;

/// How the value of a key is written.
#[derive(Clone, Copy)]
pub(super) enum Unit {
    Count,
    Duration,
    Size,
    Rate,
}

/// The type and the default of a key.
pub(super) enum KeyValue {
    /// A number: its bounds and its default, if it has a fixed one.
    Number(Unit, &'static Bounds),
    /// Anything else, in words.
    Other(&'static str),
}

/// A line of a table of the page: one key, or several that share a description.
pub(super) struct KeyRow {
    /// A key, or text that has several of them in backquotes.
    pub(super) keys: &'static str,
    pub(super) value: KeyValue,
    /// What holds where the key is absent; empty if the bounds say so.
    pub(super) default: &'static str,
    pub(super) rule: &'static str,
    /// The effect of a reload when the key has changed; `None`: as for the table.
    pub(super) reload: Option<Reload>,
    /// The one that may set the key; `None`: as for the table.
    pub(super) setter: Option<Setter>,
}

/// The processes that a reload replaces when a key has changed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reload {
    /// No process: the new value holds from then on.
    Nothing,
    /// No process: the logger goes by the new value.
    Logger,
    /// No process: gates listen as the key says now.
    Listeners,
    /// The processes of the site.
    Site,
    /// The processes of all sites.
    Sites,
    /// The processes of all sites with certificates.
    Certified,
    /// Gates.
    Gates,
    /// Gates, and the processes of all sites.
    GatesAndSites,
    /// The stapler.
    Stapler,
    /// All filters.
    Filters,
    /// A reload is refused.
    Restart,
}

/// The people that may set a key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Setter {
    /// The operator of the machine, in the main file: the key is about the whole server.
    Operator,
    /// Everybody that may say what runs as whom, in a file of sites as well.
    SiteFile,
    /// The owner of a site, if such a key were left to the owner: it says nothing but how the site answers with its own
    /// content.
    Tenant,
}

impl Reload {
    /// All, each with its word in the table and what it means.
    pub(super) const ALL: [(Self, &'static str, &'static str); 11] = [
        (Self::Nothing, "nothing", "no process: the new value holds from then on"),
        (Self::Logger, "logger", "no process: the logger writes the next line by the new value"),
        (Self::Listeners, "listeners", "no process: gates listen as the key says now"),
        (Self::Site, "site", "the processes of the site: its worker, its services, and what works for them"),
        (Self::Sites, "all sites", "the processes of all sites"),
        (Self::Certified, "sites with TLS", "the processes of all sites with certificates"),
        (Self::Gates, "gates", "gates"),
        (Self::GatesAndSites, "gates, all sites", "gates, and the processes of all sites"),
        (Self::Stapler, "stapler", "the stapler"),
        (
            Self::Filters,
            "filters",
            "all filters; with the first one and without the last one, the processes of all sites as well",
        ),
        (Self::Restart, "restart", "nothing: the reload is refused, and the key takes a restart"),
    ];

    pub(super) fn word(self) -> &'static str {
        Self::ALL.iter().find(|(one, ..)| *one == self).map_or("", |(_, word, _)| word)
    }
}

impl Setter {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::SiteFile => "site",
            Self::Tenant => "tenant",
        }
    }
}

impl KeyRow {
    pub(super) const fn number(
        keys: &'static str,
        unit: Unit,
        bounds: &'static Bounds,
        rule: &'static str,
    ) -> Self {
        Self { keys, value: KeyValue::Number(unit, bounds), default: "", rule, reload: None, setter: None }
    }

    pub(super) const fn other(
        keys: &'static str,
        kind: &'static str,
        default: &'static str,
        rule: &'static str,
    ) -> Self {
        Self { keys, value: KeyValue::Other(kind), default, rule, reload: None, setter: None }
    }

    /// A row of an entry of `keys`: what its reader says, and the default if that is another.
    pub(super) const fn entry(
        (keys, rule): (&'static str, &'static str),
        (value, usual): (KeyValue, &'static str),
        default: &'static str,
        (reload, setter): (Reload, Setter),
    ) -> Self {
        let default = if default.is_empty() { usual } else { default };
        Self { keys, value, default, rule, reload: Some(reload), setter: Some(setter) }
    }

    /// The same, if a reload does something else than for most keys of the table.
    pub(super) const fn reload(self, reload: Reload) -> Self {
        Self { reload: Some(reload), ..self }
    }

    /// The same, if the owner of a site may set the key.
    pub(super) const fn tenant(self) -> Self {
        Self { setter: Some(Setter::Tenant), ..self }
    }

    /// What holds where the key is absent, for a number without a fixed default.
    pub(super) const fn absent(self, default: &'static str) -> Self {
        Self { default, ..self }
    }

    pub(super) fn first_cell(&self) -> String {
        if self.keys.contains('`') { self.keys.to_owned() } else { format!("`{}`", self.keys) }
    }

    /// The line; `of_table` is what holds for keys that say nothing else of a reload and of who sets them.
    pub(super) fn text(&self, of_table: (Reload, Setter)) -> String {
        let (kind, default) = match self.value {
            KeyValue::Number(unit, bounds) => (unit.kind(bounds), unit.default(bounds)),
            KeyValue::Other(kind) => (kind.to_owned(), None),
        };
        // A site's limit has the bounds of that of all sites, and this by default.
        let default = default.filter(|_| self.default.is_empty()).unwrap_or_else(|| self.default.to_owned());
        assert!(!default.is_empty(), "no default for {}", self.keys);
        let (reload, setter) = (self.reload.unwrap_or(of_table.0), self.setter.unwrap_or(of_table.1));
        let (reload, setter) = (reload.word(), setter.word());
        format!("| {} | {kind} | {default} | {reload} | {setter} | {} |\n", self.first_cell(), self.rule)
    }
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Unit::Count => "integer",
            Unit::Duration => "duration",
            Unit::Size => "size",
            Unit::Rate => "rate",
        }
    }

    /// The units of a value, the largest first.
    fn units(self) -> &'static [(&'static str, u64)] {
        match self {
            Unit::Count => &[("", 1)],
            Unit::Duration => &[("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)],
            Unit::Size => &[("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)],
            Unit::Rate => &[("GiB/s", 1 << 30), ("MiB/s", 1 << 20), ("KiB/s", 1 << 10), ("B/s", 1)],
        }
    }

    /// A number in the largest unit in which it is whole.
    fn text(self, number: u64, between: &str) -> String {
        let fits = |(_, one): &&(&str, u64)| number != 0 && number.is_multiple_of(*one);
        match self.units().iter().find(fits) {
            Some((unit, one)) if !unit.is_empty() => format!("{}{between}{unit}", number / one),
            _ => number.to_string(),
        }
    }

    fn kind(self, bounds: &Bounds) -> String {
        format!("{}, {} to {}", self.name(), self.text(bounds.min, " "), self.text(bounds.max, " "))
    }

    fn default(self, bounds: &Bounds) -> Option<String> {
        bounds.default.map(|number| match self {
            Unit::Count => number.to_string(),
            _ => format!("`\"{}\"`", self.text(number, "")),
        })
    }
}

/// Readers describe the value, and the default.
macro_rules! described {
    ($($reader:ident: |$self:ident| $value:expr, $default:literal;)*) => {$(
        impl $reader {
            pub(super) const fn value(&self) -> (KeyValue, &'static str) {
                let $self = self;
                ($value, $default)
            }
        }
    )*};
}

described! {
    Flag: |_reader| KeyValue::Other("boolean"), "`false`";
    PlacedFlag: |_reader| KeyValue::Other("boolean"), "`false`";
    DoorPlace: |_reader| KeyValue::Other("boolean"), "`false`";
    Size: |reader| KeyValue::Number(Unit::Size, reader.0), "";
    Count: |reader| KeyValue::Number(Unit::Count, reader.0), "";
    ReadElsewhere: |reader| KeyValue::Number(Unit::Duration, reader.0), "";
    Bytes: |reader| KeyValue::Number(Unit::Size, reader.0), "";
    Bytes32: |reader| KeyValue::Number(Unit::Size, reader.0), "";
    Duration: |reader| KeyValue::Number(Unit::Duration, reader.0), "";
    OptionalCount: |reader| KeyValue::Number(Unit::Count, reader.0), "";
    OptionalNumber: |reader| KeyValue::Number(Unit::Count, reader.0), "";
    OptionalDuration: |reader| KeyValue::Number(Unit::Duration, reader.0), "";
    OptionalText: |_reader| KeyValue::Other("string"), "";
    NameList: |_reader| KeyValue::Other("array of strings"), "`[]`";
    FolderList: |_reader| KeyValue::Other("array of folders"), "`[]`";
    Variables: |_reader| KeyValue::Other("table of strings"), "`{}`";
    GrantList: |_reader| KeyValue::Other("array of `\"tcp:PORT\"`, `\"tcp:HOSTS:PORT\"`, `\"udp\"`"), "`[]`";
    WorkerCount: |_reader| KeyValue::Other("integer, 1 to 64, or `{ min, max }`"), "`1`";
    ServiceName: |_reader| KeyValue::Other("string"), "required";
    ServicePath: |_reader| KeyValue::Other("string"), "required, but for `remote`";
    ServiceCommand: |_reader| KeyValue::Other("array of strings, a program first"), "required, but for `remote`";
}

/// The rows of a table of `keys`.
macro_rules! rows {
    ($header:literal $checked:ident $($raw:ident)?;
    $(beside { $($(#[$beside_doc:meta])* $beside:ident: $beside_type:ty = $beside_of:ident),* })?
    $($(#[$doc:meta])* $key:literal $field:ident: $type:ty = $reader:ident $(($argument:expr))?,
        $reload:ident, $setter:ident, $default:literal, $rule:literal;)*) => {
        &[$(KeyRow::entry(
            ($key, $rule),
            $reader $(($argument))?.value(),
            $default,
            (Reload::$reload, Setter::$setter),
        )),*]
    };
}
pub(super) use rows;
