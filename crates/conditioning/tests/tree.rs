//! The tree against the paper's (`model`): who is next, who goes, how many there are; that nobody is lost, served
//! twice, or waits for ever.

mod model;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use conditioning::{ItemKey, Tree};
use model::{Node, path};
use proptest::prelude::*;

/// Addresses that often share some of their nibbles, and sometimes all.
fn address() -> impl Strategy<Value = IpAddr> {
    let few = prop_oneof![Just(0_u8), Just(1), Just(9), Just(15)];
    let nibbles = proptest::collection::vec(few, 5);
    let near = (nibbles, 0..4_usize, any::<bool>()).prop_map(|(nibbles, gap, v6)| {
        let sum = nibbles.iter().enumerate().fold(0_u64, |sum, (at, nibble)| {
            // The last two are apart from the others by `gap` nibbles.
            let shift = 4 * (at + if at > 2 { gap } else { 0 });
            sum | u64::from(*nibble) << shift
        });
        match v6 {
            true => IpAddr::from(Ipv6Addr::from_bits(u128::from(sum.reverse_bits()) << 64 | 1)),
            false => IpAddr::from(Ipv4Addr::from_bits(sum as u32)),
        }
    });
    let far = any::<u32>().prop_map(|bits| IpAddr::from(Ipv4Addr::from_bits(bits)));
    prop_oneof![9 => near, 1 => far]
}

#[derive(Clone, Debug)]
enum Step {
    Insert(IpAddr),
    Next,
    Remove(usize),
    Serve(usize),
    RemoveHeaviest,
    Served(IpAddr),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => address().prop_map(Step::Insert),
        4 => Just(Step::Next),
        1 => any::<usize>().prop_map(Step::Remove),
        1 => any::<usize>().prop_map(Step::Serve),
        1 => Just(Step::RemoveHeaviest),
        1 => address().prop_map(Step::Served),
    ];
    proptest::collection::vec(step, 0..300)
}

/// The items in the tree: by key, whose each is.
type Inside = Vec<(ItemKey, IpAddr, u32)>;

fn leave(inside: &mut Inside, item: u32) -> (ItemKey, IpAddr) {
    let at = inside.iter().position(|(_, _, other)| *other == item).expect("it is inside, and only once");
    let (key, address, _) = inside.remove(at);
    (key, address)
}

fn compare(steps: &[Step]) {
    let mut tree = Tree::remembering(u32::MAX);
    let mut model = Node::default();
    let mut inside: Inside = Vec::new();
    let mut gone: Vec<ItemKey> = Vec::new();
    for (item, step) in (0_u32..).zip(steps) {
        let left = match *step {
            Step::Insert(address) => {
                let key = tree.insert(address.into(), item);
                model.insert(&path(address), item);
                inside.push((key, address, item));
                None
            }
            Step::Next => {
                assert_eq!(tree.peek().map(|(_, item)| *item), model.peek());
                let next = tree.next();
                assert_eq!(next, model.next());
                next
            }
            Step::Remove(at) | Step::Serve(at) if !inside.is_empty() => {
                let (key, address, item) = inside[at % inside.len()];
                assert_eq!(tree.origin(key), Some(address.into()));
                let served = matches!(step, Step::Serve(_));
                let left = if served { tree.serve(key) } else { tree.remove(key) };
                assert_eq!(left, Some(item));
                model.take(&path(address), Some(item), served);
                left
            }
            Step::RemoveHeaviest => {
                let weighed = tree.heaviest().map(|(key, item)| (key, *item));
                let left = tree.remove_heaviest();
                assert_eq!(weighed.map(|(_, item)| item), left);
                if let Some(item) = left {
                    let (_, address, _) =
                        inside.iter().find(|(_, _, other)| *other == item).expect("it is inside");
                    assert!(model.is_heaviest(&path(*address), item));
                    model.take(&path(*address), Some(item), false);
                }
                left
            }
            Step::Served(address) => {
                tree.served(address.into());
                model.take(&path(address), None, true);
                None
            }
            Step::Remove(_) | Step::Serve(_) => None,
        };
        gone.extend(left.map(|item| leave(&mut inside, item).0));
        assert_eq!(tree.len(), inside.len());
        if item % 16 != 0 {
            continue;
        }
        let mut ranges = BTreeMap::new();
        model.ranges(&mut Vec::new(), inside.len().div_ceil(10).max(1), &mut ranges);
        assert_eq!(tree.ranges(usize::MAX).into_iter().collect::<BTreeMap<_, _>>(), ranges);
    }
    for key in gone {
        assert!(tree.get(key).is_none() && tree.remove(key).is_none() && tree.serve(key).is_none());
    }
    while let Some(next) = tree.next() {
        assert_eq!(Some(next), model.next());
        leave(&mut inside, next);
    }
    assert!(inside.is_empty() && tree.is_empty() && model.next().is_none());
}

