//! Whose a request is, by its host and path: the one rule, for gates and site workers alike.
//!
//! Runs in: gates and site workers. Sees: hosts and paths of requests (untrusted). Never: lets the two disagree
//! (a connection would go back and forth between them for ever).

use std::cmp::Ordering;

use request::path::{NormalPath, covers};

/// A table of hosts and path prefixes.
#[derive(Clone, Debug)]
pub struct Routes<T> {
    /// Names, in the order of [`order`]: a gate has those of all sites.
    names: Vec<(String, Paths<T>)>,
    /// The longest pattern first, `*` last.
    patterns: Vec<(String, Paths<T>)>,
}

/// The paths of a host: the longest first, and of equal ones the later, a service that has the whole of its site.
type Paths<T> = Vec<(String, T)>;

impl<T> Default for Routes<T> {
    fn default() -> Self {
        Self { names: Vec::new(), patterns: Vec::new() }
    }
}

impl<T> Routes<T> {
    /// Adds a line: requests for `host` (a name, `*.name` or `*`) whose path is at or below `path`.
    pub fn add(&mut self, host: &str, path: &str, target: T) {
        let (hosts, place) = match host.strip_prefix('*') {
            None => {
                let place =
                    self.names.binary_search_by(|(known, _)| order(known.as_bytes(), host.as_bytes()));
                (&mut self.names, place)
            }
            Some(_) => {
                let known = self.patterns.iter().position(|(known, _)| known == host);
                let after = self.patterns.partition_point(|(known, _)| known.len() >= host.len());
                (&mut self.patterns, known.ok_or(after))
            }
        };
        let place = place.unwrap_or_else(|place| {
            hosts.insert(place, (host.into(), Vec::new()));
            place
        });
        let paths = &mut hosts[place].1;
        let before = paths.partition_point(|(known, _)| known.len() > path.len());
        paths.insert(before, (path.into(), target));
    }

    /// Removes the lines of a host, written as it was added.
    pub fn remove(&mut self, host: &str) {
        if host.starts_with('*') {
            self.patterns.retain(|(known, _)| known != host);
        } else if let Ok(place) =
            self.names.binary_search_by(|(known, _)| order(known.as_bytes(), host.as_bytes()))
        {
            self.names.remove(place);
        }
    }

    /// The targets of all lines.
    pub fn targets(&self) -> impl Iterator<Item = &T> {
        let hosts = self.names.iter().chain(&self.patterns);
        hosts.flat_map(|(_, paths)| paths).map(|(_, target)| target)
    }

    /// The line for a request; `host` in whatever case, without port and final dot; `path` as sent,
    /// without the query. A path that has no normal form is the host's `/`, whose worker refuses the request.
    pub fn find(&self, host: &[u8], path: &str) -> Option<&T> {
        match NormalPath::parse(path) {
            // `OPTIONS *` is about the host as a whole.
            Ok(path) if path.as_bytes() != b"*" => self.find_normal(host, &path),
            _ => self.find_bytes(host, b"/"),
        }
    }

    /// The same for a path in its normal form.
    pub fn find_normal(&self, host: &[u8], path: &NormalPath<'_>) -> Option<&T> {
        self.find_bytes(host, path.as_bytes())
    }

    fn find_bytes(&self, host: &[u8], path: &[u8]) -> Option<&T> {
        let name = self.names.binary_search_by(|(known, _)| order(known.as_bytes(), host));
        let (_, paths) = match name {
            Ok(place) => &self.names[place],
            Err(_) => self.patterns.iter().find(|(pattern, _)| covers_host(pattern, host))?,
        };
        paths.iter().find(|(prefix, _)| covers(prefix.as_bytes(), path)).map(|(_, target)| target)
    }
}

/// The order of names, whatever their case: by length first, which tells most of them apart.
fn order(one: &[u8], other: &[u8]) -> Ordering {
    let [lower, other_lower] = [one, other].map(|name| name.iter().map(u8::to_ascii_lowercase));
    one.len().cmp(&other.len()).then_with(|| lower.cmp(other_lower))
}

/// Whether a host is one of a pattern, `*.name` or `*`.
fn covers_host(pattern: &str, host: &[u8]) -> bool {
    let suffix = pattern.as_bytes().strip_prefix(b"*").unwrap_or_default();
    let name = host.len().saturating_sub(suffix.len());
    suffix.is_empty() || (name > 0 && host[name..].eq_ignore_ascii_case(suffix))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Routes<u8> {
        let mut routes = Routes::default();
        routes.add("*", "/", 9);
        routes.add("a.test", "/", 0);
        routes.add("*.test", "/", 4);
        routes.add("a.test", "/search", 1);
        routes.add("a.test", "/package/", 2);
        routes.add("*.wild.test", "/", 3);
        routes
    }

    #[test]
    fn the_more_exact_host_wins() {
        let routes = table();
        for (host, target) in
            [("a.test", 0), ("x.wild.test", 3), ("wild.test", 4), ("b.test", 4), ("test", 9)]
        {
            assert_eq!(routes.find(host.as_bytes(), "/"), Some(&target), "{host}");
        }
    }

    #[test]
    fn each_of_many_hosts_is_found() {
        let mut routes = Routes::default();
        let host = |number: u32| format!("s{}.test", number * 7 % 1000);
        (0..1000).for_each(|number| routes.add(&host(number), "/", number));
        routes.add("*.test", "/", 1000);
        for number in 0..1000 {
            assert_eq!(routes.find(host(number).to_uppercase().as_bytes(), "/"), Some(&number));
        }
        for unknown in ["s1000.test", "t0.test", "s.test", "s00.test"] {
            assert_eq!(routes.find(unknown.as_bytes(), "/"), Some(&1000), "{unknown}");
        }
        assert_eq!((routes.find(b"s0.tesu", "/"), routes.targets().count()), (None, 1001));
    }

    #[test]
    fn what_is_removed_is_found_no_more_and_can_be_added_again() {
        let mut routes = table();
        routes.remove("a.test");
        assert_eq!(routes.find(b"a.test", "/search"), Some(&4));
        routes.remove("*.test");
        assert_eq!(routes.find(b"a.test", "/search"), Some(&9));
        routes.remove("unknown.test");
        routes.add("a.test", "/", 7);
        assert_eq!(
            (routes.find(b"A.test", "/search"), routes.find(b"x.wild.test", "/")),
            (Some(&7), Some(&3))
        );
    }

    #[test]
    fn the_case_of_a_host_makes_no_difference() {
        let routes = table();
        for (host, target) in
            [("A.TEST", 0), ("X.wILD.test", 3), ("Wild.Test", 4), ("B.test", 4), ("TEST", 9)]
        {
            assert_eq!(routes.find(host.as_bytes(), "/"), Some(&target), "{host}");
        }
    }

    #[test]
    fn the_longest_path_wins_at_a_border() {
        let routes = table();
        let cases = [
            ("/search", 1),
            ("/search/x", 1),
            ("/searching", 0),
            ("/package/", 2),
            ("/package/apt", 2),
            ("/package", 0),
            ("/%73earch", 1),
            ("//search", 1),
            ("/package//apt", 2),
            ("/search%2fx", 0),
            ("/%2e%2e/search", 0),
            ("/search/../x", 0),
            ("/..search", 0),
            ("/%", 0),
            ("/%zz", 0),
            ("*", 0),
        ];
        for (path, target) in cases {
            assert_eq!(routes.find(b"a.test", path), Some(&target), "{path}");
        }
    }

    #[test]
    fn no_host_no_line() {
        assert_eq!(Routes::<u8>::default().find(b"a.test", "/"), None);
    }
}
