//! Where a rule leads: text, and variables that stand for parts of the request.

use crate::Pattern;

/// Something of the request that a target may stand for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Variable {
    /// `$1`, `$name`: what a group of the pattern has matched, decoded.
    Group(String),
    /// `$uri`: the path in its normal form.
    Uri,
    /// `$args`: the query as sent.
    Args,
    /// `$host`: the host in lower case, without port.
    Host,
}

/// A piece of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetPart {
    /// As written.
    Text(String),
    /// A variable for a part of the request.
    Variable(Variable),
}

/// Where a rule leads: a path or a URL, and perhaps a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RewriteTarget {
    /// The part before the `?`.
    pub path: Vec<TargetPart>,
    /// The part after the `?`, if there is one and something after it.
    pub query: Vec<TargetPart>,
    /// Whether the request's query goes along, behind the target's own. A `?` at the end says that it does not, as in
    /// nginx's `rewrite`.
    pub keeps_query: bool,
}

impl RewriteTarget {
    /// Reads a target as written; `pattern` is that of its rule, whose groups it may name.
    ///
    /// # Errors
    /// The fault of the target, as a sentence.
    pub fn parse(text: &str, pattern: Option<&Pattern>) -> Result<Self, String> {
        let (path, query) = text.split_once('?').map_or((text, None), |(path, query)| (path, Some(query)));
        let drops = query.is_some_and(|query| query.is_empty() || query.ends_with('?'));
        let query = parts(query.unwrap_or_default().trim_end_matches('?'), pattern)?;
        // A rule that names the query's place does not want the query twice.
        let names_args = query.contains(&TargetPart::Variable(Variable::Args));
        Ok(Self { path: parts(path, pattern)?, query, keeps_query: !drops && !names_args })
    }

    /// The path, if it is the same for every request.
    pub fn fixed_path(&self) -> Option<&str> {
        match &self.path[..] {
            [TargetPart::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// Whether it stands for one path alone, with no query of its own: `/new/`, to which what follows the rule's path
    /// can be added.
    pub fn is_plain(&self) -> bool {
        self.fixed_path().is_some() && self.query.is_empty()
    }
}

fn parts(text: &str, pattern: Option<&Pattern>) -> Result<Vec<TargetPart>, String> {
    let mut parts: Vec<TargetPart> = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        push(&mut parts, &rest[..at]);
        rest = &rest[at + 1..];
        if let Some(tail) = rest.strip_prefix('$') {
            push(&mut parts, "$");
            rest = tail;
            continue;
        }
        let (name, tail) = name(rest).ok_or("a `$` begins a variable; write `$$` for the sign itself")?;
        parts.push(TargetPart::Variable(variable(name, pattern)?));
        rest = tail;
    }
    push(&mut parts, rest);
    Ok(parts)
}

/// Adds text to the last part if that is text.
fn push(parts: &mut Vec<TargetPart>, text: &str) {
    match parts.last_mut() {
        _ if text.is_empty() => {}
        Some(TargetPart::Text(last)) => last.push_str(text),
        _ => parts.push(TargetPart::Text(text.to_owned())),
    }
}

/// The name after a `$`, and what follows it: `1`, `name` or `{name}`. A number has one digit, as in nginx.
fn name(text: &str) -> Option<(&str, &str)> {
    if let Some(inner) = text.strip_prefix('{') {
        let (name, tail) = inner.split_once('}')?;
        return (!name.is_empty()).then_some((name, tail));
    }
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let end = match text.chars().next()? {
        first if first.is_ascii_digit() => 1,
        _ => text.find(|c| !is_word(c)).unwrap_or(text.len()),
    };
    (end > 0).then(|| text.split_at(end))
}

fn variable(name: &str, pattern: Option<&Pattern>) -> Result<Variable, String> {
    match name {
        "uri" => Ok(Variable::Uri),
        "args" => Ok(Variable::Args),
        "host" => Ok(Variable::Host),
        name if pattern.is_some_and(|pattern| pattern.has_group(name)) => {
            Ok(Variable::Group(name.to_owned()))
        }
        name => Err(match pattern {
            Some(pattern) => {
                format!("`${name}` is none of $uri, $args, $host, and no group of `{}`", pattern.text())
            }
            None => format!("`${name}` is none of $uri, $args, $host, and there is no `pattern` with groups"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(name: &str) -> TargetPart {
        TargetPart::Variable(Variable::Group(name.into()))
    }

    fn text(text: &str) -> TargetPart {
        TargetPart::Text(text.into())
    }

    #[test]
    fn paths_queries_and_variables() {
        let pattern = Pattern::new("^/(a)(?<n>b)$").unwrap();
        let parse = |text| RewriteTarget::parse(text, Some(&pattern));
        let target = parse("/x/$1-${n}x?p=$n$1&q=$$1").unwrap();
        assert_eq!(target.path, [text("/x/"), group("1"), text("-"), group("n"), text("x")]);
        assert_eq!(target.query, [text("p="), group("n"), group("1"), text("&q=$1")]);
        assert!(target.keeps_query && !target.is_plain());
        for (written, keeps, own) in [
            ("/new", true, false),
            ("/new?", false, false),
            ("/new?a=1", true, true),
            ("/new?a=1?", false, true),
            ("/new?$args", false, true),
            ("/new?a=1&$args", false, true),
        ] {
            let target = parse(written).unwrap();
            assert_eq!((target.keeps_query, !target.query.is_empty()), (keeps, own), "{written}");
            assert_eq!(target.fixed_path(), Some("/new"));
        }
        assert_eq!(parse("https://$host$uri").unwrap().path.len(), 3);
    }

    #[test]
    fn targets_that_mean_nothing() {
        for bad in ["/$", "/$3", "/${}", "/${n", "/$other", "/$ x"] {
            assert!(RewriteTarget::parse(bad, Some(&Pattern::new("(a)(?<n>b)").unwrap())).is_err(), "{bad}");
        }
        assert!(RewriteTarget::parse("/$1", None).unwrap_err().contains("no `pattern`"));
    }
}
