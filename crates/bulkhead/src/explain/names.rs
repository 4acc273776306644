//! Which process is meant by a name, and which one was probably meant.
//!
//! Runs in: the `bulkhead` command; pure. Sees: a word of whoever types it. Never: guesses in that person's place.

use crate::admin::printable;
use crate::fault::Fault;

/// The number of the process that is called `name`.
pub fn find(name: &str, names: &[&str]) -> Result<usize, Fault> {
    names.iter().position(|known| *known == name).ok_or_else(|| {
        let meant = suggest::closest_name(name, names)
            .map_or(String::new(), |meant| format!("did you mean `{meant}`? "));
        let (shown, known) = (printable(name), names.join(", "));
        Fault::Usage(format!("there is no `{shown}` in this configuration; {meant}the names are: {known}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 4] = ["bulkheadd", "gate", "packages", "packages/search"];

    fn error(name: &str) -> String {
        find(name, &NAMES).unwrap_err().to_string()
    }

    #[test]
    fn a_known_name_is_found() {
        assert_eq!(find("packages/search", &NAMES).unwrap(), 3);
    }

    #[test]
    fn a_near_name_is_suggested() {
        let expected = "there is no `packages/serach` in this configuration; did you mean `packages/search`? \
            the names are: bulkheadd, gate, packages, packages/search";
        assert_eq!(error("packages/serach"), expected);
        assert!(error("search").contains("did you mean `packages/search`?"));
        assert!(error("serach").contains("did you mean `packages/search`?"));
        assert!(error("gaet").contains("did you mean `gate`?"));
    }

    #[test]
    fn a_far_one_is_not_and_cannot_drive_the_terminal() {
        assert!(!error("tls").contains("did you mean"));
        assert!(!error(&"gate".repeat(100)).contains("did you mean"));
        assert!(error("\u{1b}[2J").contains("`\\u{1b}[2J`"));
        assert!(matches!(find("", &[]), Err(Fault::Usage(_))));
    }
}
