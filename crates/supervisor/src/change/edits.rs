//! What becomes of the things of a list: which come, stay as others, or go.
//!
//! Runs in: the launcher, as root. Sees: two checked configurations.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use config::SharedList;
use wire::Verb;

/// What becomes of one thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit<T> {
    /// It comes.
    Add(T),
    /// The second takes the place of the first.
    Change(T, T),
    /// It goes.
    Remove(T),
}

impl<T> Edit<T> {
    /// What happens.
    pub fn verb(&self) -> Verb {
        match self {
            Self::Add(_) => Verb::Added,
            Self::Change(..) => Verb::Changed,
            Self::Remove(_) => Verb::Removed,
        }
    }

    /// The thing as it is to be, or was.
    pub fn either(&self) -> &T {
        match self {
            Self::Add(new) | Self::Change(_, new) => new,
            Self::Remove(old) => old,
        }
    }

    /// The same of what each thing is made into.
    pub fn map<U>(self, make: impl Fn(T) -> U) -> Edit<U> {
        match self {
            Self::Add(new) => Edit::Add(make(new)),
            Self::Change(old, new) => Edit::Change(make(old), make(new)),
            Self::Remove(old) => Edit::Remove(make(old)),
        }
    }
}

/// What makes `new` of `old`: edits, and then for each place the place that the thing has after them, if that differs.
/// `key` says which things are the same one. Of several that share a key, only those that are equal are the same.
pub(super) fn edits<T: Clone + PartialEq, K: Hash + Eq + Clone>(
    old: &[T],
    new: &[T],
    key: impl Fn(&T) -> K,
) -> (Vec<Edit<T>>, Option<Vec<usize>>) {
    let (old_names, new_names) = names(old, new, key);
    let places: HashMap<_, usize> = new_names.iter().zip(0..).collect();
    let known: HashSet<_> = old_names.iter().collect();
    let mut edits = Vec::new();
    // Where each thing is to be, in the order that the edits leave.
    let mut order = Vec::new();
    for (item, name) in old.iter().zip(&old_names) {
        match places.get(name) {
            Some(&at) => {
                order.push(at);
                if new[at] != *item {
                    edits.push(Edit::Change(item.clone(), new[at].clone()));
                }
            }
            None => edits.push(Edit::Remove(item.clone())),
        }
    }
    for (at, item) in new.iter().enumerate().filter(|(at, _)| !known.contains(&new_names[*at])) {
        order.push(at);
        edits.push(Edit::Add(item.clone()));
    }
    let mut from = vec![0; order.len()];
    order.iter().enumerate().for_each(|(place, &at)| from[at] = place);
    let same = from.iter().enumerate().all(|(place, &before)| place == before);
    (edits, (!same).then_some(from))
}

/// The same of lists in each of which every key is once: what both begin and end with is only looked at, so that a
/// change of one of thousands costs little.
pub(super) fn edits_of_unique<T: Clone + PartialEq, K: Hash + Eq + Clone>(
    old: &SharedList<T>,
    new: &SharedList<T>,
    key: impl Fn(&T) -> K,
) -> (Vec<Edit<T>>, Option<Vec<usize>>) {
    let (first, last) = old.common_ends(new);
    let middle = |list: &SharedList<T>| list.range(first..list.len() - last).cloned().collect::<Vec<_>>();
    let (old, new) = (middle(old), middle(new));
    let (edits, order) = edits(&old, &new, key);
    let added = edits.iter().filter(|edit| matches!(edit, Edit::Add(_))).count();
    let changed = new.len();
    let kept = changed - added;
    // What comes is behind all that was there, before it is put in order.
    let place = |at: usize| match order.as_ref().map_or(at, |order| order[at]) {
        place if place < kept => first + place,
        place => first + last + place,
    };
    let from = (0..first).chain((0..changed).map(place)).chain((0..last).map(|at| first + kept + at));
    let from: Vec<usize> = from.collect();
    let same = from.iter().enumerate().all(|(place, &before)| place == before);
    (edits, (!same).then_some(from))
}

/// What tells the things of two lists apart: a key that is unique in both, or else the value and how many equal ones
/// come before.
#[derive(PartialEq, Eq, Hash)]
enum Name<K> {
    Key(K),
    Value { first: usize, before: usize },
}

