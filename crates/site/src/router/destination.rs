//! Where a redirect, a rewrite or a tried file leads: targets with the parts of a request in place of variables.
//!
//! Untrusted input: the path, query and host of a request. Must never: let a part of a request choose the host of a
//! `Location`, or end a query's value.

use http::{Request, header};
use request::path::{NormalPath, escape, escape_value};
use rewrite::{Captures, RewriteTarget, TargetPart, Variable};

use crate::router::rules::Rule;

/// The values of variables.
pub(super) struct VariableSource<'r> {
    pub path: &'r NormalPath<'r>,
    pub query: Option<&'r str>,
    /// In lower case, without port.
    pub host: &'r str,
}

/// A path or URL, and its query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Destination {
    pub path: String,
    pub query: Option<String>,
    /// Whether the client's request had no part in the path.
    pub is_fixed: bool,
}

impl Destination {
    /// A folder that was asked for without its slash is itself, so that the client is sent to it.
    pub fn without_new_slash(mut self, path: &NormalPath<'_>) -> Self {
        if !path.is_folder() && self.path.strip_suffix('/') == Some(&path.spelling()) {
            self.path.pop();
        }
        self
    }

    /// As it stands in a `Location`.
    pub fn location(self) -> String {
        match self.query {
            Some(query) => format!("{}?{query}", self.path),
            None => self.path,
        }
    }
}

impl VariableSource<'_> {
    /// Where `to` leads under `rule`: if the rule's path and a target without variables end with a slash, what follows
    /// the rule's path is added.
    pub fn destination(&self, rule: &Rule, to: &RewriteTarget) -> Destination {
        let captures = rule.matcher.pattern.as_ref().and_then(|pattern| pattern.find(self.path.as_bytes()));
        let captures = captures.unwrap_or_default();
        let rest = rule.matcher.path.as_deref().and_then(|from| {
            let is_folder = to.is_plain() && to.fixed_path().is_some_and(|path| path.ends_with('/'));
            // A part that was decoded to be compared is encoded again: a backslash or a line end must not reach a
            // client.
            (is_folder && from.ends_with('/')).then(|| escape(self.path.below(from).unwrap_or_default()))
        });
        let rest = rest.unwrap_or_default();
        let path = self.path_of(to, &captures) + &rest;
        Destination {
            query: self.query_of(to, &captures),
            path,
            is_fixed: to.fixed_path().is_some() && rest.is_empty(),
        }
    }

    fn path_of(&self, to: &RewriteTarget, captures: &Captures<'_>) -> String {
        let mut out = String::new();
        for part in &to.path {
            let value = match part {
                TargetPart::Text(text) => text.clone(),
                TargetPart::Variable(Variable::Host) => self.host.to_owned(),
                TargetPart::Variable(Variable::Args) => escape(self.query.unwrap_or_default().as_bytes()),
                TargetPart::Variable(Variable::Uri) => self.path.spelling(),
                TargetPart::Variable(Variable::Group(name)) => escape(captures.get(name)),
            };
            // SECURITY: behind a host there is only a path, whatever a group has matched.
            let ends_host =
                matches!(part, TargetPart::Variable(Variable::Group(_) | Variable::Args)) && is_in_host(&out);
            if ends_host && !value.is_empty() && !value.starts_with('/') {
                out.push('/');
            }
            out.push_str(&value);
        }
        // SECURITY: `//name` would be another host.
        match out.starts_with("//") {
            true => format!("/{}", out.trim_start_matches('/')),
            false => out,
        }
    }

    fn query_of(&self, to: &RewriteTarget, captures: &Captures<'_>) -> Option<String> {
        let own = to.query.iter().map(|part| match part {
            TargetPart::Text(text) => text.clone(),
            TargetPart::Variable(Variable::Args) => self.query.unwrap_or_default().to_owned(),
            TargetPart::Variable(Variable::Host) => escape_value(self.host.as_bytes()),
            TargetPart::Variable(Variable::Uri) => escape_value(self.path.as_bytes()),
            TargetPart::Variable(Variable::Group(name)) => escape_value(captures.get(name)),
        });
        let own: String = own.collect();
        let kept = self.query.filter(|_| to.keeps_query).unwrap_or_default();
        let both: Vec<&str> =
            [own.trim_end_matches('&'), kept].into_iter().filter(|part| !part.is_empty()).collect();
        (!both.is_empty()).then(|| both.join("&"))
    }
}

