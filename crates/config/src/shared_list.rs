//! A list in portions: one that differs from another in few of its thousands shares all other portions with it.
//!
//! Runs in: the launcher (root), and the `bulkhead` command. Input: sites, and what goes with them. Must never: take
//! two portions for the same that are not one object.
//!
//! A list of its own for each change would count each site up, and those of the list before down: thousands of pages of
//! memory would be written to, each of which the kernel copies while a copy of the launcher shares it.

use std::fmt;
use std::iter::FlatMap;
use std::ops::{Index, Range};
use std::slice;
use std::sync::Arc;

/// Items in one portion, but for the last one.
const PORTION: usize = 64;

type Portion<T> = Arc<Vec<T>>;

/// Items by their numbers. A clone shares them, until one of the two is changed.
pub struct SharedList<T> {
    /// Each has `PORTION` items, but for the last one, which has at least one.
    portions: Vec<Portion<T>>,
}

impl<T> SharedList<T> {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.portions.split_last().map_or(0, |(last, whole)| whole.len() * PORTION + last.len())
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.portions.is_empty()
    }

    /// The item of this number.
    pub fn get(&self, number: usize) -> Option<&T> {
        self.portions.get(number / PORTION)?.get(number % PORTION)
    }

    /// The first one.
    pub fn first(&self) -> Option<&T> {
        self.get(0)
    }

    /// The last one.
    pub fn last(&self) -> Option<&T> {
        self.portions.last()?.last()
    }

    /// All of them, in their order.
    pub fn iter(&self) -> Iter<'_, T> {
        self.portions.iter().flat_map(items)
    }

    /// Those of these numbers.
    pub fn range(&self, numbers: Range<usize>) -> impl DoubleEndedIterator<Item = &T> {
        numbers.map(|number| &self[number])
    }

    /// The numbers of those that are another item in `other`, or that only one of the two has. `is_same` is not asked
    /// of those that both share.
    pub fn differing<'l>(
        &'l self,
        other: &'l Self,
        is_same: impl Fn(&T, &T) -> bool + 'l,
    ) -> impl Iterator<Item = usize> + 'l {
        let portions = 0..self.portions.len().max(other.portions.len());
        let shared = |at: &usize| {
            let both = self.portions.get(*at).zip(other.portions.get(*at));
            both.is_some_and(|(one, other)| Arc::ptr_eq(one, other))
        };
        let numbers = portions.filter(move |at| !shared(at)).flat_map(|at| at * PORTION..(at + 1) * PORTION);
        numbers.filter(move |&number| match (self.get(number), other.get(number)) {
            (Some(one), Some(other)) => !is_same(one, other),
            (one, other) => one.is_some() || other.is_some(),
        })
    }

    /// How many items are the same at the beginnings of two lists, and at their ends, where these share no item with
    /// the beginnings.
    pub fn common_ends(&self, other: &Self) -> (usize, usize)
    where
        T: PartialEq,
    {
        let (mut first, most) = (0, self.len().min(other.len()));
        while first < most {
            let portion = first / PORTION;
            if first.is_multiple_of(PORTION) && Arc::ptr_eq(&self.portions[portion], &other.portions[portion])
            {
                first += self.portions[portion].len();
            } else if self[first] == other[first] {
                first += 1;
            } else {
                break;
            }
        }
        let rest = self.iter().rev().zip(other.iter().rev()).take(most - first);
        (first, rest.take_while(|(one, other)| one == other).count())
    }
}

impl<T: Clone> SharedList<T> {
    /// The item of this number, to be changed here alone.
    pub fn get_mut(&mut self, number: usize) -> Option<&mut T> {
        Arc::make_mut(self.portions.get_mut(number / PORTION)?).get_mut(number % PORTION)
    }

    /// Adds an item at the end.
    pub fn push(&mut self, item: T) {
        match self.portions.last_mut().filter(|last| last.len() < PORTION) {
            Some(last) => Arc::make_mut(last).push(item),
            None => self.portions.push(Arc::new(vec![item])),
        }
    }

    /// Puts an item at a number, or at the end.
    pub fn put(&mut self, number: usize, item: T) {
        match self.get_mut(number) {
            Some(place) => *place = item,
            None => self.push(item),
        }
    }

    /// Has these items. Those that are the same, where they were, are not replaced.
    pub fn become_of<'i>(&mut self, items: impl Iterator<Item = &'i T>, is_same: impl Fn(&T, &T) -> bool)
    where
        T: 'i,
    {
        let mut len = 0;
        for item in items {
            if self.get(len).is_none_or(|known| !is_same(known, item)) {
                self.put(len, item.clone());
            }
            len += 1;
        }
        self.truncate(len);
    }

    /// Leaves only so many at the beginning.
    pub fn truncate(&mut self, len: usize) {
        if len >= self.len() {
            return;
        }
        self.portions.truncate(len.div_ceil(PORTION));
        let last = self.portions.last_mut().filter(|_| !len.is_multiple_of(PORTION));
        last.into_iter().for_each(|last| Arc::make_mut(last).truncate(len % PORTION));
    }
}

impl<T> Clone for SharedList<T> {
    fn clone(&self) -> Self {
        Self { portions: self.portions.clone() }
    }
}

impl<T> Default for SharedList<T> {
    fn default() -> Self {
        Self { portions: Vec::new() }
    }
}

impl<T: fmt::Debug> fmt::Debug for SharedList<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self).finish()
    }
}

impl<T: PartialEq> PartialEq for SharedList<T> {
    fn eq(&self, other: &Self) -> bool {
        let is_same = |(one, other): (&Portion<T>, &Portion<T>)| Arc::ptr_eq(one, other) || one == other;
        self.len() == other.len() && self.portions.iter().zip(&other.portions).all(is_same)
    }
}

