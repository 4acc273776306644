//! A command of Redis's: its words, as redis-cli takes them, and where its parameters are in them.
//!
//! Blanks stand between words, and one that has blanks in it stands in quotes: `"..."` with redis-cli's escapes, or
//! `'...'`. A word `:name` is a parameter, and so is `{:name}` within a word. Words in quotes are text, whatever they
//! say.

use crate::body::{Body, BodyFault, HOW_TO_TYPE, untyped, unused};
use crate::{Parameter, Word, WordPart};

/// The words of a command, and what is wrong with its text.
pub(crate) fn read(text: &str, parameters: &[Parameter]) -> (Vec<Word>, Body) {
    let used = vec![false; parameters.len()];
    let mut reader = CommandReader { parameters, used, line: 0, words: Vec::new(), faults: Vec::new() };
    for (number, line) in text.lines().enumerate() {
        reader.line = number;
        reader.take_line(line);
    }
    reader.line = 0;
    if reader.words.is_empty() {
        reader.fault("there is no command below the annotations".into(), None);
    }
    reader.faults.extend(unused(parameters, &reader.used));
    (reader.words, Body { pieces: Vec::new(), faults: reader.faults })
}

struct CommandReader<'a> {
    parameters: &'a [Parameter],
    used: Vec<bool>,
    /// The one that is read, from 0 on.
    line: usize,
    words: Vec<Word>,
    faults: Vec<BodyFault>,
}

impl CommandReader<'_> {
    fn take_line(&mut self, line: &str) {
        if line.trim().is_empty() || line.trim_start().starts_with("--") {
            return;
        }
        if !self.words.is_empty() && !line.starts_with([' ', '\t']) {
            return self.fault(
                "a second command begins here".into(),
                Some("give each a `-- name:` of its own; a line that goes on with the command begins with blanks"),
            );
        }
        let mut rest = line.trim();
        while !rest.is_empty() {
            let taken = if rest.starts_with(['"', '\'']) { self.quoted(rest) } else { self.bare(rest) };
            rest = rest[taken..].trim_start();
        }
    }

    /// Takes a word without quotes; returns its bytes in the text.
    fn bare(&mut self, rest: &str) -> usize {
        let length = rest.find([' ', '\t', '\r']).unwrap_or(rest.len());
        let text = &rest[..length];
        if let Some(at) = text.find(['"', '\'']) {
            self.fault(
                format!("a quote within the word `{}`", &text[..at]),
                Some("put quotes around all of the word"),
            );
        }
        if text.ends_with(';') && rest[length..].trim().is_empty() {
            self.fault(
                "a `;` would be a part of the word".into(),
                Some("remove it: a command has no end but its line's"),
            );
        }
        let word = match text.strip_prefix(':').filter(|name| is_name(name)) {
            Some(name) => self.parameter(name).into_iter().collect(),
            None => self.parts(text),
        };
        self.words.push(word);
        length
    }

    /// The text and the parameters of a word.
    fn parts(&mut self, text: &str) -> Word {
        let (mut word, mut rest) = (Word::new(), text);
        while let Some((before, name, behind)) = next_parameter(rest) {
            self.check_text(before);
            word.extend((!before.is_empty()).then(|| WordPart::Bytes(before.into())));
            word.extend(self.parameter(name));
            rest = behind;
        }
        self.check_text(rest);
        word.extend((!rest.is_empty()).then(|| WordPart::Bytes(rest.into())));
        word
    }

    /// Refuses text that looks like a parameter of the statement and would be none.
    fn check_text(&mut self, text: &str) {
        for (at, _) in text.match_indices(':') {
            let rest = &text[at + 1..];
            let name = &rest[..rest.find(|c| !is_of_name(c)).unwrap_or(rest.len())];
            if self.parameters.iter().any(|parameter| parameter.name == name) {
                self.fault(
                    format!("`:{name}` within a word is text"),
                    Some("write `{:NAME}` there for the parameter, or put the word in quotes for the text"),
                );
            }
        }
    }

    fn parameter(&mut self, name: &str) -> Option<WordPart> {
        let number = self.parameters.iter().position(|parameter| parameter.name == name);
        match number {
            Some(number) => self.used[number] = true,
            None => self.fault(untyped(name), Some(HOW_TO_TYPE)),
        }
        number.map(WordPart::Parameter)
    }

    /// Takes a word in quotes; returns its bytes in the text.
    fn quoted(&mut self, rest: &str) -> usize {
        let mut bytes = Vec::new();
        let Some(length) = unquote(rest, &mut bytes) else {
            self.fault("a string begins here that does not end".into(), Some("a string ends on its line"));
            return rest.len();
        };
        if rest[length..].starts_with(|c: char| !c.is_ascii_whitespace()) {
            self.fault(
                "there is text right behind the quote that ends a word".into(),
                Some("put a blank between them"),
            );
        }
        self.words.push(vec![WordPart::Bytes(bytes)]);
        length
    }

    fn fault(&mut self, rule: String, help: Option<&'static str>) {
        self.faults.push(BodyFault { line: self.line, rule, help });
    }
}

