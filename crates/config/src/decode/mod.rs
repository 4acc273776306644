//! Reading one table of the parsed file: keys and types, each mistake with its place.
//!
//! Runs in: the launcher (root) and the `bulkhead` command. Input: the operator's file after the TOML
//! parser. Must never: let an unknown key pass, or convert one type to another.

mod numbers;
mod values;

use std::path::{Path, PathBuf};

use suggest::closest;
use toml::de::{DeTable, DeValue};

pub(crate) use numbers::narrow;

use crate::diagnostic::{Problems, escape, quote};
use crate::foreign;
use crate::parse::{KeyFault, names};
use crate::place::At;
use crate::rules::{self, Keys, TABLES};

/// A list without room for more items: there are thousands of such lists, most of one item, and each copy of the
/// launcher takes the longer the more memory it has.
pub(crate) fn exactly<T>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut list: Vec<T> = items.collect();
    list.shrink_to_fit();
    list
}

/// One table and what messages call it.
pub(crate) struct Table<'t> {
    entries: Option<&'t DeTable<'t>>,
    /// What the offsets of its file begin with.
    base: usize,
    /// Where its header stands.
    pub(crate) offset: usize,
    /// `[log]`, or `service "blog"`.
    pub(crate) label: String,
    /// Keys that an unknown one is probably meant to be; to call them missing would be a second message
    /// about one mistake.
    misspelt: Vec<&'static str>,
}

/// One key's value.
pub(crate) struct Entry<'t> {
    key: &'t str,
    value: &'t DeValue<'t>,
    /// As in [`Table`].
    base: usize,
    pub(crate) offset: usize,
}

impl<'t> Table<'t> {
    /// The table of a whole file, of which the offsets begin with `base`.
    pub(crate) fn of_file(entries: &'t DeTable<'t>, base: usize, label: &str) -> Table<'t> {
        Table { entries: Some(entries), base, offset: base, label: label.to_owned(), misspelt: Vec::new() }
    }

    /// What stands for a table that the file leaves out: every key has its default.
    pub(crate) fn absent(label: &str) -> Table<'t> {
        Table { entries: None, base: 0, offset: 0, label: label.to_owned(), misspelt: Vec::new() }
    }

    /// Reports every key that is not one of `keys`, and warns of each that is written by its old name.
    pub(crate) fn check_keys(&mut self, keys: Keys, problems: &mut Problems) {
        let entries = self.entries.into_iter().flat_map(|entries| entries.keys());
        for key in entries.filter(|key| !keys.1.contains(&key.get_ref().as_ref())) {
            let (name, offset) = (key.get_ref().as_ref(), self.base + key.span().start);
            if let Some(new) = rules::new_name(name).filter(|new| keys.1.contains(new)) {
                self.check_renamed((name, new), offset, problems);
                continue;
            }
            // What was meant is looked for among all keys that there are.
            if problems.has_enough(offset) {
                return;
            }
            let message = format!("unknown key `{}` in {}", escape(name), self.label);
            problems.report_help(offset, message, known_instead(name, keys));
            self.misspelt.extend(foreign::key(name).or_else(|| closest(name, keys.1)));
        }
    }

    /// A key by its old name is a key, but not beside the same by its new name.
    fn check_renamed(&self, (old, new): (&str, &str), offset: usize, problems: &mut Problems) {
        let help = format!("write `{new}`");
        if self.entries.is_some_and(|entries| entries.contains_key(new)) {
            let message =
                format!("`{old}` in {} is the old name of `{new}`, which is there as well", self.label);
            problems.report_help(offset, message, format!("remove `{old}`"));
        } else {
            problems.warn(offset, format!("`{old}` in {} is called `{new}` now", self.label), help);
        }
    }

    /// Whether a key is neither there nor there misspelt.
    pub(crate) fn lacks(&self, key: &str) -> bool {
        self.get(key).is_none() && !self.misspelt.contains(&key)
    }

    /// The value of a key, if it is there, perhaps by its old name.
    pub(crate) fn get<'k>(&self, key: &'k str) -> Option<Entry<'k>>
    where
        't: 'k,
    {
        let by_name = |key: &'k str| Some(Entry::new(key, self.entries?.get(key)?, self.base));
        by_name(key).or_else(|| by_name(rules::old_name(key)?))
    }

    /// The value of a key that must be there.
    pub(crate) fn require(&self, key: &'t str, example: &str, problems: &mut Problems) -> Option<Entry<'t>> {
        if self.lacks(key) {
            let message = format!("`{key}` is missing in {}", self.label);
            problems.report_help(self.offset, message, format!("add for example `{key} = {example}`"));
        }
        self.get(key)
    }

    /// Calls the table by its name, if it has one that can be read.
    pub(crate) fn label_by_name(&mut self, kind: &str) {
        if let Some(name) = self.get("name").and_then(|entry| entry.plain()) {
            self.label = format!("{kind} {}", quote(name));
        }
    }

    /// An array of tables that must have at least one.
    pub(crate) fn require_tables(
        &self,
        key: &'static str,
        header: &str,
        problems: &mut Problems,
    ) -> Vec<Table<'t>> {
        let entry = self.get(key);
        let is_empty_array = entry.as_ref().is_some_and(|entry| entry.is_empty_array());
        if self.lacks(key) || is_empty_array {
            let offset = entry.as_ref().map_or(self.offset, |entry| entry.offset);
            let message = format!("there is no {header}, and at least one is needed");
            problems.report_help(offset, message, format!("add `{header}` and its keys"));
        }
        entry.map(|entry| entry.tables(header, problems)).unwrap_or_default()
    }
}

