//! The packages of a machine, as `make-site` writes them down and the services read them.
//!
//! Runs in: `make-site`, and the services `search` and `package`, which read the file in their `init` through
//! the one folder that their jail leaves them. Sees: no untrusted bytes; the operator made the file. Never:
//! writes the file in a service.

use std::collections::HashMap;
use std::path::Path;

use bulkhead_service::Error;
use serde::{Deserialize, Serialize};

/// One installed package.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Package {
    /// Its name, which is unique.
    pub name: String,
    /// Its version, as Debian writes it.
    pub version: String,
    /// What kind of software it is; letters, digits and `-` only.
    pub section: String,
    /// Who looks after it, with an address.
    pub maintainer: String,
    /// What it takes up on the disk, in KiB.
    pub installed_size_kib: u64,
    /// The names of the packages it needs.
    pub depends: Vec<String>,
    /// Its home page, or nothing.
    pub homepage: String,
    /// What it is, in one line.
    pub summary: String,
    /// What it is, in several lines.
    pub description: String,
}

/// Packages that can be found by name.
#[derive(Debug, Default)]
pub struct Catalogue {
    packages: Vec<Package>,
    by_name: HashMap<String, usize>,
    needed_by: HashMap<String, Vec<usize>>,
}

impl Catalogue {
    /// A catalogue of `packages`, which keep their order.
    pub fn new(packages: Vec<Package>) -> Self {
        let mut catalogue = Self::default();
        for (place, package) in packages.iter().enumerate() {
            catalogue.by_name.insert(package.name.clone(), place);
            for needed in &package.depends {
                catalogue.needed_by.entry(needed.clone()).or_default().push(place);
            }
        }
        catalogue.packages = packages;
        catalogue
    }

    /// Reads the file that `make-site` wrote.
    ///
    /// # Errors
    /// When it cannot be read or is something else, with its name.
    pub fn read(file: &Path) -> Result<Self, Error> {
        let name = file.display();
        let text = std::fs::read_to_string(file)
            .map_err(|error| format!("cannot read the index {name}: {error}; `make-site` makes it"))?;
        let packages = serde_json::from_str(&text).map_err(|error| format!("{name} is no index: {error}"))?;
        Ok(Self::new(packages))
    }

    /// All packages.
    pub fn packages(&self) -> &[Package] {
        &self.packages
    }

    /// The package called `name`.
    pub fn find(&self, name: &str) -> Option<&Package> {
        self.packages.get(*self.by_name.get(name)?)
    }

    /// The packages that depend on the one called `name`.
    pub fn needed_by(&self, name: &str) -> impl Iterator<Item = &Package> {
        let places = self.needed_by.get(name).map_or(&[][..], Vec::as_slice);
        places.iter().filter_map(|&place| self.packages.get(place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, depends: &[&str]) -> Package {
        Package {
            name: name.to_owned(),
            depends: depends.iter().map(|&name| name.to_owned()).collect(),
            ..Package::default()
        }
    }

    #[test]
    fn dependencies_are_known_both_ways() {
        let catalogue = Catalogue::new(vec![package("a", &["b", "virtual"]), package("b", &[])]);
        assert_eq!(catalogue.find("a").unwrap().depends, ["b", "virtual"]);
        assert_eq!(catalogue.find("virtual"), None);
        let needed: Vec<_> = catalogue.needed_by("b").map(|package| package.name.as_str()).collect();
        assert_eq!(needed, ["a"]);
        assert_eq!(catalogue.needed_by("a").count(), 0);
    }
}
