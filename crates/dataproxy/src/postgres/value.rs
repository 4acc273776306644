//! Values on their way to PostgreSQL and back.

use std::error::Error;

use bytes::BytesMut;
use statements::Type as Declared;
use tokio_postgres::types::{Format, FromSql, IsNull, Kind, ToSql, Type};
use wire::data::{Value, ValueRef};

type ConversionError = Box<dyn Error + Sync + Send>;

/// Whether the server's type takes a parameter that was declared so. Other types than ours are written as text: dates,
/// numerics, JSON, UUIDs.
pub(super) fn takes(wanted: &Type, declared: Declared) -> bool {
    match declared {
        Declared::Int => is_integer(wanted) || *wanted == Type::NUMERIC,
        Declared::Real => is_real(wanted) || *wanted == Type::NUMERIC,
        Declared::Bool => *wanted == Type::BOOL,
        Declared::Blob => *wanted == Type::BYTEA,
        Declared::Text => {
            ![Type::BOOL, Type::BYTEA].contains(wanted) && !is_integer(wanted) && !is_real(wanted)
        }
    }
}

/// Whether a column's values can be passed on as they are.
pub(super) fn gives(kind: &Type) -> bool {
    let others = [Type::BOOL, Type::BYTEA, Type::UUID, Type::JSONB];
    is_integer(kind) || is_real(kind) || is_text(kind) || others.contains(kind)
}

/// The type that a column's values have for a service.
pub(super) fn described(kind: &Type) -> Option<Declared> {
    Some(match kind {
        kind if is_integer(kind) => Declared::Int,
        kind if is_real(kind) => Declared::Real,
        kind if *kind == Type::BOOL => Declared::Bool,
        kind if *kind == Type::BYTEA => Declared::Blob,
        kind if is_text(kind) || [Type::UUID, Type::JSONB].contains(kind) => Declared::Text,
        _ => return None,
    })
}

fn is_integer(kind: &Type) -> bool {
    [Type::INT2, Type::INT4, Type::INT8, Type::OID].contains(kind)
}

fn is_real(kind: &Type) -> bool {
    [Type::FLOAT4, Type::FLOAT8].contains(kind)
}

/// Whether the server writes the type as UTF-8.
fn is_text(kind: &Type) -> bool {
    let known = [Type::TEXT, Type::VARCHAR, Type::BPCHAR, Type::NAME, Type::JSON, Type::XML, Type::UNKNOWN];
    known.contains(kind) || matches!(kind.kind(), Kind::Enum(_))
}

/// A value that is bound, never spliced.
#[derive(Debug)]
pub(super) struct BoundValue<'a>(pub(super) &'a Value);

impl ToSql for BoundValue<'_> {
    fn to_sql(&self, wanted: &Type, out: &mut BytesMut) -> Result<IsNull, ConversionError> {
        match self.0 {
            Value::Null => return Ok(IsNull::Yes),
            Value::Int(value) => return int(*value, wanted, out),
            Value::Real(value) if *wanted == Type::FLOAT4 => (*value as f32).to_sql(wanted, out)?,
            Value::Real(value) if *wanted == Type::FLOAT8 => value.to_sql(wanted, out)?,
            Value::Real(value) => value.to_string().to_sql(&Type::TEXT, out)?,
            Value::Text(value) => value.to_sql(&Type::TEXT, out)?,
            Value::Blob(value) => value.to_sql(&Type::BYTEA, out)?,
        };
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn encode_format(&self, wanted: &Type) -> Format {
        let is_binary =
            *wanted == Type::BOOL || *wanted == Type::BYTEA || is_integer(wanted) || is_real(wanted);
        if is_binary { Format::Binary } else { Format::Text }
    }

    fn to_sql_checked(&self, wanted: &Type, out: &mut BytesMut) -> Result<IsNull, ConversionError> {
        self.to_sql(wanted, out)
    }
}

