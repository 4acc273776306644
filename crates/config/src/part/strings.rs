//! Whether a string may be in a TOML text, without parsing it.
//!
//! Runs in: the `bulkhead` command. Input: the operator's files. Must never: overlook a string that the parser would
//! find.

/// Whether there may be a string in a text that `is_meant`.
///
/// INVARIANT: without escapes and strings of several lines, a string begins and ends on its line and has none of the
/// quotes that it stands in. Where a line has quotes of one kind only, its strings are therefore every second piece
/// between these: what comes before a comment is made of whole strings, and what is in a comment is no string. Where
/// there is anything else, there may be.
pub(super) fn may_have(text: &str, is_meant: impl Fn(&str) -> bool) -> bool {
    if text.contains('\\') || text.contains("\"\"\"") || text.contains("'''") {
        return true;
    }
    let between = |line: &str, quote: char| line.split(quote).skip(1).step_by(2).any(&is_meant);
    text.split('\n').any(|line| match (line.contains('"'), line.contains('\'')) {
        (true, true) => true,
        (true, false) => between(line, '"'),
        (false, true) => between(line, '\''),
        (false, false) => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(text: &str) -> Option<Vec<String>> {
        let found = std::cell::RefCell::new(Vec::new());
        let is_uncertain = may_have(text, |string| {
            found.borrow_mut().push(string.to_owned());
            false
        });
        (!is_uncertain).then(|| found.into_inner())
    }

    #[test]
    fn strings_of_a_plain_text_are_found() {
        let text = "a = \"x\" # not \"y\"\n'b' = ['c', 'd',\n  \"e f\",\n]\nn = 1\nempty = \"\"\r\n";
        let expected = ["x", "y", "b", "c", "d", "e f", ""].map(str::to_owned).to_vec();
        assert_eq!(strings(text), Some(expected));
    }

    #[test]
    fn what_needs_a_parser_may_be_anything() {
        for text in [
            "a = \"\\u0061\"",
            "a = \"\"\"\nx\"\"\"",
            "a = '''\nx'''",
            "a = \"it's\"",
            "a = 'x' # a \"b\"",
            "# C:\\",
        ] {
            assert_eq!(strings(text), None, "{text}");
        }
    }
}
