//! The text of a statement: where its parameters are, and where it ends.
//!
//! Strings, quoted names and comments are passed by as they are: a colon or a semicolon in them means nothing.

use crate::{Dialect, Engine, Parameter, Piece};

/// A text that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BodyFault {
    /// Lines after the first line of the text.
    pub(crate) line: usize,
    pub(crate) rule: String,
    pub(crate) help: Option<&'static str>,
}

/// The pieces of a statement, and what is wrong with its text.
pub(crate) struct Body {
    pub(crate) pieces: Vec<Piece>,
    pub(crate) faults: Vec<BodyFault>,
}

/// Finds the parameters of a statement's text.
pub(crate) fn read(text: &str, dialect: Dialect, parameters: &[Parameter]) -> Body {
    let used = vec![false; parameters.len()];
    let mut reader = BodyReader { text, dialect, at: 0, begun: 0, parameters, used, body: Body::new() };
    reader.read();
    reader.body
}

impl Body {
    fn new() -> Self {
        Self { pieces: Vec::new(), faults: Vec::new() }
    }
}

struct BodyReader<'a> {
    text: &'a str,
    dialect: Dialect,
    at: usize,
    /// Where the piece begins that is being read.
    begun: usize,
    parameters: &'a [Parameter],
    used: Vec<bool>,
    body: Body,
}

impl BodyReader<'_> {
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
            let is_comment = is_comment(self.text, self.at, self.dialect);
            if end.is_some() && !is_comment && byte != b';' && !byte.is_ascii_whitespace() {
                self.fault(
                    "there is text behind the `;` that ends the statement".into(),
                    Some("give each statement a `-- name:` of its own, and name several in a `-- transaction:`"),
                );
                break;
            }
            if let Some(skipped) = self.quoted() {
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

    fn fault(&mut self, rule: String, help: Option<&'static str>) {
        let line = self.text[..self.at].matches('\n').count();
        self.body.faults.push(BodyFault { line, rule, help });
    }

    /// Where a string, a quoted name or a comment ends that begins here.
    fn quoted(&mut self) -> Option<usize> {
        let end = quoted_end(self.text, self.at, self.dialect)?;
        if end.is_none() {
            let is_comment = self.text.as_bytes().get(self.at) == Some(&b'/');
            let what = if is_comment { "comment" } else { "string" };
            self.fault(format!("a {what} begins here that does not end"), None);
        }
        Some(end.unwrap_or(self.text.len()))
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

/// Where a string, a quoted name or a comment ends that begins at a place of a text, if one does; `Some(None)` if it
/// has no end.
pub(crate) fn quoted_end(text: &str, at: usize, dialect: Dialect) -> Option<Option<usize>> {
    let byte = *text.as_bytes().get(at)?;
    if !matches!(byte, b'\'' | b'"' | b'`' | b'-' | b'/' | b'$' | b'#') {
        // It may be in the middle of a character.
        return None;
    }
    let rest = &text[at..];
    let length = match byte {
        b'\'' if dialect == Some(Engine::Postgresql) && is_escape_string(&text.as_bytes()[..at]) => {
            end_with_escapes(rest)
        }
        b'\'' | b'"' | b'`' => rest[1..].find(char::from(byte)).map(|end| end + 2),
        b'-' | b'#' if is_comment(text, at, dialect) => Some(rest.find('\n').unwrap_or(rest.len())),
        b'/' if rest.starts_with("/*") => rest[2..].find("*/").map(|end| end + 4),
        b'$' => {
            let tag = dollar_tag(rest)?;
            rest[tag.len()..].find(tag).map(|end| end + 2 * tag.len())
        }
        _ => return None,
    };
    Some(length.map(|length| at + length))
}

fn is_comment(text: &str, at: usize, dialect: Dialect) -> bool {
    let rest = &text.as_bytes()[at..];
    let is_ours = dialect == Some(Engine::Mysql) && rest.starts_with(b"#");
    is_ours || rest.starts_with(b"--") || rest.starts_with(b"/*")
}

/// Whether a string behind these bytes is PostgreSQL's `E'...'`.
fn is_escape_string(before: &[u8]) -> bool {
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_' || *byte >= 0x80;
    matches!(before, [.., b'e' | b'E']) && !before.iter().rev().nth(1).is_some_and(is_word)
}

/// The remedy for a parameter without a type.
pub(crate) const HOW_TO_TYPE: &str = "say above `-- params: name type, ...`, a type being int, real, text, blob or \
    bool, with `?` if NULL may be";

pub(crate) fn untyped(name: &str) -> String {
    format!("the parameter `:{name}` has no type")
}

/// The parameters that were declared and are not used.
pub(crate) fn unused(parameters: &[Parameter], used: &[bool]) -> impl Iterator<Item = BodyFault> {
    let left = parameters.iter().zip(used).filter(|(_, used)| !**used);
    left.map(|(parameter, _)| BodyFault {
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
