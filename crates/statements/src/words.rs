//! Classifies a statement by its words: whether it writes, and which tables it names.
//!
//! The database alone knows: a view, a function and a trigger reach tables that no word names.

use crate::body::quoted_end;
use crate::{Dialect, Engine, Statement};

/// A table that a statement names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedTable {
    /// As it is written, with its schema if that stands before it.
    pub name: String,
    /// Whether the statement changes it.
    pub writes: bool,
}

impl Statement {
    /// Whether it only reads, as far as its words say; in doubt it does not.
    pub fn only_reads(&self) -> bool {
        match self.words.is_empty() {
            true => only_reads(&self.sql(|_| "?".into())),
            false => self.usually_only_reads(),
        }
    }

    /// The tables that it names behind `FROM`, `JOIN`, `INTO`, `UPDATE` and the like, each once.
    pub fn tables(&self, dialect: Dialect) -> Vec<NamedTable> {
        tables(&self.sql(|_| "?".into()), dialect)
    }
}

/// Whether a text only reads, as far as its words say, those in strings included; in doubt it does not.
pub fn only_reads(text: &str) -> bool {
    let writes = ["insert", "update", "delete", "merge", "replace", "into", "call"];
    let reads = ["select", "with", "values", "table", "show"];
    reads.contains(&&*first_word(text)) && !writes.iter().any(|word| has_word(text, word))
}

/// Whether a word stands anywhere in a text, in whatever case.
pub fn has_word(text: &str, wanted: &str) -> bool {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.into_iter().any(|word| word.eq_ignore_ascii_case(wanted))
}

/// The first word, in lower case, behind comments.
pub fn first_word(text: &str) -> String {
    let mut rest = text.trim_start();
    loop {
        let end = match rest.get(..2) {
            Some("--") => rest.find('\n').map(|end| end + 1),
            Some("/*") => rest.find("*/").map(|end| end + 2),
            _ if rest.starts_with('#') => rest.find('\n').map(|end| end + 1),
            _ => break,
        };
        rest = rest[end.unwrap_or(rest.len())..].trim_start();
    }
    rest.chars().take_while(char::is_ascii_alphabetic).collect::<String>().to_ascii_lowercase()
}

/// The tables that a text names.
pub(crate) fn tables(text: &str, dialect: Dialect) -> Vec<NamedTable> {
    let tokens = tokens(text, dialect);
    let finder = Finder {
        tokens: &tokens,
        made: made_here(&tokens),
        groups: vec![Group::outermost()],
        found: Vec::new(),
    };
    finder.find()
}

/// A piece of SQL that means something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SqlToken<'a> {
    /// A word, or a number.
    Word(&'a str),
    /// A name in quotes, without them.
    Name(&'a str),
    /// Anything else; of a string its first quote.
    Symbol(char),
}

fn tokens(text: &str, dialect: Dialect) -> Vec<SqlToken<'_>> {
    let (mut tokens, mut at) = (Vec::new(), 0);
    while let Some(first) = text[at..].chars().next() {
        let begun = at;
        if let Some(end) = quoted_end(text, at, dialect) {
            at = end.unwrap_or(text.len());
            let is_name = first == '`' || first == '"' && dialect != Some(Engine::Mysql);
            if is_name {
                tokens.push(SqlToken::Name(text[begun..at].trim_matches(first)));
            } else if matches!(first, '\'' | '"' | '$') {
                tokens.push(SqlToken::Symbol(first));
            }
            continue;
        }
        if first == '['
            && dialect.is_none()
            && let Some(length) = text[at..].find(']')
        {
            tokens.push(SqlToken::Name(&text[at + 1..at + length]));
            at += length + 1;
            continue;
        }
        let length = text[at..].find(|c: char| !is_of_word(c)).unwrap_or(text.len() - at);
        if length == 0 {
            at += first.len_utf8();
            tokens.extend((!first.is_whitespace()).then_some(SqlToken::Symbol(first)));
        } else {
            at += length;
            tokens.push(SqlToken::Word(&text[begun..at]));
        }
    }
    tokens
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

impl SqlToken<'_> {
    fn is(self, wanted: &str) -> bool {
        matches!(self, Self::Word(word) if word.eq_ignore_ascii_case(wanted))
    }

    fn is_any(self, wanted: &[&str]) -> bool {
        wanted.iter().any(|word| self.is(word))
    }
}

