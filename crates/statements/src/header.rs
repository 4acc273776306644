//! The annotations above a statement: `-- key: value` lines.

use std::time::Duration;

use crate::{NAME_MAX, PARAMETERS_MAX, Parameter, Type};

/// The fault of an annotation: the rule, and what to write.
pub(crate) type HeaderFault = (String, Option<String>);

/// A line such as `-- services: search, profile`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Annotation<'a> {
    pub(crate) key: &'a str,
    pub(crate) value: &'a str,
    /// From 1 on.
    pub(crate) line: usize,
}

impl<'a> Annotation<'a> {
    /// The annotation of a line, if the line is one: other comments say what they like.
    pub(crate) fn of(text: &'a str, line: usize) -> Option<Self> {
        let (key, value) = text.trim().strip_prefix("--")?.split_once(':')?;
        let key = key.trim();
        let is_key = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        is_key.then_some(Self { key, value: value.trim(), line })
    }

    /// The words of a list, which has at least one.
    pub(crate) fn list(&self) -> Result<Vec<&'a str>, HeaderFault> {
        let words: Vec<&str> = self.value.split(',').map(str::trim).collect();
        if words.iter().any(|word| word.is_empty()) {
            let help = format!("write `-- {}: a, b`", self.key);
            return Err((
                format!("`-- {}:` is a list with commas, and an item of it is empty", self.key),
                Some(help),
            ));
        }
        match words.iter().enumerate().find(|(at, word)| words[..*at].contains(*word)) {
            Some((_, twice)) => Err((format!("`{twice}` stands twice in `-- {}:`", self.key), None)),
            None => Ok(words),
        }
    }

    /// The services of a list: the names of services of the site.
    pub(crate) fn services(&self) -> Result<Vec<String>, HeaderFault> {
        let words = self.list()?;
        for word in &words {
            config::check_name(word).map_err(|reason| (reason, None))?;
        }
        Ok(words.into_iter().map(str::to_owned).collect())
    }

    /// Parameters: `id int, name text?`.
    pub(crate) fn parameters(&self) -> Result<Vec<Parameter>, HeaderFault> {
        let mut found: Vec<Parameter> = Vec::new();
        for word in self.list()? {
            let one = parameter(word)?;
            if found.iter().any(|known| known.name == one.name) {
                return Err((format!("the parameter `{}` stands twice in `-- params:`", one.name), None));
            }
            found.push(one);
        }
        if found.len() > PARAMETERS_MAX {
            return Err((
                format!("a statement has at most {PARAMETERS_MAX} parameters, and this has {}", found.len()),
                None,
            ));
        }
        Ok(found)
    }

    /// A time, such as `500ms`.
    pub(crate) fn duration(&self) -> Result<Duration, HeaderFault> {
        let ms = config::duration_ms(self.value).map_err(|reason| (reason, None))?;
        match ms {
            1..=3_600_000 => Ok(Duration::from_millis(ms)),
            _ => Err((format!("`-- {}:` is between 1ms and 1h", self.key), None)),
        }
    }

    /// A number of rows.
    pub(crate) fn rows(&self) -> Result<u32, HeaderFault> {
        let number = self.value.parse().ok().filter(|number| (1..=10_000_000).contains(number));
        number.ok_or_else(|| (format!("`-- {}:` is a number between 1 and 10000000", self.key), None))
    }

    /// A number of bytes, such as `4MiB`.
    pub(crate) fn bytes(&self) -> Result<u32, HeaderFault> {
        let bytes = config::size_bytes(self.value).map_err(|reason| (reason, None))?;
        let bytes = u32::try_from(bytes).ok().filter(|bytes| (1024..=256 << 20).contains(bytes));
        bytes.ok_or_else(|| (format!("`-- {}:` is between 1KiB and 256MiB", self.key), None))
    }
}

fn parameter(word: &str) -> Result<Parameter, HeaderFault> {
    let help = || Some("write for example `-- params: id int, name text?`".to_owned());
    let mut parts = word.split_whitespace();
    let (Some(name), Some(kind), None) = (parts.next(), parts.next(), parts.next()) else {
        return Err((format!("a parameter is a name and a type, and this is `{word}`"), help()));
    };
    identifier(name)?;
    let bare = kind.strip_suffix('?').unwrap_or(kind);
    let known = Type::ALL.into_iter().find_map(|(word, known)| (word == bare).then_some(known));
    let kind_found = known.ok_or_else(|| (unknown_type(bare), help()))?;
    Ok(Parameter { name: name.to_owned(), kind: kind_found, nullable: bare != kind })
}

fn unknown_type(word: &str) -> String {
    let words: Vec<&str> = Type::ALL.iter().map(|(word, _)| *word).collect();
    let near =
        suggest::closest(word, &words).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
    format!("there is no type `{word}`, only {}{near}", words.join(", "))
}

/// Whether a statement, a transaction or a parameter may be called so: functions in Rust and Python get the name.
pub(crate) fn identifier(name: &str) -> Result<(), HeaderFault> {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    if name.is_empty()
        || name.len() > NAME_MAX
        || !name.bytes().all(allowed)
        || name.as_bytes()[0].is_ascii_digit()
    {
        let rule = format!(
            "a name has 1 to {NAME_MAX} of a-z, 0-9 and `_`, and begins with no digit; this is `{name}`"
        );
        return Err((rule, None));
    }
    Ok(())
}