fn int(value: i64, wanted: &Type, out: &mut BytesMut) -> Result<IsNull, ConversionError> {
    let outside = |_| format!("{value} is outside of {wanted}");
    match wanted {
        wanted if *wanted == Type::BOOL => (value != 0).to_sql(wanted, out),
        wanted if *wanted == Type::INT2 => i16::try_from(value).map_err(outside)?.to_sql(wanted, out),
        wanted if *wanted == Type::INT4 => i32::try_from(value).map_err(outside)?.to_sql(wanted, out),
        wanted if *wanted == Type::OID => u32::try_from(value).map_err(outside)?.to_sql(wanted, out),
        wanted if *wanted == Type::INT8 => value.to_sql(wanted, out),
        _ => value.to_string().to_sql(&Type::TEXT, out),
    }
}

/// A value of a row, as the server has written it.
pub(super) struct Column<'a>(Type, Option<&'a [u8]>);

impl<'a> FromSql<'a> for Column<'a> {
    fn from_sql(kind: &Type, bytes: &'a [u8]) -> Result<Self, ConversionError> {
        Ok(Self(kind.clone(), Some(bytes)))
    }

    fn from_sql_null(kind: &Type) -> Result<Self, ConversionError> {
        Ok(Self(kind.clone(), None))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

impl Column<'_> {
    /// Writes the value for the service.
    ///
    /// # Errors
    /// The server has written something else than its type says.
    pub(super) fn put(&self, out: &mut Vec<u8>) -> Result<(), String> {
        let Self(kind, bytes) = self;
        let Some(bytes) = *bytes else {
            ValueRef::Null.put(out);
            return Ok(());
        };
        let value = value(kind, bytes).ok_or_else(|| format!("the server's {kind} is none"))?;
        match (kind, value) {
            (kind, ValueRef::Blob(bytes)) if *kind == Type::UUID => ValueRef::Text(&uuid(bytes)).put(out),
            (_, value) => value.put(out),
        }
        Ok(())
    }
}

/// A value as its type says; a UUID as its bytes. `None` if the bytes are not of the type.
fn value<'a>(kind: &Type, bytes: &'a [u8]) -> Option<ValueRef<'a>> {
    let text = |bytes| std::str::from_utf8(bytes).ok().map(ValueRef::Text);
    match kind {
        kind if *kind == Type::BOOL => bytes.first().map(|&byte| ValueRef::Int(byte.into())),
        kind if *kind == Type::INT2 => Some(ValueRef::Int(i16::from_be_bytes(bytes.try_into().ok()?).into())),
        kind if *kind == Type::INT4 => Some(ValueRef::Int(i32::from_be_bytes(bytes.try_into().ok()?).into())),
        kind if *kind == Type::OID => Some(ValueRef::Int(u32::from_be_bytes(bytes.try_into().ok()?).into())),
        kind if *kind == Type::INT8 => Some(ValueRef::Int(i64::from_be_bytes(bytes.try_into().ok()?))),
        kind if *kind == Type::FLOAT4 => {
            Some(ValueRef::Real(f32::from_be_bytes(bytes.try_into().ok()?).into()))
        }
        kind if *kind == Type::FLOAT8 => Some(ValueRef::Real(f64::from_be_bytes(bytes.try_into().ok()?))),
        // The version of its format stands before.
        kind if *kind == Type::JSONB => {
            bytes.split_first().filter(|(version, _)| **version == 1).and_then(|(_, rest)| text(rest))
        }
        kind if is_text(kind) => text(bytes),
        _ => Some(ValueRef::Blob(bytes)),
    }
}

/// RFC 9562, 4.
fn uuid(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(36);
    for (at, byte) in bytes.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The entry for fuzzing: a type by its number among those that a column may have, and a value of it; for a service.
pub(crate) fn fuzz(data: &[u8]) -> Option<Vec<u8>> {
    let kinds = [
        Type::BOOL,
        Type::INT2,
        Type::INT4,
        Type::OID,
        Type::INT8,
        Type::FLOAT4,
        Type::FLOAT8,
        Type::TEXT,
        Type::JSONB,
        Type::UUID,
        Type::BYTEA,
    ];
    let (number, bytes) = data.split_first()?;
    let kind = kinds.get(usize::from(*number))?;
    assert!(gives(kind), "{kind} is no type of a column");
    let mut value = Vec::new();
    Column::from_sql(kind, bytes).ok()?.put(&mut value).ok()?;
    Some(value)
}
