//! Keys of Redis's that two statements can both reach: a value of the one makes a key of the other.
//!
//! Two statements with the same key, `visits:{:page}` in both, are meant to. `user:{:id}` and `user:{:id}:secret` are
//! not: `7:secret` is a value as well.

use std::fmt::Write as _;

use crate::{Parameter, Statement, StatementMistake, Statements, Type, Word, WordPart};

/// The first and the last word that is a key, negative from the end on, and from one to the next: as the server says it
/// of a command.
pub type KeyPlaces = (i64, i64, i64);

/// The places of the keys among so many words.
pub fn key_places((first, last, step): KeyPlaces, count: usize) -> impl Iterator<Item = usize> {
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    let last = if last < 0 { count + last } else { last };
    let step = usize::try_from(step).unwrap_or(1).max(1);
    let first = if first > 0 { first } else { i64::MAX };
    (first..=last).step_by(step).filter_map(|at| usize::try_from(at).ok())
}

impl Statements {
    /// The oddities of keys: for each two that are not the same and can be, the statements that come first with them.
    pub fn overlaps(&self, places: impl Fn(usize, &Statement) -> KeyPlaces) -> Vec<StatementMistake> {
        let mut kinds: Vec<StatementKey<'_>> = Vec::new();
        for (number, statement) in self.statements.iter().enumerate() {
            for at in key_places(places(number, statement), statement.words.len()) {
                let Some(word) = statement.words.get(at) else { continue };
                let key = StatementKey { statement, word };
                if !kinds.iter().any(|known| known.is_same(&key)) {
                    kinds.push(key);
                }
            }
        }
        let pairs = kinds.iter().enumerate().flat_map(|(at, one)| {
            kinds[at + 1..].iter().filter(|other| one.meets(other)).map(move |other| (one, other))
        });
        pairs.map(|(one, other)| overlap(one, other)).collect()
    }
}

fn overlap(one: &StatementKey<'_>, other: &StatementKey<'_>) -> StatementMistake {
    let (a, b) = (one.statement, other.statement);
    StatementMistake {
        line: a.line,
        rule: format!(
            "`{}` in line {} and `{}` in line {} can reach the same key: a value can make one of `{}` and `{}`",
            a.name,
            a.line,
            b.name,
            b.line,
            one.shown(),
            other.shown()
        ),
        help: Some(
            "begin the keys of one with a text of its own, or declare the parameter an `int`, which has digits alone"
                .into(),
        ),
    }
}

/// A key as a statement has it.
struct StatementKey<'s> {
    statement: &'s Statement,
    word: &'s Word,
}

/// The text at a place of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Set {
    Byte(u8),
    /// The characters of integers.
    Digits,
    /// The characters of real numbers.
    Number,
    Any,
}

/// Whether it stands there once, or as often as wanted.
type Item = (Set, bool);

impl StatementKey<'_> {
    /// Whether both are written alike, whatever their parameters are called and may be.
    fn is_same(&self, other: &Self) -> bool {
        let same = |pair: (&WordPart, &WordPart)| match pair {
            (WordPart::Bytes(one), WordPart::Bytes(other)) => one == other,
            (WordPart::Parameter(_), WordPart::Parameter(_)) => true,
            _ => false,
        };
        self.word.len() == other.word.len() && self.word.iter().zip(other.word).all(same)
    }

    /// Whether there is a key that is both.
    fn meets(&self, other: &Self) -> bool {
        meet(&self.items(), &other.items())
    }

    fn items(&self) -> Vec<Item> {
        let of = |part: &WordPart| match part {
            WordPart::Bytes(bytes) => bytes.iter().map(|byte| (Set::Byte(*byte), false)).collect(),
            WordPart::Parameter(number) => {
                self.statement.parameters.get(*number).map(of_values).unwrap_or_default()
            }
        };
        self.word.iter().flat_map(of).collect()
    }

    fn shown(&self) -> String {
        self.word.iter().fold(String::new(), |mut shown, part| {
            // The only error is that memory is short.
            let _ = match part {
                WordPart::Bytes(bytes) => write!(shown, "{}", String::from_utf8_lossy(bytes)),
                WordPart::Parameter(number) => {
                    let name = self.statement.parameters.get(*number).map_or("", |one| &one.name);
                    write!(shown, "{{:{name}}}")
                }
            };
            shown
        })
    }
}

