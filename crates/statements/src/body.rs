//! The text of a statement: where its parameters are, and where it ends.
//!
//! Strings, quoted names and comments are passed by as they are: a colon or a semicolon in them means nothing.

use crate::{Dialect, Engine, Parameter, Piece};

/// A text that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// Lines after the first line of the text.
    pub(crate) line: usize,
    pub(crate) rule: String,
    pub(crate) help: Option<&'static str>,
}

/// The pieces of a statement, and what is wrong with its text.
pub(crate) struct Body {
    pub(crate) pieces: Vec<Piece>,
    pub(crate) faults: Vec<Fault>,
}

/// Finds the parameters of a statement's text.
pub(crate) fn read(text: &str, dialect: Dialect, parameters: &[Parameter]) -> Body {
    let used = vec![false; parameters.len()];
    let mut reader = Reader { text, dialect, at: 0, begun: 0, parameters, used, body: Body::new() };
    reader.read();
    reader.body
}

impl Body {
    fn new() -> Self {
        Self { pieces: Vec::new(), faults: Vec::new() }
    }
}

struct Reader<'a> {
    text: &'a str,
    dialect: Dialect,
    at: usize,
    /// Where the piece begins that is being read.
    begun: usize,
    parameters: &'a [Parameter],
    used: Vec<bool>,
    body: Body,
}

impl Reader<'_> {
    fn read(&mut self) {
        let end = self.find_end();
        let last = self.text[self.begun.min(end)..end].trim_end();
        self.body.pieces.push(Piece::Text(last.to_owned()));
        let is_blank = |piece: &Piece| matches!(piece, Piece::Text(text) if is_blank(text));
        if self.body.pieces.iter().all(is_blank) {
            self.at = 0;
            self.fault("there is no statement below the annotations".into(), None);
        }
        self.body.faults.extend(unused(self.parameters, &self.used));
    }

    /// Takes all parameters; returns where the statement ends, without the `;` behind it.
    fn find_end(&mut self) -> usize {
        let mut end = None;
        while let Some(byte) = self.text.as_bytes().get(self.at).copied() {
            let is_comment = self.is_comment();
            if end.is_some() && !is_comment && byte != b';' && !byte.is_ascii_whitespace() {
                self.fault(
                    "there is text behind the `;` that ends the statement".into(),
                    Some("give each statement a `-- name:` of its own, and name several in a `-- transaction:`"),
                );
                break;
            }
            if let Some(skipped) = self.quoted(byte) {
                self.at = skipped;
                continue;
            }
            match byte {
                b';' => end = end.or(Some(self.at)),
                b':' if self.parameter() => continue,
                b'?' if self.dialect != Some(Engine::Postgresql) => self.fault(
                    "`?` for a parameter".into(),
                    Some("write `:name`, and `-- params: name type` above"),
                ),
                _ => {}
            }
            self.at += 1;
        }
        end.unwrap_or(self.text.len())
    }

    fn is_comment(&self) -> bool {
        let rest = &self.text.as_bytes()[self.at..];
        let is_ours = self.dialect == Some(Engine::Mysql) && rest.starts_with(b"#");
        is_ours || rest.starts_with(b"--") || rest.starts_with(b"/*")
    }

    fn fault(&mut self, rule: String, help: Option<&'static str>) {
        let line = self.text[..self.at].matches('\n').count();
        self.body.faults.push(Fault { line, rule, help });
    }

    /// Where a string, a quoted name or a comment ends that begins here.
    fn quoted(&mut self, byte: u8) -> Option<usize> {
        if !matches!(byte, b'\'' | b'"' | b'`' | b'-' | b'/' | b'$' | b'#') {
            // It may be in the middle of a character.
            return None;
        }
        let rest = &self.text[self.at..];
        let length = match byte {
            b'\'' if self.has_escapes() => end_with_escapes(rest),
            b'\'' | b'"' | b'`' => rest[1..].find(char::from(byte)).map(|end| end + 2),
            b'-' | b'#' if self.is_comment() && !rest.starts_with("/*") => {
                Some(rest.find('\n').unwrap_or(rest.len()))
            }
            b'/' if rest.starts_with("/*") => rest[2..].find("*/").map(|end| end + 4),
            b'$' => {
                let tag = dollar_tag(rest)?;
                rest[tag.len()..].find(tag).map(|end| end + 2 * tag.len())
            }
            _ => return None,
        };
        if length.is_none() {
            let what = if byte == b'/' { "comment" } else { "string" };
            self.fault(format!("a {what} begins here that does not end"), None);
        }
        Some(length.map_or(self.text.len(), |length| self.at + length))
    }

    /// Whether a string that begins here is PostgreSQL's `E'...'`.
    fn has_escapes(&self) -> bool {
        let before = &self.text.as_bytes()[..self.at];
        let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_' || *byte >= 0x80;
        self.dialect == Some(Engine::Postgresql)
            && matches!(before, [.., b'e' | b'E'])
            && !before.iter().rev().nth(1).is_some_and(is_word)
    }

    /// Takes a parameter that begins here; a cast of PostgreSQL's, `::type`, is none.
    fn parameter(&mut self) -> bool {
        let rest = &self.text[self.at + 1..];
        if rest.starts_with(':') {
            self.at += 2;
            return true;
        }
        let length = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        let name = &rest[..length];
        // `a[1:2]` and `:=` are the database's.
        if !name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
            return false;
        }
        let end = self.at + 1 + length;
        match self.parameters.iter().position(|parameter| parameter.name == name) {
            Some(number) => {
                self.used[number] = true;
                self.body.pieces.push(Piece::Text(self.text[self.begun..self.at].to_owned()));
                self.body.pieces.push(Piece::Parameter(number));
                self.begun = end;
            }
            None => self.fault(untyped(name), Some(HOW_TO_TYPE)),
        }
        self.at = end;
        true
    }
}

/// What to write for a parameter without a type.
pub(crate) const HOW_TO_TYPE: &str = "say above `-- params: name type, ...`, a type being int, real, text, blob or bool, with `?` if NULL may be";

pub(crate) fn untyped(name: &str) -> String {
    format!("the parameter `:{name}` has no type")
}

/// The parameters that were declared and are not used.
pub(crate) fn unused(parameters: &[Parameter], used: &[bool]) -> impl Iterator<Item = Fault> {
    let left = parameters.iter().zip(used).filter(|(_, used)| !**used);
    left.map(|(parameter, _)| Fault {
        line: 0,
        rule: format!("the parameter `:{}` is not in the statement", parameter.name),
        help: Some("leave it out of `-- params:`, or use it"),
    })
}

/// Bytes of a string that begins here and in which a backslash takes what follows along.
fn end_with_escapes(rest: &str) -> Option<usize> {
    let mut is_escaped = false;
    let end = rest.bytes().skip(1).position(|byte| {
        let ends = byte == b'\'' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        ends
    });
    end.map(|end| end + 2)
}

/// Whether a text is blank but for comments.
fn is_blank(text: &str) -> bool {
    text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with("--"))
}

/// The `$tag$` with which a string of PostgreSQL's begins.
fn dollar_tag(rest: &str) -> Option<&str> {
    let length = rest[1..].find(|c: char| !c.is_ascii_alphanumeric() && c != '_')? + 1;
    let is_tag = rest.as_bytes()[length] == b'$' && !rest[1..].starts_with(|c: char| c.is_ascii_digit());
    is_tag.then(|| &rest[..=length])
}