/// With little memory for who was served, the order is another, but everybody has a turn.
fn none_is_lost(steps: &[Step], remembered: u32) {
    let mut tree = Tree::remembering(remembered);
    let mut inside: Inside = Vec::new();
    for (item, step) in (0_u32..).zip(steps) {
        let left = match *step {
            Step::Insert(address) => {
                inside.push((tree.insert(address.into(), item), address, item));
                None
            }
            Step::Next => {
                let next = tree.next();
                assert_eq!(next.is_none(), inside.is_empty());
                next
            }
            // An item that is put back is the next.
            Step::Serve(_) => tree.next().map(|next| {
                let (_, address) = leave(&mut inside, next);
                inside.push((tree.insert_next(address.into(), next), address, next));
                assert_eq!(tree.peek().map(|(_, item)| *item), Some(next));
                tree.next().expect("it was put back")
            }),
            Step::Remove(at) if !inside.is_empty() => tree.remove(inside[at % inside.len()].0),
            Step::RemoveHeaviest => tree.remove_heaviest(),
            Step::Served(address) => {
                tree.served(address.into());
                None
            }
            Step::Remove(_) => None,
        };
        left.map(|item| leave(&mut inside, item));
        assert_eq!(tree.len(), inside.len());
    }
    let rest: HashSet<u32> = std::iter::from_fn(|| tree.next()).collect();
    assert_eq!(rest, inside.iter().map(|(_, _, item)| *item).collect());
    assert_eq!(rest.len(), inside.len());
}

/// Other clients may come as often as they like: an item is served after as many servings as the file `tree.rs` says.
fn waits(others: &[IpAddr], patient: IpAddr, ahead: u32, remembered: u32) {
    const PATIENT: u32 = u32::MAX;
    let mut tree = Tree::remembering(remembered);
    let mut model = Node::default();
    let way = path(patient);
    let mut filled = vec![BTreeSet::new(); way.len()];
    for (item, address) in (0..).zip(others) {
        tree.insert((*address).into(), item);
        model.insert(&path(*address), item);
    }
    for item in (0..ahead).map(|number| PATIENT - 1 - number).chain([PATIENT]) {
        tree.insert(patient.into(), item);
        model.insert(&way, item);
    }
    model.filled(&way, &mut filled);
    let branches: u64 = filled.iter().map(|set| set.len() as u64).product();
    let same = others.iter().filter(|other| path(**other) == way).count() as u64;
    let bound = branches * (same + u64::from(ahead) + 1);
    for _ in 0..bound {
        match tree.next() {
            Some(PATIENT) => return,
            // Everybody else comes again at once.
            Some(item) if item < others.len() as u32 => {
                tree.insert(others[item as usize].into(), item);
            }
            other => assert!(other.is_some()),
        }
    }
    panic!("not served after {bound} others");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn it_is_the_papers_tree(steps in steps()) {
        compare(&steps);
    }

    #[test]
    fn no_item_is_lost_or_given_out_twice(steps in steps(), remembered in 0_u32..6) {
        none_is_lost(&steps, remembered);
    }

    #[test]
    fn no_item_waits_for_ever(
        others in proptest::collection::vec(address(), 0..60),
        patient in address(),
        ahead in 0_u32..4,
        remembered in 0_u32..8,
    ) {
        waits(&others, patient, ahead, remembered);
    }
}

/// The seed's claim: whoever owns a range of addresses, a client of another one that comes rarely is next.
#[test]
fn a_rare_client_goes_before_a_range() {
    let mut tree = Tree::new();
    let bulk = |number: u32| IpAddr::from(Ipv4Addr::from_bits(0x0a00_0000 | number));
    for number in 0..100_000 {
        tree.insert(bulk(number).into(), number);
    }
    for number in 0..1000 {
        tree.next();
        tree.insert(bulk(100_000 + number).into(), number);
    }
    let rare: IpAddr = "198.51.100.7".parse().unwrap();
    tree.insert(rare.into(), u32::MAX);
    assert_eq!(tree.next(), Some(u32::MAX));
    // Within the range, too: one machine of it that is not the attacker's.
    let honest: IpAddr = "10.1.200.200".parse().unwrap();
    tree.insert(honest.into(), u32::MAX);
    let others = std::iter::from_fn(|| tree.next()).take_while(|&item| item != u32::MAX).count();
    assert!(others <= 2, "{others} of 100,000 before it");
}

/// Out of room, it is the range with the most that loses.
#[test]
fn the_heaviest_range_goes() {
    let mut tree = Tree::new();
    for number in 0..1000_u32 {
        tree.insert(IpAddr::from(Ipv4Addr::from_bits(0x0a00_0000 | number)).into(), number);
    }
    for (number, address) in (1000..).zip(["198.51.100.7", "203.0.113.1", "2001:db8::1"]) {
        tree.insert(address.parse::<IpAddr>().unwrap().into(), number);
    }
    for _ in 0..990 {
        assert!(tree.remove_heaviest().unwrap() < 1000);
    }
    assert_eq!((tree.len(), tree.evicted), (13, 990));
}
