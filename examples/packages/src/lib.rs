//! What the demo's programs share: packages, how they are read, and what a page looks like.
//!
//! Runs in: the generator (as its user), and the services' workers (each under its uid, in its jail). Sees: the
//! package list, written by the operator's package manager. Never: a request; the services see to that.

pub mod control;
pub mod page;

use std::collections::HashMap;
use std::fmt::Display;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// One installed package.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Package {
    /// Its name, unique.
    pub name: String,
    /// Its version.
    pub version: String,
    /// What kind of package it is.
    pub section: String,
    /// Who looks after it.
    pub maintainer: String,
    /// How much room it takes, in KiB.
    pub installed_kib: u64,
    /// The names of what it needs, alternatives included.
    pub depends: Vec<String>,
    /// Where its authors tell more; empty if unknown.
    pub homepage: String,
    /// One line about it.
    pub summary: String,
    /// Paragraphs about it.
    pub description: String,
}

/// All packages, by name in order.
#[derive(Debug)]
pub struct Packages {
    /// The packages themselves.
    pub all: Vec<Package>,
    places: HashMap<String, usize>,
}

impl Packages {
    /// Takes packages; of two with the same name the first is kept.
    pub fn new(mut all: Vec<Package>) -> Self {
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all.dedup_by(|a, b| a.name == b.name);
        let places = all
            .iter()
            .enumerate()
            .map(|(place, package)| (package.name.clone(), place))
            .collect();
        Self { all, places }
    }

    /// Reads the list that the generator has written.
    ///
    /// # Errors
    /// In words for the operator.
    pub fn load(path: &Path) -> Result<Self, String> {
        let place = |error: &dyn Display| format!("{}: {error}", path.display());
        let text = std::fs::read(path).map_err(|error| place(&error))?;
        let all = serde_json::from_slice(&text).map_err(|error| place(&error))?;
        Ok(Self::new(all))
    }

    /// The package called `name`.
    pub fn get(&self, name: &str) -> Option<&Package> {
        self.places.get(name).map(|&place| &self.all[place])
    }
}

/// Packages for tests.
pub fn sample() -> Packages {
    Packages::new(control::parse(include_str!("../sample-status")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sample_is_complete() {
        let packages = sample();
        assert!(packages.all.len() >= 40, "{}", packages.all.len());
        for package in &packages.all {
            assert!(!package.version.is_empty(), "{package:?}");
            assert!(!package.section.is_empty(), "{package:?}");
            assert!(!package.summary.is_empty(), "{package:?}");
            assert!(!package.description.is_empty(), "{package:?}");
            assert!(package.installed_kib > 0, "{package:?}");
        }
        assert_eq!(
            packages.get("g++").map(|package| package.section.as_str()),
            Some("devel")
        );
        assert!(packages.get("no such package").is_none());
    }
}
