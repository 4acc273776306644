//! The order in which the 16 branches of a node were served last: a permutation of 16 nibbles in one word.
//!
//! Runs in: gates, site workers, filters; pure. Sees: nothing. Never: has a branch twice, or misses one.

/// The branches, least recently served first, that one in the lowest nibble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceOrder(u64);

const ONES: u64 = 0x1111_1111_1111_1111;

impl ServiceOrder {
    /// None was served yet.
    pub const NEW: Self = Self(0xfedc_ba98_7654_3210);

    fn position(self, branch: u8) -> u32 {
        // The lowest nibble that is zero; the borrow that makes higher ones look like it does not reach lower ones.
        let differs = self.0 ^ (u64::from(branch) * ONES);
        let equal = differs.wrapping_sub(ONES) & !differs & (ONES << 3);
        equal.trailing_zeros() & !3
    }

    /// The others move up.
    fn without(self, branch: u8) -> u64 {
        let at = self.position(branch);
        let below = (1 << at) - 1;
        self.0 & below | self.0 >> at >> 4 << at
    }

    /// `branch` is served: it becomes the last.
    pub fn serve(&mut self, branch: u8) {
        self.0 = self.without(branch) | u64::from(branch) << 60;
    }

    /// `branch` was served in vain: it becomes the first.
    pub fn unserve(&mut self, branch: u8) {
        self.0 = self.without(branch) << 4 | u64::from(branch);
    }

    /// The least recently served branch of the set `among`.
    pub fn first(self, among: u16) -> Option<u8> {
        let others = among & among.wrapping_sub(1);
        if others != 0 && others.is_power_of_two() {
            // Most nodes have two.
            let (one, other) = (among.trailing_zeros() as u8, others.trailing_zeros() as u8);
            return Some(if self.position(one) < self.position(other) { one } else { other });
        }
        // Branches that are not there drift to the front. Where there are few, looking for each is faster than
        // passing by all the others.
        if among.count_ones() > 4 {
            return self.iter(among).next();
        }
        let mut left = among;
        let mut first = None;
        while left != 0 {
            let branch = left.trailing_zeros() as u8;
            let found = (self.position(branch), branch);
            first = Some(first.map_or(found, |first: (u32, u8)| first.min(found)));
            left &= left - 1;
        }
        first.map(|(_, branch)| branch)
    }

    /// The branches of the set `among`, least recently served first.
    pub fn iter(self, among: u16) -> impl Iterator<Item = u8> {
        let mut rest = self.0;
        let mut left = among;
        std::iter::from_fn(move || {
            while left != 0 {
                let branch = (rest & 15) as u8;
                rest >>= 4;
                if left & 1 << branch != 0 {
                    left &= !(1 << branch);
                    return Some(branch);
                }
            }
            None
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_list() {
        let mut order = ServiceOrder::NEW;
        let mut list: Vec<u8> = (0..16).collect();
        let mut random = 1_u64;
        for _ in 0..10_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let branch = (random >> 40) as u8 & 15;
            let among = (random >> 48) as u16;
            list.retain(|&other| other != branch);
            if random >> 63 == 0 {
                order.serve(branch);
                list.push(branch);
            } else {
                order.unserve(branch);
                list.insert(0, branch);
            }
            let filled: Vec<u8> = list.iter().copied().filter(|branch| among & 1 << branch != 0).collect();
            assert_eq!(order.iter(among).collect::<Vec<u8>>(), filled);
            for among in [among, among & 0x8421, 0] {
                assert_eq!(order.first(among), order.iter(among).next());
            }
            assert_eq!(order.iter(u16::MAX).collect::<Vec<u8>>(), list);
        }
    }
}
