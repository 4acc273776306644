//! Answers of servers of names, and the two files about names (`stapler::names`).

use stapler::names::{Names, addresses, question};

pub fn fuzz(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut names = Names::default();
    names.resolver(&text);
    names.hosts(&text);
    for kind in [domain::base::Rtype::A, domain::base::Rtype::AAAA] {
        let asked = question("ocsp.example.test", kind).expect("it is a name");
        if let Some(found) = addresses(data, &asked) {
            assert!(found.len() <= 8);
        }
    }
}
