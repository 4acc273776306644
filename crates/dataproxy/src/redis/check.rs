//! Checks a command by the server's own description, before the command is carried out for any service.
//!
//! SECURITY: a command reaches the keys that stand in its statement, and each begins with text of the operator's. What
//! reaches others, or changes what holds for all, is refused.

use std::collections::HashMap;

use resp::RespReply;
use statements::{KeyPlaces, Statement, WordPart, key_places, names};

use super::CheckedCommand;
use super::line::RespStream;

/// LIMIT: bytes of what the server says of a command.
const ABOUT_MAX: usize = 1 << 20;
/// Flags and categories of commands that are for nobody's statement, and what is wrong with each.
const NEVER: [(&str, &str); 12] = [
    ("admin", "is for administrators"),
    ("@admin", "is for administrators"),
    ("@dangerous", "may stop the server, or shows or changes what is not a service's"),
    ("blocking", "waits, and keeps a connection from all others"),
    ("@blocking", "waits, and keeps a connection from all others"),
    ("pubsub", "changes what the connection is for"),
    ("@pubsub", "changes what the connection is for"),
    ("@connection", "holds for the connection, which all services share"),
    ("@transaction", "is said by the data proxy; a `-- transaction:` names statements that hold together"),
    ("@scripting", "runs a program, which reaches any key"),
    ("noscript", "holds for the connection, which all services share"),
    ("movablekeys", "reaches keys that depend on its other words"),
];
/// Commands that reach another database than the source's.
const ELSEWHERE: [&str; 2] = ["copy", "move"];

/// A command, as the server describes it.
#[derive(Clone, Debug, Default)]
struct About {
    /// Words that it has; negative for so many or more.
    arity: i64,
    flags: Vec<String>,
    keys: KeyPlaces,
    /// Whether what it does is said by a second word.
    has_subcommands: bool,
}

/// The server's descriptions of the commands of a file.
#[derive(Debug, Default)]
pub(super) struct Commands(HashMap<String, Option<About>>);

impl Commands {
    /// Asks the server for what it has not said yet of a statement's command.
    pub(super) async fn learn(&mut self, line: &mut RespStream, about: &Statement) -> Result<(), String> {
        for name in names(&about.words) {
            if self.0.contains_key(&name) {
                continue;
            }
            let reply = line.ask(&["COMMAND", "INFO", &name], ABOUT_MAX).await;
            let found = match reply.map_err(|error| format!("the server is lost: {error}"))? {
                RespReply::Failed(reason) => {
                    return Err(format!(
                        "the server does not say what `{name}` is: {reason}; its user needs `+command`"
                    ));
                }
                RespReply::List(found) => found.first().and_then(read),
                _ => None,
            };
            self.0.insert(name, found);
        }
        Ok(())
    }

    /// Whether a statement's command only reads, and where its keys are; or what is wrong with it.
    pub(super) fn check(&self, statement: &Statement) -> Result<CheckedCommand, String> {
        if let Some(nullable) = statement.parameters.iter().find(|parameter| parameter.nullable) {
            let (name, kind) = (&nullable.name, nullable.kind.word());
            return Err(format!("`:{name}` may be NULL, which Redis does not have: write `{name} {kind}`"));
        }
        let words = &statement.words;
        let mut names = names(words).into_iter();
        let first = names.next().ok_or("the name of the command is a parameter: write the name")?;
        let mut shown = first.to_uppercase();
        let mut about = self.0.get(&first).and_then(Option::as_ref).ok_or_else(|| unknown(&shown))?;
        if about.has_subcommands {
            let name = names
                .next()
                .ok_or_else(|| format!("`{shown}` has several commands: write behind it which one"))?;
            shown = name.replace('|', " ").to_uppercase();
            about = self.0.get(&name).and_then(Option::as_ref).ok_or_else(|| unknown(&shown))?;
        }
        let refused = |why: &str| Err(format!("`{shown}` is not for a statement: it {why}"));
        if let Some((_, why)) = NEVER.iter().find(|(word, _)| about.flags.iter().any(|flag| flag == word)) {
            return refused(why);
        }
        if ELSEWHERE.contains(&&*first) {
            return refused("reaches another database");
        }
        let count = i64::try_from(words.len()).unwrap_or(i64::MAX);
        if (about.arity >= 0 && count != about.arity) || count < about.arity.abs() {
            let least = if about.arity < 0 { "at least " } else { "" };
            return Err(format!("`{shown}` has {least}{} words, and here are {count}", about.arity.abs()));
        }
        if !has_keys(about, statement)? {
            return refused("names no key");
        }
        Ok(CheckedCommand { reads: about.flags.iter().any(|flag| flag == "readonly"), keys: about.keys })
    }
}

/// Whether a statement has keys; refuses those that a service could choose.
fn has_keys(about: &About, statement: &Statement) -> Result<bool, String> {
    let words = &statement.words;
    let mut has_keys = false;
    for at in key_places(about.keys, words.len()) {
        match words.get(at).and_then(|word| word.first()) {
            Some(WordPart::Bytes(text)) if !text.is_empty() => has_keys = true,
            Some(WordPart::Parameter(number)) => {
                let (key, own) = (&statement.parameters[*number].name, &statement.name);
                return Err(format!(
                    "`:{key}` begins a key, so that a service could reach all keys: begin it with text, such as \
                     `{own}:{{:{key}}}`"
                ));
            }
            _ => return Err("a key is empty".into()),
        }
    }
    Ok(has_keys)
}

fn unknown(name: &str) -> String {
    format!("the server knows no command `{name}`")
}

/// Reads a server's description of a command.
fn read(reply: &RespReply) -> Option<About> {
    let RespReply::List(parts) = reply else { return None };
    let number = |at: usize| match parts.get(at) {
        Some(RespReply::Int(number)) => Some(*number),
        _ => None,
    };
    let list = |at: usize| match parts.get(at) {
        Some(RespReply::List(values)) => &values[..],
        _ => &[],
    };
    let text = |value: &RespReply| match value {
        RespReply::Bytes(bytes) => Some(String::from_utf8_lossy(bytes).to_ascii_lowercase()),
        _ => None,
    };
    Some(About {
        arity: number(1)?,
        flags: list(2).iter().chain(list(6)).filter_map(text).collect(),
        keys: (number(3)?, number(4)?, number(5)?),
        has_subcommands: !list(9).is_empty(),
    })
}
