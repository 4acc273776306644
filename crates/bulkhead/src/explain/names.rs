//! Which process is meant by a name, and which one was probably meant.
//!
//! Runs in: the `bulkhead` command; pure. Sees: a word of whoever types it. Never: guesses in that person's place.

use crate::fault::Fault;
use crate::order::printable;

/// LIMIT: a name has at most two parts of 63 characters; the work is the product of two lengths.
const NAME_CHARS_MAX: usize = 127;

/// The number of the process that is called `name`.
pub fn find(name: &str, names: &[&str]) -> Result<usize, Fault> {
    names.iter().position(|known| *known == name).ok_or_else(|| {
        let meant = closest(name, names).map_or(String::new(), |meant| format!("did you mean `{meant}`? "));
        let (shown, known) = (printable(name), names.join(", "));
        Fault::Usage(format!("there is no `{shown}` in this configuration; {meant}the names are: {known}"))
    })
}

/// The name that is fewest typing errors away; a service may be named without its site.
fn closest<'n>(name: &str, names: &[&'n str]) -> Option<&'n str> {
    let chars = name.chars().count();
    if chars > NAME_CHARS_MAX {
        return None;
    }
    let allowed = (chars / 3).max(1);
    let distance = |known: &str| {
        let bare = known.split_once('/').map_or(known, |(_, service)| service);
        strsim::osa_distance(name, known).min(strsim::osa_distance(name, bare))
    };
    let near = names.iter().map(|known| (distance(known), *known)).min_by_key(|(distance, _)| *distance);
    near.filter(|(distance, _)| *distance <= allowed).map(|(_, known)| known)
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
