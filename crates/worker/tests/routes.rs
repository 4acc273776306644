//! The table of hosts and paths, in whatever order its lines are added.

use worker::routes::Routes;

/// Every order of these.
fn orders<T: Clone>(items: &[T]) -> Vec<Vec<T>> {
    if items.is_empty() {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for at in 0..items.len() {
        let mut rest = items.to_vec();
        let first = rest.remove(at);
        all.extend(orders(&rest).into_iter().map(|order| [vec![first.clone()], order].concat()));
    }
    all
}

fn table(lines: &[(&'static str, &'static str)]) -> Routes<(&'static str, &'static str)> {
    let mut routes = Routes::default();
    lines.iter().for_each(|&(host, path)| routes.add(host, path, (host, path)));
    routes
}

#[test]
fn the_longest_path_wins_in_whatever_order_paths_are_added() {
    let lines = ["/", "/a", "/a/b", "/a/b/c/", "/b/"].map(|path| ("a.test", path));
    for order in orders(&lines) {
        let routes = table(&order);
        for (path, found) in [
            ("/", "/"),
            ("/x", "/"),
            ("/a", "/a"),
            ("/a/x", "/a"),
            ("/a/b", "/a/b"),
            ("/a/b/c", "/a/b"),
            ("/a/b/c/", "/a/b/c/"),
            ("/b", "/"),
            ("/b/x", "/b/"),
        ] {
            assert_eq!(routes.find(b"a.test", path), Some(&("a.test", found)), "{order:?} {path}");
        }
    }
}

#[test]
fn the_most_exact_host_wins_in_whatever_order_hosts_are_added() {
    let lines = ["*", "a.test", "*.test", "*.b.test", "*.c.b.test"].map(|host| (host, "/"));
    for order in orders(&lines) {
        let routes = table(&order);
        for (host, found) in [
            ("a.test", "a.test"),
            ("x.test", "*.test"),
            ("b.test", "*.test"),
            ("x.b.test", "*.b.test"),
            ("x.c.b.test", "*.c.b.test"),
            (".test", "*"),
            ("test", "*"),
            ("", "*"),
        ] {
            assert_eq!(routes.find(host.as_bytes(), "/"), Some(&(found, "/")), "{order:?} {host}");
        }
    }
}

#[test]
fn of_two_equal_lines_the_later_one_counts() {
    let mut routes = Routes::default();
    routes.add("a.test", "/", 1);
    routes.add("a.test", "/", 2);
    assert_eq!(routes.find(b"a.test", "/x"), Some(&2));
}

#[test]
fn a_host_without_a_line_for_a_path_is_not_looked_up_under_another_pattern() {
    let routes = table(&[("a.test", "/only"), ("*", "/")]);
    assert_eq!(routes.find(b"a.test", "/other"), None);
    assert_eq!(routes.find(b"b.test", "/other"), Some(&("*", "/")));
}