/// The characters of a parameter's values, written out.
fn of_values(parameter: &Parameter) -> Vec<Item> {
    match parameter.kind {
        Type::Bool => vec![(Set::Digits, false)],
        Type::Int => vec![(Set::Digits, false), (Set::Digits, true)],
        Type::Real => vec![(Set::Number, false), (Set::Number, true)],
        Type::Text | Type::Blob => vec![(Set::Any, true)],
    }
}

impl Set {
    fn has(self, byte: u8) -> bool {
        match self {
            Self::Byte(own) => own == byte,
            Self::Digits => byte.is_ascii_digit() || byte == b'-',
            Self::Number => byte.is_ascii_alphanumeric() || b"+-.".contains(&byte),
            Self::Any => true,
        }
    }

    /// Whether a byte is in both.
    fn meets(self, other: Self) -> bool {
        match (self, other) {
            (Self::Byte(byte), set) | (set, Self::Byte(byte)) => set.has(byte),
            // All others have digits.
            _ => true,
        }
    }
}

/// Whether there is a text that both describe.
fn meet(one: &[Item], other: &[Item]) -> bool {
    let width = other.len() + 1;
    let mut seen = vec![false; (one.len() + 1) * width];
    let mut places = vec![(0, 0)];
    while let Some((i, j)) = places.pop() {
        if std::mem::replace(&mut seen[i * width + j], true) {
            continue;
        }
        let (a, b) = (one.get(i), other.get(j));
        if a.is_none() && b.is_none() {
            return true;
        }
        places.extend(a.filter(|(_, is_often)| *is_often).map(|_| (i + 1, j)));
        places.extend(b.filter(|(_, is_often)| *is_often).map(|_| (i, j + 1)));
        if let (Some((a, a_often)), Some((b, b_often))) = (a, b)
            && a.meets(*b)
        {
            places.push((i + usize::from(!a_often), j + usize::from(!b_often)));
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use crate::{Engine, parse};

    fn overlaps(commands: &[(&str, &str)]) -> Vec<String> {
        let text = commands.iter().enumerate().map(|(at, (params, command))| {
            let params = if params.is_empty() { String::new() } else { format!("-- params: {params}\n") };
            format!("-- name: s{at} :one\n-- services: s\n{params}{command}\n")
        });
        let file = parse(&text.collect::<String>(), Some(Engine::Redis)).unwrap();
        file.overlaps(|_, statement| statement.usual_keys()).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_value_can_make_the_key_of_another_statement() {
        let found = overlaps(&[("id text", "HGETALL user:{:id}"), ("id int", "GET user:{:id}:secret")]);
        assert_eq!(
            found,
            ["line 1: `s0` in line 1 and `s1` in line 5 can reach the same key: a value can make one of \
              `user:{:id}` and `user:{:id}:secret`; begin the keys of one with a text of its own, or declare the \
              parameter an `int`, which has digits alone"]
        );
        for (one, other) in [
            (("a text", "GET user:{:a}"), ("", "GET user:admin")),
            (("a text", "GET x:{:a}:y"), ("b text", "GET x:z{:b}")),
            (("a text", "GET x:{:a}"), ("b int, c int", "GET x:{:b}:{:c}")),
            (("a real", "GET x:{:a}"), ("", "GET x:1.5")),
            (("a int, b text", "RENAME x:{:a} y:{:b}"), ("", "GET y:z")),
            (("a text", "OBJECT ENCODING x:{:a}"), ("", "MGET a x:b")),
        ] {
            assert_eq!(overlaps(&[one, other]).len(), 1, "{one:?} {other:?}");
            assert_eq!(overlaps(&[other, one]).len(), 1, "{one:?} {other:?}");
        }
    }

    #[test]
    fn keys_of_a_kind_and_keys_apart_are_as_they_should_be() {
        for (one, other) in [
            (("id text", "GET visits:{:id}"), ("page text", "INCR visits:{:page}")),
            (("id int", "GET user:{:id}"), ("id int", "GET user:{:id}:secret")),
            (("id text", "GET user:{:id}"), ("id text", "GET secret:{:id}")),
            (("id int", "GET user:{:id}"), ("", "GET user:")),
            (("id bool", "GET user:{:id}"), ("", "GET user:10")),
            (("id text", "GET user:{:id}"), ("id text", "SET other:{:id} user:1")),
            (("", "MSET a user:1 b user:2"), ("id text", "GET user:{:id}")),
        ] {
            assert_eq!(overlaps(&[one, other]), [""; 0], "{one:?} {other:?}");
        }
    }
}
