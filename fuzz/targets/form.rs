//! Forms and queries in a service: what is encoded anew is decoded to the same, and nothing of it gets into markup.

use bulkhead_service::{Params, escape, url_encode};

pub fn fuzz(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let params = Params::parse(&text);
    assert!(params.iter().count() <= text.split('&').count());
    let pairs = params.iter().map(|(name, value)| format!("{}={}", url_encode(name), url_encode(value)));
    let again = pairs.collect::<Vec<_>>().join("&");
    assert!(again.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~%=&".contains(&byte)));
    assert_eq!(Params::parse(&again), params);
    for (name, value) in params.iter() {
        let first = params.get(name).expect("it is there");
        assert_eq!(params.all(name).next(), Some(first));
        assert!(params.all(name).any(|other| other == value));
        let filtered = params.filtered(name).expect("it is there");
        assert!(!filtered.contains(|character: char| "<>()#&;\"".contains(character) || character.is_control()));
        let markup = escape(value).to_string();
        assert!(!markup.contains(['<', '>', '"', '\'']));
        assert_eq!(unescape(&markup), value);
    }
}

fn unescape(markup: &str) -> String {
    let entities = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&amp;", "&")];
    entities.iter().fold(markup.to_owned(), |text, (entity, character)| text.replace(entity, character))
}
