//! Reading a table of public values.
//!
//! Runs in: the launcher (root) and the `bulkhead` command. Input: the operator's file after the TOML parser. Must
//! never: convert one type to another.

use toml::de::DeValue;

use super::Entry;
use crate::diagnostic::Problems;
use crate::parse::{KeyFault, names};
use crate::rules::{PUBLIC_TEXT_MAX, PUBLIC_VALUES_MAX};
use crate::schema::PublicValue;

impl Entry<'_> {
    /// The names and values of a table of texts, whole numbers and booleans, sorted by name.
    pub(crate) fn public_values(&self, problems: &mut Problems) -> Vec<(String, PublicValue)> {
        let Some(table) = self.value.as_table() else {
            self.wrong_type("a table", Some("write `{ company = \"ACME\" }`".into()), problems);
            return Vec::new();
        };
        if table.len() > PUBLIC_VALUES_MAX {
            let message =
                format!("`{}` has {} values; it has at most {PUBLIC_VALUES_MAX}", self.key, table.len());
            problems.report_help(self.offset, message, "put what belongs together into a template");
        }
        let mut values = Vec::new();
        for (key, value) in table {
            let name = key.get_ref().as_ref();
            let at_key = Entry {
                key: self.key,
                value: self.value,
                base: self.base,
                offset: self.base + key.span().start,
            };
            if let Err(fault) = names::variable(name).and_then(|()| short(name, 63)) {
                at_key.fault(name, fault, problems);
            }
            let value = Entry::new(name, value, self.base).public_value(problems);
            values.extend(value.map(|value| (name.to_owned(), value)));
        }
        values
    }

    fn public_value(&self, problems: &mut Problems) -> Option<PublicValue> {
        match self.value {
            DeValue::Boolean(value) => Some(PublicValue::Bool(*value)),
            DeValue::String(text) => match short(text, PUBLIC_TEXT_MAX) {
                Ok(()) => Some(PublicValue::Text(text.to_string())),
                Err(fault) => {
                    self.fault(text, fault, problems);
                    None
                }
            },
            DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
                Ok(number) => Some(PublicValue::Int(number)),
                Err(_) => {
                    problems.report(self.offset, format!("`{}` is no number of 64 bits", self.key));
                    None
                }
            },
            _ => {
                let help = Some("write what has parts into a template".into());
                self.wrong_type("a string, an integer or a boolean", help, problems);
                None
            }
        }
    }
}

fn short(text: &str, max: usize) -> Result<(), KeyFault> {
    match text.len() > max {
        true => Err(KeyFault::new(format!("it has more than {max} bytes"))),
        false => Ok(()),
    }
}