/// The first `{:name}`, with what stands before and behind it.
fn next_parameter(text: &str) -> Option<(&str, &str, &str)> {
    text.match_indices("{:").find_map(|(at, _)| {
        let (name, behind) = text[at + 2..].split_once('}')?;
        is_name(name).then_some((&text[..at], name, behind))
    })
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && text.chars().all(is_of_name)
}

/// Reads a word in quotes as redis-cli does; its length with both quotes, or `None` if it does not end.
fn unquote(text: &str, out: &mut Vec<u8>) -> Option<usize> {
    let bytes = text.as_bytes();
    let quote = *bytes.first()?;
    let mut at = 1;
    loop {
        let rest = &bytes[at..];
        let (taken, byte) = match (quote, rest) {
            (_, []) => return None,
            (_, [byte, ..]) if *byte == quote => return Some(at + 1),
            (b'"', [b'\\', b'x', high, low, ..]) if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                (4, u8::from_str_radix(&text[at + 2..at + 4], 16).ok()?)
            }
            (b'"', [b'\\', escaped, ..]) => (2, escape(*escaped)),
            (b'\'', [b'\\', b'\'', ..]) => (2, b'\''),
            (_, [byte, ..]) => (1, *byte),
        };
        out.push(byte);
        at += taken;
    }
}

fn escape(byte: u8) -> u8 {
    match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 8,
        b'a' => 7,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use crate::{Engine, Statement, WordPart, parse};

    fn statement(body: &str) -> Result<Statement, String> {
        let text = format!("-- name: a :one\n-- services: s\n-- params: id int, page text\n{body}\n");
        let said = |mistakes: Vec<crate::StatementMistake>| {
            mistakes.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
        };
        parse(&text, Some(Engine::Redis)).map(|found| found.statements[0].clone()).map_err(said)
    }

    fn words(body: &str) -> Vec<String> {
        let part = |part: &WordPart| match part {
            WordPart::Bytes(bytes) => bytes.escape_ascii().to_string(),
            WordPart::Parameter(number) => format!("<{number}>"),
        };
        statement(body).unwrap().words.iter().map(|word| word.iter().map(part).collect()).collect()
    }

    #[test]
    fn parameters_are_words_or_stand_in_braces() {
        assert_eq!(words("INCRBY visits:{:page} :id"), ["INCRBY", "visits:<1>", "<0>"]);
        assert_eq!(words("SET {{:page}}:{:id}{:id} {:pag"), ["SET", "{<1>}:<0><0>", "{:pag"]);
        assert_eq!(
            words("X  a:b\t:page {:id} a::c {} :1 {:1}\n  -- no\n  more ü\n\n"),
            ["X", "a:b", "<1>", "<0>", "a::c", "{}", ":1", "{:1}", "more", "\\xc3\\xbc"]
        );
        assert_eq!(
            words(r#"X ":page" '{:id}' "a \"b\" \x00\n\q" 'it\'s \n' "" :page {:id}"#),
            ["X", ":page", "{:id}", r#"a \"b\" \x00\nq"#, r"it\'s \\n", "", "<1>", "<0>"]
        );
    }

    #[test]
    fn what_might_be_misread_is_refused() {
        for (body, said) in [
            ("GET a:page :id", "`:page` within a word is text; write `{:NAME}`"),
            ("GET a::id :page {:id}", "`:id` within a word is text"),
            ("GET {:page :id {:page}", "`:page` within a word is text"),
            ("GET {:other} :id :page", "the parameter `:other` has no type"),
            ("GET :id", "line 1: the parameter `:page` is not in the statement"),
            ("GET :id :page;", "a `;` would be a part of the word"),
            ("GET :id :page\nGET :id", "line 5: a second command begins here"),
            ("GET :id :page \"a", "does not end"),
            ("GET :id :page 'a'b", "right behind the quote"),
            ("GET :id :page a'b c'", "a quote within the word `a`"),
            ("", "there is no command"),
        ] {
            let found = statement(body).unwrap_err();
            assert!(
                found.contains(said) || found.replace("line 4", "line 1").contains(said),
                "{body}: {found}"
            );
        }
    }
}
