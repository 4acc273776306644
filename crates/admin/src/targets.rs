//! The names that orders may have, with the numbers that the launcher gave them.
//!
//! Runs in: the admin role. Sees: the launcher's messages (trusted), names from clients. Never: keeps a name that the
//! launcher has taken back.

use std::collections::{BTreeMap, HashMap};

use crate::reply::OrderReply;

/// The end of the name of a site's publisher, as the launcher gives it.
pub(crate) const TEMPLATES_OF: &str = wire::Role::Publisher.facts().suffix;

/// Names and numbers.
#[derive(Debug, Default)]
pub(crate) struct Targets {
    names: BTreeMap<u32, String>,
    numbers: HashMap<String, u32>,
}

impl Targets {
    /// Takes a name. One that is known has this number from here on.
    pub(crate) fn add(&mut self, number: u32, name: &str) {
        if let Some(before) = self.numbers.insert(name.to_owned(), number) {
            self.names.remove(&before);
        }
        self.names.insert(number, name.to_owned());
    }

    /// Forgets the name that has a number.
    pub(crate) fn forget(&mut self, number: u32) {
        if let Some(name) = self.names.remove(&number) {
            self.numbers.remove(&name);
        }
    }

    /// The number of a name, or the answer to who asked for it.
    pub(crate) fn number(&self, name: &str) -> Result<u32, OrderReply> {
        if let Some(number) = self.numbers.get(name) {
            return Ok(*number);
        }
        let mut names: Vec<&str> = self.names().collect();
        let meant = suggest::did_you_mean(name, &names);
        // Those of the workers of a name go without saying.
        names.retain(|known| !known.contains('#'));
        Err(OrderReply::wrong(format!("there is no {name:?}; {meant}the names are: {}", names.join(", "))))
    }

    /// All names, in the order of their numbers.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.values().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_back_is_known_no_more() {
        let mut targets = Targets::default();
        targets.add(0, "gate");
        for number in 1..=1000 {
            targets.add(number, "blog");
            targets.forget(number - 1);
        }
        assert_eq!(targets.names().collect::<Vec<_>>(), ["blog"]);
        assert_eq!((targets.number("blog"), targets.names.len(), targets.numbers.len()), (Ok(1000), 1, 1));
        targets.forget(1000);
        assert!(targets.number("blog").is_err() && targets.number("gate").is_err());
    }

    #[test]
    fn a_name_with_a_new_number_has_that() {
        let mut targets = Targets::default();
        targets.add(3, "blog");
        targets.add(9, "blog");
        targets.forget(3);
        assert_eq!(targets.number("blog"), Ok(9));
    }
}
