//! Good input that is changed at random, always in the same way, for tests of what parses it.

/// Where the changes come from.
pub(crate) struct Mutations(u64);

impl Mutations {
    pub(crate) fn new() -> Self {
        Self(0x9e37_79b9_7f4a_7c15)
    }

    /// `good` with up to three places replaced, each of at most `longest` bytes, by one of `pieces`, which may come
    /// twice or not at all.
    pub(crate) fn of(&mut self, good: &[u8], pieces: &[&[u8]], longest: usize) -> Vec<u8> {
        let mut bytes = good.to_vec();
        for _ in 0..self.below(4) {
            let at = self.below(bytes.len() + 1);
            let until = at + self.below(bytes.len() + 1 - at).min(self.below(longest) + 1);
            let piece = pieces[self.below(pieces.len())].repeat(self.below(3));
            bytes.splice(at..until, piece);
        }
        bytes
    }

    fn below(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % below
    }
}
