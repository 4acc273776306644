//! The head of a program: whatever the bytes, the inspector finds how it is to be started, or says why it cannot be.
//!
//! The bytes are those of a program that a partition's owner has made.

use inspector::StartMethod;

pub fn fuzz(data: &[u8]) {
    let found = inspector::inspect(data);
    match &found {
        Ok(StartMethod::Dynamic { loader, .. }) => assert!((1..256).contains(&loader.len())),
        Ok(StartMethod::Script { interpreter }) => assert!((1..256).contains(&interpreter.len())),
        Ok(StartMethod::Static) => {}
        Err(fault) => assert!(!fault.to_string().is_empty()),
    }
    let version = inspector::version_answer(&inspector::version(data));
    for line in [inspector::answer(&found, inspector::loose(data).unwrap_or_default()), version] {
        assert!(line.len() <= 300, "what the launcher reads");
        assert!(line.iter().position(|&byte| byte == b'\n') == Some(line.len() - 1));
        assert!(line[..line.len() - 1].iter().all(|byte| !byte.is_ascii_control()));
    }
}
