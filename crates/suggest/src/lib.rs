//! "Did you mean": the known word nearest to a mistyped one.
//!
//! Runs in: the launcher (root), admin and the `bulkhead` command; pure. Sees: keys and words of the operator's file,
//! and names that an operator types. Never: takes the suggestion in the operator's place.

/// LIMIT: longer than any key, and than the name of a service with its site; the work is the product of two lengths,
/// and a wild key may be a megabyte.
const WORD_CHARS_MAX: usize = 128;

/// The process that `name` is most likely meant to be, where a service may be named without its site.
pub fn closest_name<'n>(name: &str, names: &[&'n str]) -> Option<&'n str> {
    let bare: Vec<&str> = names.iter().map(|known| known.rsplit('/').next().unwrap_or(known)).collect();
    let of_bare = |bare_name: &str| {
        names.iter().zip(&bare).find(|(_, bare)| **bare == bare_name).map(|(known, _)| *known)
    };
    match of_bare(name) {
        Some(exact) => Some(exact),
        None => nearest(name, names).or_else(|| of_bare(nearest(name, &bare)?)),
    }
}

/// The same as the beginning of a sentence, for an answer; nothing if none is near enough.
pub fn did_you_mean(name: &str, names: &[&str]) -> String {
    closest_name(name, names).map_or(String::new(), |meant| format!("did you mean {meant:?}? "))
}

/// The candidate that `word` is most likely meant to be, if any is near enough.
pub fn closest<'c>(word: &str, candidates: &[&'c str]) -> Option<&'c str> {
    if word.chars().count() > WORD_CHARS_MAX {
        return None;
    }
    let word = word.to_lowercase();
    nearest(&word, candidates).or_else(|| by_prefix(&word, candidates))
}

/// The candidate that is fewest typing errors away, if these are at most a third of the word's length.
fn nearest<'c>(word: &str, candidates: &[&'c str]) -> Option<&'c str> {
    let chars = word.chars().count();
    if chars > WORD_CHARS_MAX {
        return None;
    }
    let nearest = candidates.iter().map(|candidate| (distance(word, candidate), *candidate)).min();
    nearest.filter(|(distance, _)| *distance <= (chars / 3).max(1)).map(|(_, candidate)| candidate)
}

/// `memory` for `memory_max`: one is the beginning of the other.
fn by_prefix<'c>(word: &str, candidates: &[&'c str]) -> Option<&'c str> {
    let related = |candidate: &&&str| candidate.starts_with(word) || word.starts_with(**candidate);
    if word.len() < 3 { None } else { candidates.iter().find(related).copied() }
}

/// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b` (optimal string
/// alignment).
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_edits() {
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("idel", "idle"), 1);
        assert_eq!(distance("ban_afetr", "ban_after"), 1);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("same", "same"), 0);
    }

    #[test]
    fn finds_the_near_and_not_the_far() {
        let keys = ["head_bytes", "body_bytes", "connections", "memory_max", "path", "name"];
        assert_eq!(closest("haed_bytes", &keys), Some("head_bytes"));
        assert_eq!(closest("conections", &keys), Some("connections"));
        assert_eq!(closest("MEMORY_MAX", &keys), Some("memory_max"));
        assert_eq!(closest("memory", &keys), Some("memory_max"));
        assert_eq!(closest("nam", &keys), Some("name"));
        assert_eq!(closest("tls", &keys), None);
        assert_eq!(closest("x", &keys), None);
        assert_eq!(closest(&"p".repeat(1000), &keys), None);
    }
    #[test]
    fn a_service_may_be_named_without_its_site() {
        let names = ["bulkheadd", "gate", "packages", "packages/search"];
        assert_eq!(closest_name("packages/serach", &names), Some("packages/search"));
        assert_eq!(closest_name("search", &names), Some("packages/search"));
        assert_eq!(closest_name("serach", &names), Some("packages/search"));
        assert_eq!(closest_name("gaet", &names), Some("gate"));
        assert_eq!(closest_name("other", &names), None);
        assert_eq!(closest_name(&"packages".repeat(40), &names), None);
        assert_eq!(closest_name("gate", &[]), None);
    }
}
