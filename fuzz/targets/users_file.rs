//! Files of users and passwords: every line counts by itself, and a hash that is taken is one to another reader.

use users::{UsersFault, Users};

pub fn fuzz(data: &[u8]) {
    let (users, faults) = Users::parse(data);
    let Ok(text) = std::str::from_utf8(data) else {
        assert!(users.is_empty() && faults == [UsersFault::Encoding]);
        return;
    };
    let (mut names, mut bad) = (std::collections::HashSet::new(), Vec::new());
    for (number, line) in text.lines().enumerate() {
        let (alone, mut faults) = Users::parse(line.as_bytes());
        faults.retain(|fault| *fault != UsersFault::Empty);
        if let [fault] = faults[..] {
            assert_eq!((fault, alone.len()), (UsersFault::Line(1), 0));
            bad.push(UsersFault::Line(number + 1));
        }
        if !alone.is_empty() {
            let (name, hash) = line.trim().split_once(':').expect("a user has a colon");
            let read: bcrypt::HashParts = hash.parse().expect("it is a hash");
            assert!((4..=14).contains(&read.get_cost()));
            names.insert(name);
        }
    }
    if names.is_empty() {
        bad.push(UsersFault::Empty);
    }
    assert_eq!((users.len(), faults), (names.len(), bad));
}
