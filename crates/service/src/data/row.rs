//! Rows, as what a service wants them to be.

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{DeserializeOwned, Deserializer, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;
use wire::data::{Value, ValueReader};

use super::DataError;

/// The result of one statement.
#[derive(Clone, Debug, PartialEq)]
pub struct Rows {
    columns: Vec<String>,
    rows: Vec<Vec<Value>>,
    changed: u64,
}

impl Rows {
    /// Reads the next result of an answer.
    pub(super) fn read(reader: &mut ValueReader<'_>) -> Result<Self, DataError> {
        let columns: Vec<String> = reader.columns()?.into_iter().map(str::to_owned).collect();
        let mut rows = Vec::new();
        loop {
            if let Some(changed) = reader.end_of_rows()? {
                return Ok(Self { columns, rows, changed });
            }
            let row = columns.iter().map(|_| Ok(reader.value()?.to_value()));
            rows.push(row.collect::<Result<Vec<_>, wire::DecodeError>>()?);
        }
    }

    /// How many rows the statement has changed.
    pub fn changed(&self) -> u64 {
        self.changed
    }

    /// Its rows.
    ///
    /// # Errors
    /// A row does not fit the type.
    pub fn into_rows<T: DeserializeOwned>(self) -> Result<Vec<T>, DataError> {
        let Self { columns, rows, .. } = self;
        rows.into_iter().map(|values| T::deserialize(RowDeserializer { columns: &columns, values })).collect()
    }
}

/// One row: a map for a struct, a sequence for a tuple, its value for anything else.
struct RowDeserializer<'c> {
    columns: &'c [String],
    values: Vec<Value>,
}

impl RowDeserializer<'_> {
    fn single(self) -> Result<Cell, DataError> {
        let count = self.values.len();
        let single = self.values.into_iter().next().filter(|_| count == 1);
        single
            .map(Cell)
            .ok_or_else(|| DataError::Shape(format!("it has {count} columns, and one value is wanted")))
    }
}

impl<'de> Deserializer<'de> for RowDeserializer<'_> {
    type Error = DataError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DataError> {
        self.single()?.deserialize_any(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DataError> {
        self.single()?.deserialize_option(visitor)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DataError> {
        self.single()?.deserialize_bool(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DataError> {
        let pairs = self.columns.iter().map(String::as_str).zip(self.values.into_iter().map(Cell));
        let mut map = MapDeserializer::new(pairs);
        let value = visitor.visit_map(&mut map)?;
        map.end()?;
        Ok(value)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DataError> {
        self.deserialize_map(visitor)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DataError> {
        let mut seq = SeqDeserializer::new(self.values.into_iter().map(Cell));
        let value = visitor.visit_seq(&mut seq)?;
        seq.end()?;
        Ok(value)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, DataError> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, DataError> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DataError> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, DataError> {
        visitor.visit_newtype_struct(self)
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf
        unit_struct enum identifier ignored_any
    }
}

/// One value of a row.
struct Cell(Value);

impl<'de> IntoDeserializer<'de, DataError> for Cell {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Cell {
    type Error = DataError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DataError> {
        match self.0 {
            Value::Null => visitor.visit_unit(),
            Value::Int(value) => visitor.visit_i64(value),
            Value::Real(value) => visitor.visit_f64(value),
            Value::Text(value) => visitor.visit_string(value),
            Value::Blob(value) => visitor.visit_byte_buf(value),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DataError> {
        match self.0 {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DataError> {
        match self.0 {
            Value::Int(value @ 0..=1) => visitor.visit_bool(value == 1),
            _ => self.deserialize_any(visitor),
        }
    }

    /// `Vec<u8>`, of which serde thinks as of any other sequence.
    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DataError> {
        match self.0 {
            Value::Blob(value) => visitor.visit_seq(SeqDeserializer::new(value.into_iter())),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, DataError> {
        visitor.visit_newtype_struct(self)
    }

    /// A word, for an enum without fields.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DataError> {
        match self.0 {
            Value::Text(value) => IntoDeserializer::<DataError>::into_deserializer(value)
                .deserialize_enum(name, variants, visitor),
            _ => self.deserialize_any(visitor),
        }
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        tuple tuple_struct map struct identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use super::super::AnyValue;
    use super::*;
    use serde::Deserialize;

    fn rows<T: DeserializeOwned>(columns: &[&str], values: Vec<Value>) -> Result<Vec<T>, DataError> {
        let columns = columns.iter().map(|&column| column.to_owned()).collect();
        Rows { columns, rows: vec![values], changed: 0 }.into_rows()
    }

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(rename_all = "lowercase")]
    enum Urgency {
        High,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    struct Id(i64);

    #[derive(Debug, Deserialize, PartialEq)]
    struct User {
        id: Id,
        name: String,
        note: Option<String>,
        raw: Vec<u8>,
        score: f64,
        on: bool,
        level: Urgency,
    }

    #[test]
    fn a_row_becomes_what_is_wanted() {
        let columns = ["note", "id", "name", "raw", "score", "on", "level"];
        let values = || {
            let text = |text: &str| Value::Text(text.into());
            vec![
                Value::Null,
                Value::Int(7),
                text("ann"),
                Value::Blob(vec![0, 255]),
                Value::Real(0.5),
                Value::Int(1),
                text("high"),
            ]
        };
        let user = User {
            id: Id(7),
            name: "ann".into(),
            note: None,
            raw: vec![0, 255],
            score: 0.5,
            on: true,
            level: Urgency::High,
        };
        assert_eq!(rows::<User>(&columns, values()), Ok(vec![user]));
        assert_eq!(rows::<(i64, String)>(&["a", "b"], values()[1..3].to_vec()), Ok(vec![(7, "ann".into())]));
        assert_eq!(rows::<i64>(&["a"], vec![Value::Int(7)]), Ok(vec![7]));
        assert_eq!(rows::<Option<i64>>(&["a"], vec![Value::Null]), Ok(vec![None]));
        assert_eq!(rows::<Id>(&["a"], vec![Value::Int(7)]), Ok(vec![Id(7)]));
        assert_eq!(rows::<bool>(&["a"], vec![Value::Int(0)]), Ok(vec![false]));
        let any: Vec<AnyValue> = values().into_iter().map(AnyValue).collect();
        assert_eq!(rows::<Vec<AnyValue>>(&columns, values()), Ok(vec![any]));
    }

    #[test]
    fn a_row_that_does_not_fit_is_said() {
        let said = |found: Result<Vec<User>, DataError>| found.unwrap_err().to_string();
        assert!(said(rows(&["id"], vec![Value::Int(1)])).contains("missing field `name`"));
        assert!(said(rows(&["id"], vec![Value::Text("x".into())])).contains("invalid type: string \"x\""));
        let two = rows::<i64>(&["a", "b"], vec![Value::Int(1), Value::Int(2)]).unwrap_err().to_string();
        assert!(two.contains("it has 2 columns"), "{two}");
        assert!(rows::<u8>(&["a"], vec![Value::Int(256)]).is_err());
        assert!(rows::<i64>(&["a"], vec![Value::Null]).is_err());
    }
}