impl<T: Eq> Eq for SharedList<T> {}

impl<T> Index<usize> for SharedList<T> {
    type Output = T;

    fn index(&self, number: usize) -> &T {
        &self.portions[number / PORTION][number % PORTION]
    }
}

impl<T: Clone> FromIterator<T> for SharedList<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        let mut list = Self::default();
        list.extend(items);
        list
    }
}

impl<T: Clone> Extend<T> for SharedList<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, items: I) {
        items.into_iter().for_each(|item| self.push(item));
    }
}

/// All items of a list, in their order.
pub type Iter<'l, T> =
    FlatMap<slice::Iter<'l, Portion<T>>, slice::Iter<'l, T>, fn(&'l Portion<T>) -> slice::Iter<'l, T>>;

fn items<T>(portion: &Portion<T>) -> slice::Iter<'_, T> {
    portion.iter()
}

impl<'l, T> IntoIterator for &'l SharedList<T> {
    type Item = &'l T;
    type IntoIter = Iter<'l, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lengths around the ends of portions.
    const LENGTHS: [usize; 8] =
        [0, 1, PORTION - 1, PORTION, PORTION + 1, 2 * PORTION - 1, 2 * PORTION, 3 * PORTION + 7];

    fn list(len: usize) -> SharedList<usize> {
        (0..len).collect()
    }

    #[test]
    fn it_is_what_a_vector_is() {
        for len in LENGTHS {
            let (mut list, mut vector) = (list(len), (0..len).collect::<Vec<_>>());
            assert_eq!((list.len(), list.is_empty()), (len, len == 0));
            assert_eq!((list.first(), list.last()), (vector.first(), vector.last()));
            assert!(list.iter().eq(&vector) && list.iter().rev().eq(vector.iter().rev()));
            assert!((0..len + 2).all(|number| list.get(number) == vector.get(number)));
            for number in [0, len / 2, len.saturating_sub(1), len, len + 1] {
                list.put(number, 1000);
                match vector.get_mut(number) {
                    Some(place) => *place = 1000,
                    None => vector.push(1000),
                }
                assert!(list.iter().eq(&vector), "{len}, {number}");
            }
            for len in LENGTHS.into_iter().rev() {
                list.truncate(len);
                vector.truncate(len);
                assert!(list.iter().eq(&vector) && list.len() == vector.len(), "{len}");
            }
        }
    }

    #[test]
    fn a_clone_shares_what_is_not_changed() {
        let before = list(5 * PORTION);
        let mut after = before.clone();
        after.put(2 * PORTION + 3, 1000);
        after.push(7);
        assert!(before.iter().copied().eq(0..5 * PORTION), "it is as it was");
        let asked = std::cell::Cell::new(0);
        let is_same = |one: &usize, other: &usize| {
            asked.set(asked.get() + 1);
            one == other
        };
        assert_eq!(before.differing(&after, is_same).collect::<Vec<_>>(), [2 * PORTION + 3, 5 * PORTION]);
        assert_eq!(asked.get(), PORTION);
        assert_ne!(before, after);
        after.put(2 * PORTION + 3, 2 * PORTION + 3);
        after.truncate(5 * PORTION);
        assert_eq!(before, after);
    }

    #[test]
    fn a_list_that_becomes_another_shares_what_is_the_same() {
        for (one, other) in LENGTHS.iter().flat_map(|one| LENGTHS.map(|other| (*one, other))) {
            let (before, mut items) = (list(one), (0..other).collect::<Vec<_>>());
            items.iter_mut().skip(2 * PORTION + 3).take(1).for_each(|item| *item = 1000);
            let mut after = before.clone();
            after.become_of(items.iter(), |one, other| one == other);
            assert!(after.iter().eq(&items) && before.iter().copied().eq(0..one), "{one}, {other}");
            let shared =
                before.portions.iter().zip(&after.portions).filter(|(one, other)| Arc::ptr_eq(one, other));
            assert!(shared.count() >= (one.min(other) / PORTION).min(2), "{one}, {other}");
        }
    }

    #[test]
    fn lists_differ_where_only_one_has_an_item() {
        for (one, other) in LENGTHS.iter().flat_map(|one| LENGTHS.map(|other| (*one, other))) {
            let differing: Vec<usize> =
                list(one).differing(&list(other), |one, other| one == other).collect();
            assert_eq!(differing, (one.min(other)..one.max(other)).collect::<Vec<_>>());
        }
    }

    #[test]
    fn common_ends_are_those_of_vectors() {
        let ends = |one: &[usize], other: &[usize]| {
            let first = one.iter().zip(other).take_while(|(one, other)| one == other).count();
            let rest = one[first..].iter().rev().zip(other[first..].iter().rev());
            (first, rest.take_while(|(one, other)| one == other).count())
        };
        for (len, at) in LENGTHS.iter().flat_map(|len| LENGTHS.map(|at| (*len, at.min(*len)))) {
            let (before, list) = ((0..len).collect::<Vec<_>>(), list(len));
            for change in [0, 1, 2] {
                let mut after = before.clone();
                match change {
                    0 => after.insert(at, 1000),
                    1 if at < len => drop(after.remove(at)),
                    2 if at < len => after[at] = 1000,
                    _ => {}
                }
                let shared: SharedList<usize> = after.iter().copied().collect();
                assert_eq!(list.common_ends(&shared), ends(&before, &after), "{len}, {at}, {change}");
                assert_eq!(shared.common_ends(&list), ends(&after, &before), "{len}, {at}, {change}");
            }
            let mut clone = list.clone();
            clone.put(at, 1000);
            let after: Vec<usize> = clone.iter().copied().collect();
            assert_eq!(list.common_ends(&clone), ends(&before, &after), "{len}, {at}");
        }
    }
}