/// The word to write for an unknown key: the table it belongs to, ours for another server's, a near one, or all
/// there are.
fn known_instead(name: &str, keys: Keys) -> String {
    let name = rules::new_name(name).unwrap_or(name);
    let homes = TABLES.iter().filter(|(_, others)| others.contains(&name));
    let homes: Vec<&str> = homes.map(|(header, _)| *header).collect();
    match (&homes[..], foreign::help(name), closest(name, keys.1)) {
        ([], Some(ours), _) => ours,
        ([], None, Some(near)) => format!("did you mean `{near}`?"),
        ([], None, None) => format!("known here: {}", keys.1.join(", ")),
        (homes, ..) => format!("`{name}` belongs in {}", homes.join(" or ")),
    }
}

impl<'t> Entry<'t> {
    fn new(key: &'t str, value: &'t toml::Spanned<DeValue<'t>>, base: usize) -> Entry<'t> {
        Entry { key, value: value.get_ref(), base, offset: base + value.span().start }
    }

    /// Reports that the value has the wrong type, with how to write the right one if that is known.
    pub(crate) fn wrong_type(&self, expected: &str, help: Option<String>, problems: &mut Problems) {
        let found = match self.value.type_str() {
            kind @ ("array" | "integer") => format!("an {kind}"),
            kind => format!("a {kind}"),
        };
        let message = format!("`{}`: expected {expected}, found {found}", self.key);
        match help {
            Some(help) => problems.report_help(self.offset, message, help),
            None => problems.report(self.offset, message),
        }
    }

    /// Reports that a string breaks its rule.
    pub(crate) fn fault(&self, text: &str, fault: KeyFault, problems: &mut Problems) {
        let message = format!("bad `{}` {}: {}", self.key, quote(text), fault.rule);
        match fault.help {
            Some(help) => problems.report_help(self.offset, message, help),
            None => problems.report(self.offset, message),
        }
    }

    /// The key.
    pub(crate) fn key(&self) -> &'t str {
        self.key
    }

    /// Whether it is an array, of whatever.
    pub(crate) fn is_array(&self) -> bool {
        self.value.is_array()
    }

    /// Whether it is a table.
    pub(crate) fn is_table(&self) -> bool {
        self.value.is_table()
    }

    fn quoted_scalar(&self) -> Option<String> {
        match self.value {
            DeValue::Integer(number) => Some(format!("write it in quotes: `\"{number}\"`")),
            DeValue::Float(number) => Some(format!("write it in quotes: `\"{number}\"`")),
            DeValue::Boolean(value) => Some(format!("write it in quotes: `\"{value}\"`")),
            _ => None,
        }
    }

