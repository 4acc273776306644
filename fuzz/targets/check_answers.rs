//! What `signer check` prints: whatever the bytes, there are as many answers as questions or none, and nothing in them
//! that a terminal would obey.
//!
//! A made-up file may have taken over the process that prints.

// The module is private to its crate; the parser needs nothing of it.
#[allow(dead_code)]
#[path = "../../crates/supervisor/src/examine/answers.rs"]
mod answers;

use answers::Answer;

pub fn fuzz(data: &[u8]) {
    let questions = data.iter().filter(|byte| **byte == b'\n').count();
    let Some(found) = answers::parse(data, questions) else { return };
    assert_eq!(found.len(), questions);
    for answer in found {
        match answer {
            Answer::Good => {}
            Answer::Odd(text) | Answer::Bad(text) => plain(&text),
            Answer::Certificate { names, .. } => names.iter().for_each(|name| plain(name)),
        }
    }
}

fn plain(text: &str) {
    assert!(text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()), "{text:?}");
    assert!(text.len() <= answers::ANSWER_BYTES_MAX);
}