fn names<T: PartialEq, K: Hash + Eq + Clone>(
    old: &[T],
    new: &[T],
    key: impl Fn(&T) -> K,
) -> (Vec<Name<K>>, Vec<Name<K>>) {
    let mut shared = HashSet::new();
    for list in [old, new] {
        let mut seen = HashSet::new();
        shared.extend(list.iter().map(&key).filter(|key| !seen.insert(key.clone())));
    }
    let all: Vec<&T> = old.iter().chain(new).collect();
    let name = |list: &[T], at: usize| {
        let (item, key) = (&list[at], key(&list[at]));
        if !shared.contains(&key) {
            return Name::Key(key);
        }
        let first = all.iter().position(|other| *other == item).unwrap_or_default();
        Name::Value { first, before: list[..at].iter().filter(|other| *other == item).count() }
    };
    let of = |list: &[T]| (0..list.len()).map(|at| name(list, at)).collect();
    (of(old), of(new))
}

/// Does one edit; nothing, if what it is about is not there.
pub(super) fn apply<T: Clone + PartialEq>(list: &mut Vec<T>, edit: &Edit<T>) {
    // The last of several equal ones: those before it are the ones that stay.
    let place = |list: &[T], wanted: &T| list.iter().rposition(|item| item == wanted);
    match edit {
        Edit::Add(new) => list.push(new.clone()),
        Edit::Change(old, new) => place(list, old).into_iter().for_each(|at| list[at] = new.clone()),
        Edit::Remove(old) => {
            if let Some(at) = place(list, old) {
                list.remove(at);
            }
        }
    }
}

/// Puts a list into another order.
pub(super) fn reorder<T: Clone>(list: &mut Vec<T>, from: &[usize]) {
    *list = from.iter().filter_map(|&at| list.get(at).cloned()).collect();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(old: &[(char, u8)], new: &[(char, u8)]) -> Vec<(char, u8)> {
        let (edits, order) = edits(old, new, |(key, _)| *key);
        let mut list = old.to_vec();
        edits.iter().for_each(|edit| apply(&mut list, edit));
        order.iter().for_each(|from| reorder(&mut list, from));
        list
    }

    #[test]
    fn edits_make_the_new_list_of_the_old_one() {
        let lists: [&[(char, u8)]; 6] = [
            &[],
            &[('a', 1)],
            &[('b', 1), ('a', 2)],
            &[('a', 1), ('b', 1), ('a', 3)],
            &[('c', 1), ('a', 3), ('b', 2)],
            &[('a', 1), ('a', 1), ('d', 1), ('b', 9)],
        ];
        for old in lists {
            for new in lists {
                assert_eq!(made(old, new), new, "{old:?}");
            }
        }
    }

    #[test]
    fn lists_without_two_of_a_key_are_edited_alike() {
        let mut lists: Vec<Vec<(char, u8)>> = vec![vec![]];
        for number in 0..200u32 {
            // Some of six things, in some order, some of them with another value.
            let mut list: Vec<(char, u8)> = Vec::new();
            for (at, name) in ('a'..='f').enumerate() {
                let (there, value) = (number >> at & 1 == 1, (number.wrapping_mul(7) >> at & 1) as u8);
                if there {
                    list.insert((number as usize * (at + 3)) % (list.len() + 1), (name, value));
                }
            }
            lists.push(list);
        }
        for old in &lists {
            for new in &lists {
                let shared = |list: &Vec<_>| list.iter().copied().collect::<SharedList<_>>();
                let (edits, order) = edits_of_unique(&shared(old), &shared(new), |(key, _)| *key);
                let mut list = old.clone();
                edits.iter().for_each(|edit| apply(&mut list, edit));
                order.iter().for_each(|from| reorder(&mut list, from));
                assert_eq!(list, *new, "{old:?}");
                assert_eq!((edits, order), super::edits(old, new, |(key, _)| *key), "{old:?} to {new:?}");
            }
        }
    }

    #[test]
    fn only_what_differs_is_edited() {
        let old = [('a', 1), ('b', 1), ('c', 1)];
        let (found, order) = edits(&old, &[('a', 1), ('b', 2), ('d', 1)], |(key, _)| *key);
        let wanted = [Edit::Change(('b', 1), ('b', 2)), Edit::Remove(('c', 1)), Edit::Add(('d', 1))];
        assert_eq!((found, order), (wanted.to_vec(), None));
        assert_eq!(edits(&old, &old, |(key, _)| *key), (vec![], None));
    }
}