/// Names that a `WITH` of the statement makes: `name AS (`, `name (a, b) AS MATERIALIZED (`.
fn made_here<'a>(tokens: &[SqlToken<'a>]) -> Vec<&'a str> {
    if !tokens.iter().any(|token| token.is("with")) {
        return Vec::new();
    }
    let behind = |at: usize| {
        let mut rest = tokens[at + 1..].iter().skip_while(|token| token.is_any(&["not", "materialized"]));
        rest.next() == Some(&SqlToken::Symbol('('))
    };
    let starts = tokens.iter().enumerate().filter(|&(at, token)| token.is("as") && behind(at));
    let before = |at: usize| match tokens[..at].last()? {
        SqlToken::Symbol(')') => {
            tokens[..at].iter().rposition(|token| *token == SqlToken::Symbol('('))?.checked_sub(1)
        }
        _ => Some(at - 1),
    };
    let name = |(at, _)| match tokens[before(at)?] {
        SqlToken::Word(name) | SqlToken::Name(name) => Some(name),
        SqlToken::Symbol(_) => None,
    };
    starts.filter_map(name).collect()
}

/// The text between parentheses, or around all of them.
#[derive(Clone, Copy, Debug, Default)]
struct Group {
    /// Whether it is a statement of its own, whose `FROM` names tables; that of `EXTRACT(YEAR FROM day)` does not.
    is_statement: bool,
    /// Whether the next `FROM` is that of a `DELETE`.
    deletes: bool,
    /// Whether another table follows behind a comma, and whether it is changed.
    lists: Option<bool>,
}

impl Group {
    fn outermost() -> Self {
        Self { is_statement: true, ..Self::default() }
    }
}

struct Finder<'t, 'a> {
    tokens: &'t [SqlToken<'a>],
    made: Vec<&'a str>,
    groups: Vec<Group>,
    found: Vec<NamedTable>,
}

impl Finder<'_, '_> {
    fn find(mut self) -> Vec<NamedTable> {
        for (at, &token) in self.tokens.iter().enumerate() {
            match token {
                SqlToken::Symbol('(') => self.groups.push(Group::default()),
                // The database refuses a statement with too many.
                SqlToken::Symbol(')') if self.groups.len() > 1 => drop(self.groups.pop()),
                SqlToken::Symbol(',') => {
                    if let Some(writes) = self.group().lists {
                        self.name(at + 1, writes);
                    }
                }
                SqlToken::Word(_) => self.word(at, token),
                SqlToken::Symbol(_) | SqlToken::Name(_) => {}
            }
        }
        self.found
    }

    /// INVARIANT: the outermost group is never taken away.
    fn group(&mut self) -> &mut Group {
        let last = self.groups.len() - 1;
        &mut self.groups[last]
    }

    fn word(&mut self, at: usize, token: SqlToken<'_>) {
        let before = at.checked_sub(1).map_or(SqlToken::Symbol(' '), |before| self.tokens[before]);
        let is_lock_or_action = before.is_any(&["for", "key", "do", "on"]);
        if token.is("select") {
            *self.group() = Group::outermost();
        } else if token.is("delete") && !is_lock_or_action {
            *self.group() = Group { deletes: true, ..Group::outermost() };
        } else if token.is("from") && self.group().is_statement && !before.is("distinct") {
            let writes = std::mem::take(&mut self.group().deletes);
            self.group().lists = Some(writes);
            self.name(at + 1, writes);
        } else if token.is_any(&["join", "straight_join"]) {
            self.name(at + 1, false);
        } else if token.is("using") && self.group().is_statement {
            self.group().lists = Some(false);
            self.name(at + 1, false);
        } else if token.is("update") && !is_lock_or_action {
            *self.group() = Group { lists: Some(true), ..Group::outermost() };
            self.name(at + 1, true);
        } else if token.is_any(&["into", "insert", "replace"]) {
            self.name(at + 1, true);
        } else if token.is("table") && at == 0 {
            self.name(at + 1, false);
        } else if token.is_any(&[
            "where",
            "set",
            "group",
            "order",
            "having",
            "limit",
            "returning",
            "values",
            "for",
            "union",
        ]) {
            self.group().lists = None;
        }
    }

