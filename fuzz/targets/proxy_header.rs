//! The header of the PROXY protocol: what a gate reads of a trusted peer.

use request::proxy::{ProxyPreamble, parse, version1, version2};

pub fn fuzz(data: &[u8]) {
    let ProxyPreamble::Header { length, ends } = parse(data) else { return };
    // What follows a header makes no difference, and no beginning of it is a header of its own.
    assert_eq!(parse(&data[..length]), ProxyPreamble::Header { length, ends });
    assert_eq!(parse(&data[..length - 1]), ProxyPreamble::Partial);
    if let Some((peer, local)) = ends {
        for written in [version1(peer, local), version2(peer, local)] {
            let ProxyPreamble::Header { length, ends: Some((again, _)) } = parse(&written) else {
                panic!("{written:?} is not read")
            };
            assert_eq!(length, written.len());
            assert_eq!(again.ip().to_canonical(), peer.ip().to_canonical());
        }
    }
}