    /// The value if it is a string, without a word if it is not.
    pub(crate) fn plain(&self) -> Option<&'t str> {
        self.value.as_str()
    }

    /// Whether it is `true`, without a word if it is of another type.
    pub(crate) fn is_true(&self) -> bool {
        self.value.as_bool() == Some(true)
    }

    /// Whether it is `[]`.
    pub(crate) fn is_empty_array(&self) -> bool {
        self.value.as_array().is_some_and(|array| array.is_empty())
    }

    fn text(&self, problems: &mut Problems) -> Option<&'t str> {
        if self.value.as_str().is_none() {
            self.wrong_type("a string", self.quoted_scalar(), problems);
        }
        self.value.as_str()
    }

    /// A string that `parse` accepts, as `parse` returns it.
    pub(crate) fn parsed<T>(
        &self,
        parse: impl Fn(&str) -> Result<T, KeyFault>,
        problems: &mut Problems,
    ) -> Option<At<T>> {
        let text = self.text(problems)?;
        match parse(text) {
            Ok(value) => Some(At::new(value, self.offset)),
            Err(fault) => {
                self.fault(text, fault, problems);
                None
            }
        }
    }

    /// A string that `rule` accepts, as it is.
    pub(crate) fn string(
        &self,
        rule: fn(&str) -> Result<(), KeyFault>,
        problems: &mut Problems,
    ) -> Option<At<String>> {
        self.parsed(|text| rule(text).map(|()| text.to_owned()), problems)
    }

    /// A file path, joined to `dir` if it is relative.
    pub(crate) fn path(&self, dir: &Path, problems: &mut Problems) -> Option<At<PathBuf>> {
        self.parsed(|text| names::file_path(text).map(|()| dir.join(text)), problems)
    }

    /// An array's elements, each under this key's name.
    pub(crate) fn elements(&self, problems: &mut Problems) -> Option<Vec<Entry<'t>>> {
        let Some(array) = self.value.as_array() else {
            let help = self.value.as_str().map(|text| format!("write `[{}]`", quote(text)));
            self.wrong_type("an array of strings", help, problems);
            return None;
        };
        Some(array.iter().map(|value| Entry::new(self.key, value, self.base)).collect())
    }

    /// An array of strings that `rule` accepts; the bad ones are reported and left out.
    pub(crate) fn strings(
        &self,
        rule: fn(&str) -> Result<(), KeyFault>,
        problems: &mut Problems,
    ) -> Option<Vec<At<String>>> {
        let elements = self.elements(problems)?;
        Some(exactly(elements.iter().filter_map(|element| element.string(rule, problems))))
    }

    pub(crate) fn boolean(&self, problems: &mut Problems) -> Option<bool> {
        if self.value.as_bool().is_none() {
            self.wrong_type("`true` or `false`", None, problems);
        }
        self.value.as_bool()
    }

    /// A table of its own, such as `[log]`.
    pub(crate) fn table(&self, label: &str, problems: &mut Problems) -> Option<Table<'t>> {
        let Some(entries) = self.value.as_table() else {
            let header = format!("[{}]", self.key);
            let help = self.value.is_array().then(|| format!("write `{header}`, once, with single brackets"));
            self.wrong_type("a table", help, problems);
            return None;
        };
        let (base, offset, label) = (self.base, self.offset, label.to_owned());
        Some(Table { entries: Some(entries), base, offset, label, misspelt: Vec::new() })
    }

    /// The tables of an array such as `[[site]]`, each labelled by its header.
    pub(crate) fn tables(&self, header: &str, problems: &mut Problems) -> Vec<Table<'t>> {
        let Some(array) = self.value.as_array() else {
            let help = self.value.is_table().then(|| format!("write `{header}`, with double brackets"));
            self.wrong_type("an array of tables", help, problems);
            return Vec::new();
        };
        let mut tables = Vec::new();
        for value in array.iter() {
            tables.extend(Entry::new(self.key, value, self.base).table(header, problems));
        }
        tables
    }

    /// The names and values of a table of strings, sorted by name.
    pub(crate) fn variables(&self, problems: &mut Problems) -> Vec<(String, String)> {
        self.pairs(("a table of strings", "{ NAME = \"value\" }"), names::variable, names::no_nul, problems)
    }

    /// The names and values of a table of strings that these rules accept, sorted by name; `form` is what it is and an
    /// example.
    pub(crate) fn pairs(
        &self,
        form: (&str, &str),
        name_rule: impl Fn(&str) -> Result<(), KeyFault>,
        value_rule: fn(&str) -> Result<(), KeyFault>,
        problems: &mut Problems,
    ) -> Vec<(String, String)> {
        let Some(table) = self.value.as_table() else {
            self.wrong_type(form.0, Some(format!("write `{}`", form.1)), problems);
            return Vec::new();
        };
        let mut pairs = Vec::new();
        for (key, value) in table {
            let name = key.get_ref().as_ref();
            let offset = self.base + key.span().start;
            let at_key = Entry { key: self.key, value: self.value, base: self.base, offset };
            if let Err(fault) = name_rule(name) {
                at_key.fault(name, fault, problems);
            }
            let entry = Entry::new(name, value, self.base);
            let value = entry.string(value_rule, problems);
            pairs.extend(value.map(|value| (name.to_owned(), value.value)));
        }
        pairs
    }
}
