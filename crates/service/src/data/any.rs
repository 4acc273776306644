//! A value of a row whose type only the database knows.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, Visitor};
use wire::data::Value;

/// A value of whatever type, as a field of a row.
#[derive(Clone, Debug, PartialEq)]
pub struct AnyValue(pub Value);

impl<'de> Deserialize<'de> for AnyValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OfAnyType).map(Self)
    }
}

struct OfAnyType;

impl Visitor<'_> for OfAnyType {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of a database")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Int(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Real(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Text(value.to_owned()))
    }

    fn visit_bytes<E: Error>(self, value: &[u8]) -> Result<Value, E> {
        Ok(Value::Blob(value.to_owned()))
    }
}