    /// Takes the name of a table that stands here, if there is one.
    fn name(&mut self, mut at: usize, writes: bool) {
        const BETWEEN: [&str; 10] = [
            "only",
            "lateral",
            "ignore",
            "low_priority",
            "high_priority",
            "delayed",
            "quick",
            "into",
            "table",
            "or",
        ];
        while self.tokens.get(at).is_some_and(|token| token.is_any(&BETWEEN)) {
            // `OR REPLACE`, `OR ROLLBACK`: one more.
            at += if self.tokens[at].is("or") { 2 } else { 1 };
        }
        let mut name = String::new();
        while let Some(&(SqlToken::Word(part) | SqlToken::Name(part))) = self.tokens.get(at) {
            name += part;
            at += 1;
            if self.tokens.get(at) != Some(&SqlToken::Symbol('.')) {
                break;
            }
            name.push('.');
            at += 1;
        }
        let is_function = !writes && self.tokens.get(at) == Some(&SqlToken::Symbol('('));
        let is_made_here = self.made.iter().any(|made| made.eq_ignore_ascii_case(&name));
        let is_no_table = ["select", "values", "set", "outfile", "dumpfile", "unnest"];
        if name.is_empty()
            || is_function
            || is_made_here
            || is_no_table.iter().any(|word| name.eq_ignore_ascii_case(word))
        {
            return;
        }
        match self.found.iter_mut().find(|known| known.name.eq_ignore_ascii_case(&name)) {
            Some(known) => known.writes |= writes,
            None => self.found.push(NamedTable { name, writes }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tables of a text, `!` behind those that it writes.
    fn named(text: &str, dialect: Dialect) -> String {
        let shown = tables(text, dialect);
        let shown =
            shown.iter().map(|table| format!("{}{}", table.name, if table.writes { "!" } else { "" }));
        shown.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn tables_are_found_by_the_words_before_them() {
        for (text, tables) in [
            ("SELECT a, b FROM t WHERE a = ?", "t"),
            ("SELECT * FROM a x, b AS y, (SELECT * FROM c) z, d ORDER BY e, f", "a b c d"),
            ("SELECT * FROM a JOIN b ON a.i = b.i LEFT JOIN s.c USING (i), d", "a b s.c d"),
            ("INSERT INTO t (a, b) SELECT c, d FROM u", "t! u"),
            ("INSERT OR REPLACE INTO t VALUES (1, 2)", "t!"),
            ("REPLACE t SET a = 1", "t!"),
            ("INSERT INTO t VALUES (1) ON CONFLICT (a) DO UPDATE SET b = 2", "t!"),
            ("INSERT IGNORE t (a) VALUES (1) ON DUPLICATE KEY UPDATE a = 2", "t!"),
            ("UPDATE t SET a = b, c = (SELECT max(d) FROM u) WHERE e IN (SELECT f FROM v, w)", "t! u v w"),
            ("UPDATE a, b SET a.x = b.x", "a! b!"),
            ("DELETE FROM t USING u, v WHERE t.a = u.a", "t! u v"),
            ("MERGE INTO t USING s ON t.a = s.a WHEN MATCHED THEN DELETE", "t! s"),
            (
                "WITH x AS (DELETE FROM t RETURNING i), y (a, b) AS MATERIALIZED (SELECT 1, 2 FROM u) SELECT * \
                 FROM x, y",
                "t! u",
            ),
            ("SELECT extract(year FROM day), trim(BOTH 'x' FROM s) FROM t WHERE a IS DISTINCT FROM b", "t"),
            ("SELECT a FROM t FOR UPDATE", "t"),
            ("SELECT a FROM t FOR NO KEY UPDATE", "t"),
            ("SELECT * FROM generate_series(1, 2) g, T, t", "T"),
            ("SELECT 'x FROM y', replace(a, 'b', 'c') FROM t -- FROM z\n/* JOIN w */", "t"),
            ("SELECT 1", ""),
            ("SELECT a FROM", ""),
            (") FROM (", ""),
        ] {
            assert_eq!(named(text, Some(Engine::Postgresql)), tables, "{text}");
        }
    }

    #[test]
    fn quotes_are_those_of_the_database() {
        assert_eq!(named("SELECT * FROM \"a b\".\"c\"", Some(Engine::Postgresql)), "a b.c");
        assert_eq!(named("SELECT * FROM [a b], `c`", None), "a b c");
        assert_eq!(
            named("SELECT * FROM `a`.`b` WHERE c = \"FROM d\" # FROM e\n", Some(Engine::Mysql)),
            "a.b"
        );
        assert_eq!(named("SELECT $x$ FROM y $x$, E'\\' FROM z' FROM t", Some(Engine::Postgresql)), "t");
        assert_eq!(named("SELECT * FROM müsli", None), "müsli");
    }

    #[test]
    fn what_may_write_does_not_only_read() {
        for sql in ["SELECT a FROM t", "-- delete\nselect 1", "WITH x AS (SELECT 1) SELECT * FROM x"] {
            assert_eq!(only_reads(sql), !sql.contains("delete"), "{sql}");
        }
        for sql in [
            "INSERT INTO t VALUES (1) RETURNING id",
            "WITH x AS (DELETE FROM t RETURNING id) SELECT * FROM x",
            "SELECT a FROM t FOR UPDATE",
            "SELECT 1 INTO OUTFILE 'x'",
            "CALL p()",
        ] {
            assert!(!only_reads(sql), "{sql}");
        }
    }
}
