//! Reading numbers, durations and sizes, each within its bounds.
//!
//! Runs in: the launcher (root) and the `bulkhead` command. Input: the operator's file after the TOML
//! parser. Must never: clamp a value into its bounds, or wrap it.

use toml::de::DeValue;

use super::{Entry, Table};
use crate::diagnostic::{Problems, escape, quote};
use crate::parse::units;
use crate::rules::Bounds;

/// Bounds of 32-bit fields lie within 32 bits, so nothing is lost here.
pub(crate) fn narrow(value: Option<u64>) -> u32 {
    u32::try_from(value.unwrap_or(0)).unwrap_or(u32::MAX)
}

impl<'t> Table<'t> {
    /// A whole number, or its default.
    pub(crate) fn count(&self, key: &'t str, bounds: &Bounds, problems: &mut Problems) -> u32 {
        let value = self.get(key).and_then(|entry| entry.count(bounds, problems));
        narrow(value.or(bounds.default))
    }

    /// A count, if it is there.
    pub(crate) fn optional_count(
        &self,
        key: &'t str,
        bounds: &Bounds,
        problems: &mut Problems,
    ) -> Option<u32> {
        let value = self.get(key)?.count(bounds, problems)?;
        Some(narrow(Some(value)))
    }

    /// A duration in milliseconds, or its default.
    pub(crate) fn duration_ms(&self, key: &'t str, bounds: &Bounds, problems: &mut Problems) -> u32 {
        let value = self.get(key).and_then(|entry| entry.duration_ms(bounds, problems));
        narrow(value.or(bounds.default))
    }

    /// A rate in bytes a second, or its default.
    pub(crate) fn byte_rate(&self, key: &'t str, bounds: &Bounds, problems: &mut Problems) -> u32 {
        let value = self.get(key).and_then(|entry| entry.byte_rate(bounds, problems));
        narrow(value.or(bounds.default))
    }

    /// A size in bytes, or its default.
    pub(crate) fn bytes(&self, key: &'t str, bounds: &Bounds, problems: &mut Problems) -> u64 {
        let value = self.get(key).and_then(|entry| entry.bytes(bounds, problems));
        value.or(bounds.default).unwrap_or(0)
    }
}

