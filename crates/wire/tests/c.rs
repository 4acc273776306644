//! The messages as services in C have them: `c/src/messages.h` is what this writes, and nothing else. `c/src/codec.c`
//! says what the letters of a layout mean.
//!
//! Runs in: `cargo test`; with `BLESS=1` it writes the file.

mod peers;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use wire::Layout;

const HEAD: &str = "/* The messages of a service, as the crate `wire` has them: written by `BLESS=1 cargo test -p wire`, and by nobody else. */\n";

/// What is written of one message: its layout, the names of its fields, and the choices that it has.
#[derive(Default)]
struct Written {
    layout: String,
    names: Vec<String>,
    choices: BTreeMap<String, Vec<String>>,
}

/// The layouts that `wire` says, such as `List(U64, 1024)`, read from left to right.
struct Words<'a>(&'a str);

impl<'a> Words<'a> {
    fn skip(&mut self, what: &str) -> bool {
        let rest = self.0.trim_start().strip_prefix(what);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    fn expect(&mut self, what: &str) {
        assert!(self.skip(what), "{what:?} is missing before {:?}", self.0);
    }

    fn word(&mut self) -> &'a str {
        let text = self.0.trim_start();
        let (word, rest) =
            text.split_at(text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len()));
        self.0 = rest;
        word
    }

    fn quoted(&mut self) -> &'a str {
        self.expect("\"");
        let word = self.word();
        self.expect("\"");
        word
    }

    /// `(20)`.
    fn number(&mut self) -> &'a str {
        self.expect("(");
        let number = self.word();
        self.expect(")");
        number
    }
}

/// `WorkerLimits` as `WORKER_LIMITS`.
fn constant(name: &str) -> String {
    let parts = name.char_indices().map(|(at, c)| {
        let begins = at > 0 && c.is_ascii_uppercase() && !name.as_bytes()[at - 1].is_ascii_uppercase();
        format!("{}{}", if begins { "_" } else { "" }, c.to_ascii_uppercase())
    });
    parts.collect()
}

impl Written {
    /// Writes a field; those of a record stand in its place.
    fn field(&mut self, name: &str, words: &mut Words<'_>) {
        let kind = words.word();
        if kind == "Record" {
            return self.record(words);
        }
        self.names.push(name.to_ascii_uppercase());
        match kind {
            "BOOL" => self.layout.push('b'),
            "ADDRESS" => self.layout.push('a'),
            "U8" | "U16" | "U32" | "U64" => {
                let bits: usize = kind[1..].parse().expect("a number of bits");
                let _ = write!(self.layout, "{}", bits / 8);
            }
            "Raw" | "Text" | "Bytes" => {
                let letter = match kind {
                    "Raw" => 'r',
                    "Text" => 't',
                    _ => 'y',
                };
                let _ = write!(self.layout, "{letter}{};", words.number());
            }
            "Choice" => self.choice(words),
            "List" => self.list(words),
            other => panic!("C has no layout for {other}"),
        }
    }

    fn record(&mut self, words: &mut Words<'_>) {
        words.expect("(");
        words.quoted();
        while words.skip(", (") {
            let name = words.quoted();
            words.expect(", ");
            self.field(name, words);
            words.expect(")");
        }
        words.expect(")");
    }

    fn choice(&mut self, words: &mut Words<'_>) {
        words.expect("(");
        let (name, mut variants) = (words.quoted(), Vec::new());
        while words.skip(", (") {
            // The layout says how many there are, and nothing else.
            assert_eq!(words.word(), variants.len().to_string(), "{name} has a gap in its numbers");
            words.expect(", ");
            variants.push(format!("{}_{}", constant(name), constant(words.quoted())));
            words.expect(")");
        }
        words.expect(")");
        let _ = write!(self.layout, "c{};", variants.len());
        self.choices.insert(name.to_owned(), variants);
    }

    /// A list is its number, and the items behind it; their fields have no names.
    fn list(&mut self, words: &mut Words<'_>) {
        words.expect("(");
        let mut item = Self::default();
        item.field("item", words);
        words.expect(", ");
        let _ = write!(self.layout, "l{};({})", words.word(), item.layout);
        words.expect(")");
        self.choices.extend(item.choices);
    }
}

fn written(layout: &Layout) -> Written {
    let mut written = Written::default();
    for (name, kind) in &layout.fields {
        let mut words = Words(kind);
        written.field(name, &mut words);
        assert_eq!(words.0, "", "{kind} was not read whole");
    }
    written
}

fn edge(edge: &str, layouts: &[Layout], choices: &mut BTreeMap<String, Vec<String>>, out: &mut String) {
    let messages: Vec<_> =
        layouts.iter().map(|layout| (layout.number, constant(layout.name), written(layout))).collect();
    let _ = writeln!(out, "\nenum {{");
    for (number, name, _) in &messages {
        let _ = writeln!(out, "    {edge}_{name} = {number},");
    }
    let _ = writeln!(out, "}};");
    for (_, name, written) in messages.iter().filter(|(_, _, written)| !written.names.is_empty()) {
        let fields: Vec<_> = written.names.iter().map(|field| format!("{edge}_{name}_{field}")).collect();
        let _ = writeln!(out, "enum {{ {} }};", fields.join(", "));
    }
    let _ = writeln!(out, "#define {edge}_LAYOUTS \\");
    for (number, _, written) in &messages {
        let _ = writeln!(out, "    [{number}] = \"{}\", \\", written.layout);
    }
    out.truncate(out.len() - 3);
    out.push('\n');
    messages.into_iter().for_each(|(_, _, written)| choices.extend(written.choices));
}

fn messages() -> String {
    let (mut choices, mut edges) = (BTreeMap::new(), String::new());
    for (name, layouts) in peers::edges() {
        edge(name, &layouts, &mut choices, &mut edges);
    }
    let mut out = format!("{HEAD}#ifndef BULKHEAD_MESSAGES_H\n#define BULKHEAD_MESSAGES_H\n\nenum {{\n");
    for (name, value) in peers::constants() {
        let _ = writeln!(out, "    {name} = {value},");
    }
    out.push_str("};\n");
    for variants in choices.values() {
        let _ = writeln!(out, "enum {{ {} }};", variants.join(", "));
    }
    format!("{out}{edges}\n#endif\n")
}

#[test]
fn c_has_the_same_messages() {
    peers::compare("c/src/messages.h", &messages());
}
