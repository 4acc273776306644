//! "Did you mean": the known word nearest to a mistyped one.
//!
//! Runs in: the launcher (root) and the `bulkhead` command. Input: keys and words of the operator's file.
//! Must never: take the suggestion in the operator's place.

/// LIMIT: longer than any key; the work is the product of two lengths, and a wild key may be a megabyte.
const WORD_CHARS_MAX: usize = 64;

/// The candidate that `word` is most likely meant to be, if any is near enough.
pub(crate) fn closest<'c>(word: &str, candidates: &[&'c str]) -> Option<&'c str> {
    if word.chars().count() > WORD_CHARS_MAX {
        return None;
    }
    let word = word.to_lowercase();
    let nearest = candidates.iter().map(|candidate| (distance(&word, candidate), *candidate)).min();
    let allowed = (word.chars().count() / 3).max(1);
    match nearest {
        Some((distance, candidate)) if distance <= allowed => Some(candidate),
        _ => by_prefix(&word, candidates),
    }
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
}
