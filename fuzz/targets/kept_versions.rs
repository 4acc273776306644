//! What a publisher has kept for its successor: a version that is whole, and that has its number, or why not. What is
//! read is read again from its parts.

use publisher::kept::read;

/// The magic, how many versions were written, the number and the length of one.
const HEAD: usize = 32;

pub fn fuzz(data: &[u8]) {
    check(data);
    // Behind a head that is right, so that bytes reach the parts; the first eight are the number of the version.
    let Some((number, parts)) = data.split_first_chunk::<8>() else { return };
    let mut half = [&b"versions"[..], &1_u64.to_le_bytes(), number].concat();
    half.extend((parts.len() as u64).to_le_bytes());
    assert_eq!(half.len(), HEAD);
    half.extend(parts);
    check(&half);
}

fn check(half: &[u8]) {
    if let Ok((_, sources)) = read(half) {
        let number = sources.version();
        assert_eq!(half[16..24], number.to_le_bytes());
        let mut again = templates::Incoming::default();
        let parts = sources.parts(number);
        parts.filter(|part| !is_end(part)).for_each(|part| again.take(part));
        assert_eq!(again.whole(number), Ok(sources));
    }
}

fn is_end(part: &wire::templates::PublisherToService) -> bool {
    matches!(part, wire::templates::PublisherToService::Stage { .. })
}