/// The host, in lower case, without port and final dot.
pub(crate) fn host_of<B>(request: &Request<B>) -> Option<String> {
    let field = || request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    let authority = request.uri().authority().map(http::uri::Authority::as_str).or_else(field)?;
    Some(request::target::lower_host(authority.as_bytes()))
}

/// Whether what is added to a URL is still part of its host.
fn is_in_host(url: &str) -> bool {
    url.split_once("://").is_some_and(|(_, rest)| !rest.contains('/'))
}

#[cfg(test)]
mod tests {
    use rewrite::{Matcher, Pattern};

    use super::*;
    use crate::router::rules::RuleTarget as Action;

    fn lead(pattern: &str, to: &str, path: &str, query: Option<&str>) -> String {
        let pattern = Pattern::new(pattern).unwrap();
        let to = RewriteTarget::parse(to, Some(&pattern)).unwrap();
        let rule = Rule::new(Some(1), Matcher::pattern(pattern), Action::Files);
        let path = NormalPath::parse(path).unwrap();
        VariableSource { path: &path, query, host: "a.test" }.destination(&rule, &to).location()
    }

    #[test]
    fn groups_and_queries() {
        for (to, query, location) in [
            ("/b/$1", None, "/b/x%20y/%2Fz"),
            ("/b/$1", Some("q=1"), "/b/x%20y/%2Fz?q=1"),
            ("/b?p=$1", Some("q=1"), "/b?p=x%20y/%2Fz&q=1"),
            ("/b?p=$1?", Some("q=1"), "/b?p=x%20y/%2Fz"),
            ("/b?$args&p=1", Some("q=1"), "/b?q=1&p=1"),
            ("/b?p=1&$args", None, "/b?p=1"),
            ("https://$host$uri", Some("q"), "https://a.test/x%20y/%2Fz?q"),
            ("/b?u=$uri", None, "/b?u=/x%20y/%2Fz"),
        ] {
            assert_eq!(lead("^/(.*)$", to, "/x%20y/%2Fz", query), location, "{to}");
        }
        assert_eq!(lead("^/(.*)$", "/i?q=$1", "/a&b=%3D%23%25+", None), "/i?q=a%26b%3D%3D%23%25%2B");
    }

    #[test]
    fn no_part_of_a_request_chooses_a_host() {
        for (pattern, to, path, location) in [
            ("^/go(.*)$", "$1", "/go/evil.test", "/evil.test"),
            ("^/go(.*)$", "/$1", "/go/evil.test", "/evil.test"),
            ("^/go/(.*)$", "/$1", "/go/%2Fevil.test", "/%2Fevil.test"),
            ("^/go/(.*)$", "/$1", "/go/%5Cevil.test", "/%5Cevil.test"),
            ("^/go(.*)$", "https://b.test$1", "/go.evil.test", "https://b.test/.evil.test"),
            ("^/go(.*)$", "https://b.test$1", "/go@evil.test", "https://b.test/@evil.test"),
            ("^/go(.*)$", "https://b.test$1", "/go:80@evil.test/", "https://b.test/:80@evil.test/"),
            ("^/go(.*)$", "https://b.test$1", "/go", "https://b.test"),
            ("^/(.*)$", "/x/$1", "/%0d%0aX:%201", "/x/%0D%0AX:%201"),
        ] {
            assert_eq!(lead(pattern, to, path, None), location, "{to}");
        }
    }
}