impl Entry<'_> {
    fn integer(&self, expected: &str, help: Option<String>, problems: &mut Problems) -> Option<i128> {
        let DeValue::Integer(number) = self.value else {
            self.wrong_type(expected, help, problems);
            return None;
        };
        // A number too long for i128 is as far out of bounds as the largest.
        Some(i128::from_str_radix(number.as_str(), number.radix()).unwrap_or(i128::MAX))
    }

    /// A whole number within bounds.
    pub(crate) fn count(&self, bounds: &Bounds, problems: &mut Problems) -> Option<u64> {
        let unquoted = self.value.as_str().filter(|text| text.parse::<u64>().is_ok());
        let help = unquoted.map(|text| format!("write it without quotes: `{text}`"));
        let value = self.integer("an integer", help, problems)?;
        self.bounded(value, bounds, |value| value.to_string(), problems)
    }

    /// A duration within bounds, in milliseconds.
    pub(crate) fn duration_ms(&self, bounds: &Bounds, problems: &mut Problems) -> Option<u64> {
        let Some(text) = self.value.as_str() else {
            let help = match self.value {
                DeValue::Integer(number) => format!("write its unit: `\"{number}s\"` or `\"{number}ms\"`"),
                _ => "write for example `\"10s\"`".to_owned(),
            };
            self.wrong_type("a duration in a string", Some(help), problems);
            return None;
        };
        match units::duration_ms(text) {
            Ok(ms) => self.bounded(ms.into(), bounds, units::show_duration, problems),
            Err(fault) => {
                self.fault(text, fault, problems);
                None
            }
        }
    }

    /// A size within bounds, in bytes: an integer, or a string with a unit.
    pub(crate) fn bytes(&self, bounds: &Bounds, problems: &mut Problems) -> Option<u64> {
        let bytes = match self.value.as_str().map(|text| (text, units::size_bytes(text))) {
            Some((_, Ok(bytes))) => bytes.into(),
            Some((text, Err(fault))) => {
                self.fault(text, fault, problems);
                return None;
            }
            None => {
                let help = Some("write for example `65536` or `\"64KiB\"`".to_owned());
                self.integer("a size (an integer or a string)", help, problems)?
            }
        };
        self.bounded(bytes, bounds, units::show_size, problems)
    }

    /// A rate within bounds, in bytes a second.
    fn byte_rate(&self, bounds: &Bounds, problems: &mut Problems) -> Option<u64> {
        let Some(text) = self.value.as_str() else {
            let help = match self.value {
                DeValue::Integer(number) => format!("write its unit: `\"{number}B/s\"`"),
                _ => "write for example `\"500B/s\"`".to_owned(),
            };
            self.wrong_type("a rate in a string", Some(help), problems);
            return None;
        };
        match units::byte_rate(text) {
            Ok(bytes) => self.bounded(bytes.into(), bounds, units::show_byte_rate, problems),
            Err(fault) => {
                self.fault(text, fault, problems);
                None
            }
        }
    }

    /// A number of requests a second within bounds: an integer, or a string such as `100/s`.
    pub(crate) fn request_rate(&self, bounds: &Bounds, problems: &mut Problems) -> Option<u64> {
        let rate = match self.value.as_str().map(|text| (text, units::request_rate(text))) {
            Some((_, Ok(rate))) => rate.into(),
            Some((text, Err(fault))) => {
                self.fault(text, fault, problems);
                return None;
            }
            None => {
                let help = Some("write for example `\"100/s\"`".to_owned());
                self.integer("a rate (an integer or a string)", help, problems)?
            }
        };
        self.bounded(rate, bounds, |rate| format!("{rate}/s"), problems)
    }

    /// A share from 0 to 1, in whole thousandths.
    pub(crate) fn thousandths(&self, problems: &mut Problems) -> Option<u16> {
        let text = match self.value {
            DeValue::Float(number) => number.as_str().replace('_', ""),
            DeValue::Integer(number) => number.as_str().to_owned(),
            _ => {
                self.wrong_type("a number from 0 to 1", None, problems);
                return None;
            }
        };
        let share = text.parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share));
        let Some(share) = share.map(|share| share * 1000.0) else {
            let message = format!("`{}` is {}; a share must be from 0 to 1", self.key, escape(&text));
            problems.report_help(self.offset, message, "write for example `0.25` for a quarter");
            return None;
        };
        // What three digits cannot say is further off than what binary fractions lose.
        if (share - share.round()).abs() > 1e-6 {
            let message = format!("`{}` is {}; a share has at most three digits", self.key, escape(&text));
            problems.report_help(self.offset, message, format!("write `{}`", share.round() / 1000.0));
        }
        Some(share.round() as u16)
    }

    fn bounded(
        &self,
        value: i128,
        bounds: &Bounds,
        show: impl Fn(u64) -> String,
        problems: &mut Problems,
    ) -> Option<u64> {
        let within = u64::try_from(value).ok().filter(|value| (bounds.min..=bounds.max).contains(value));
        if within.is_none() {
            let shown = u64::try_from(value).map_or_else(|_| self.written(), &show);
            let (min, max) = (show(bounds.min), show(bounds.max));
            let message = format!("`{}` is {shown}; it must be from {min} to {max}", self.key);
            match bounds.default {
                Some(default) => {
                    let help = format!("leave it out for the default, {}", show(default));
                    problems.report_help(self.offset, message, help);
                }
                None => problems.report(self.offset, message),
            }
        }
        within
    }

    /// A number as the file has it, for one that no integer type holds.
    fn written(&self) -> String {
        match self.value {
            DeValue::Integer(number) => escape(&number.to_string()),
            _ => self.value.as_str().map(quote).unwrap_or_default(),
        }
    }
}
