//! The invariants of the tree's nodes, after any operations.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::*;

fn address(bits: u32) -> IpAddr {
    // Few nibbles that differ, near and far apart; half of them IPv6.
    let spread =
        u128::from(bits & 3) << 124 | u128::from(bits >> 2 & 3) << 112 | u128::from(bits >> 4 & 7) << 96;
    match bits & 128 {
        0 => Ipv4Addr::from_bits((spread >> 96) as u32).into(),
        _ => Ipv6Addr::from_bits(spread | u128::from(bits >> 8 & 7) << 64).into(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn nodes_are_few_and_their_counts_right(steps in proptest::collection::vec(any::<u32>(), 0..400), limit in 0_u32..9) {
        let mut tree = Tree::remembering(limit);
        let mut keys = Vec::new();
        for step in steps {
            match step >> 29 {
                0..4 => keys.push(tree.insert(address(step & 0x7ff).into(), step)),
                4 => drop(tree.next()),
                5 => drop(tree.remove_heaviest()),
                6 if !keys.is_empty() => drop(tree.remove(keys.swap_remove(step as usize % keys.len()))),
                _ => tree.served(address(step & 0x7ff).into()),
            }
            let empty = tree.trie.check();
            assert_eq!(empty, tree.remembered.count);
            assert!(empty <= limit);
        }
        while tree.next().is_some() {}
        assert_eq!(tree.trie.check(), tree.remembered.count);
        assert_eq!(tree.slots.used(), 0);
    }
}

/// An item that was given out does not come back under a name that was used before.
#[test]
fn a_name_is_used_once() {
    let mut tree = Tree::new();
    let first = tree.insert(address(1).into(), 1);
    assert_eq!(tree.remove(first), Some(1));
    let second = tree.insert(address(1).into(), 2);
    assert_eq!(first.slot, second.slot);
    assert_eq!((tree.get(first), tree.get(second)), (None, Some(&2)));
}

/// A client that was served and then evicted gets no priority over one that is waiting.
#[test]
fn to_be_forgotten_is_no_advantage() {
    let mut tree = Tree::remembering(0);
    let (patient, pushy) = (address(0), address(16));
    tree.insert(patient.into(), "patient, served before");
    tree.next();
    tree.insert(patient.into(), "patient");
    let mut served = Vec::new();
    for _ in 0..2 {
        tree.insert(pushy.into(), "pushy");
        served.extend(tree.next());
    }
    assert!(served.contains(&"patient"), "{served:?}");
}
