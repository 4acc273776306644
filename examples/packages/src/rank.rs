//! Full-text search: which packages hold all words of a query, the best first.
//!
//! Runs in: the service `search`, under its uid, inside its jail. Sees: queries that clients made up. Never: does
//! work that a query can make grow without bound.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::catalogue::Package;

/// LIMIT: each word costs one walk over the index; nobody types more.
const WORDS_MAX: usize = 8;
/// LIMIT: a shorter word stands for itself only, not for every word that begins with it.
const PREFIX_MIN: usize = 2;

const IN_NAME: u32 = 60;
const IN_SUMMARY: u32 = 12;
const IN_DESCRIPTION: u32 = 2;
/// For a name that is the whole query.
const IS_NAME: u32 = 1000;

/// The words of all packages, and where they stand.
#[derive(Debug, Default)]
pub struct Index {
    words: BTreeMap<String, Vec<Entry>>,
    names: Vec<String>,
}

/// How much a word says about a package.
#[derive(Clone, Copy, Debug)]
struct Entry {
    package: usize,
    weight: u32,
}

/// A package that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit {
    /// Its place among the packages of which the index was made.
    pub package: usize,
    /// How well it fits; more is better.
    pub score: u32,
}

impl Index {
    /// An index of `packages`.
    pub fn new(packages: &[Package]) -> Self {
        let mut index = Self::default();
        for (place, package) in packages.iter().enumerate() {
            index.names.push(package.name.to_lowercase());
            for (word, weight) in weights(package) {
                let entry = Entry { package: place, weight };
                index.words.entry(word).or_default().push(entry);
            }
        }
        index
    }

    /// How many different words there are.
    pub fn words(&self) -> usize {
        self.words.len()
    }

    /// The packages that hold every word of `query`, or a word that begins with it; the best first.
    pub fn search(&self, query: &str) -> Vec<Hit> {
        let mut scores: Option<HashMap<usize, u32>> = None;
        for word in words(query).take(WORDS_MAX) {
            let found = self.scores(&word);
            scores = Some(match scores {
                None => found,
                Some(before) => both(before, &found),
            });
        }
        let query = query.trim().to_lowercase();
        let mut hits: Vec<Hit> = scores
            .unwrap_or_default()
            .into_iter()
            .map(|(package, score)| self.hit(package, score, &query))
            .collect();
        hits.sort_unstable_by_key(|hit| (std::cmp::Reverse(hit.score), hit.package));
        hits
    }

    fn hit(&self, package: usize, score: u32, query: &str) -> Hit {
        let whole = self.names.get(package).is_some_and(|name| name == query);
        Hit { package, score: score + if whole { IS_NAME } else { 0 } }
    }

    /// What `word` scores in each package; the best of the words that begin with it counts, at half its weight.
    fn scores(&self, word: &str) -> HashMap<usize, u32> {
        let mut scores = HashMap::new();
        for (other, entries) in self.words.range(word.to_owned()..) {
            let whole = other == word;
            if !other.starts_with(word) || (!whole && word.len() < PREFIX_MIN) {
                break;
            }
            for entry in entries {
                let score = if whole { entry.weight } else { entry.weight / 2 };
                let best = scores.entry(entry.package).or_default();
                *best = score.max(*best);
            }
        }
        scores
    }
}

/// The words in `text`, in lower case.
fn words(text: &str) -> impl Iterator<Item = String> {
    text.split(|character: char| !character.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
}

/// What each word says about `package`: a place counts once, however often the word stands there.
fn weights(package: &Package) -> HashMap<String, u32> {
    let mut weights: HashMap<String, u32> = HashMap::new();
    let places =
        [(&package.name, IN_NAME), (&package.summary, IN_SUMMARY), (&package.description, IN_DESCRIPTION)];
    for (text, weight) in places {
        for word in words(text).collect::<HashSet<_>>() {
            *weights.entry(word).or_default() += weight;
        }
    }
    weights
}

/// The sums of those that are in both.
fn both(mut scores: HashMap<usize, u32>, others: &HashMap<usize, u32>) -> HashMap<usize, u32> {
    scores.retain(|package, score| {
        let other = others.get(package);
        *score += other.copied().unwrap_or(0);
        other.is_some()
    });
    scores
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(query: &str) -> Vec<&'static str> {
        const PACKAGES: [(&str, &str, &str); 5] = [
            ("apt", "package manager", "It asks the web."),
            ("apt-utils", "tools for apt", "More for apt; apt, apt, apt."),
            ("g++", "GNU C++ compiler", "Compiles."),
            ("nginx", "small web server", "A web server with a web of modules."),
            ("webfs", "server for files", "Lightweight."),
        ];
        let packages = PACKAGES.map(|(name, summary, description)| Package {
            name: name.to_owned(),
            summary: summary.to_owned(),
            description: description.to_owned(),
            ..Package::default()
        });
        let hits = Index::new(&packages).search(query);
        hits.iter().map(|hit| PACKAGES[hit.package].0).collect()
    }

    #[test]
    fn a_name_counts_for_more_than_a_summary_and_that_for_more_than_a_description() {
        assert_eq!(found("web"), ["webfs", "nginx", "apt"]);
    }

    #[test]
    fn the_whole_name_comes_first() {
        assert_eq!(found("apt"), ["apt", "apt-utils"]);
        assert_eq!(found(" G++ "), ["g++"]);
    }

    #[test]
    fn every_word_must_be_there() {
        assert_eq!(found("web server"), ["webfs", "nginx"]);
        assert_eq!(found("web nothing"), [""; 0]);
        assert_eq!(found("nothing web"), [""; 0]);
    }

    #[test]
    fn the_beginning_of_a_word_finds_it_unless_too_short() {
        assert_eq!(found("compil"), ["g++"]);
        assert_eq!(found("n"), [""; 0]);
    }

    #[test]
    fn no_word_finds_nothing() {
        assert_eq!(found(""), [""; 0]);
        assert_eq!(found("<>&\"' --"), [""; 0]);
    }

    #[test]
    fn a_place_counts_once() {
        let package = Package {
            name: "apt".to_owned(),
            summary: "apt apt".to_owned(),
            description: "apt apt apt apt apt apt apt apt".to_owned(),
            ..Package::default()
        };
        assert_eq!(weights(&package)["apt"], IN_NAME + IN_SUMMARY + IN_DESCRIPTION);
    }
}
