//! Answers of DNS servers, and the two files about names (`names`).

use names::{ADDRESSES_MAX, DnsAnswer, LocalNames, addresses, question};

pub fn fuzz(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut names = LocalNames::default();
    names.resolver(&text);
    names.hosts(&text);
    for kind in [domain::base::Rtype::A, domain::base::Rtype::AAAA] {
        let asked = question("ocsp.example.test", kind).expect("it is a name");
        let mut answer = data.to_vec();
        if let Some(identifier) = answer.get_mut(..2) {
            identifier.copy_from_slice(&asked[..2]);
        }
        if let Some(DnsAnswer::Addresses(found, _)) = addresses(&answer, &asked) {
            assert!((1..=ADDRESSES_MAX).contains(&found.len()));
        }
    }
}
