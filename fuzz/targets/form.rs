//! Forms and queries in a service: what is encoded anew is decoded to the same, and nothing of it gets into markup.

use bulkhead_service::{Params, escape, filter, url_encode};

pub fn fuzz(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let params = Params::parse(&text);
    assert!(params.iter_raw().count() <= text.split('&').count());
    let pairs = params.iter_raw().map(|(name, value)| format!("{}={}", url_encode(name), url_encode(value)));
    let again = pairs.collect::<Vec<_>>().join("&");
    assert!(again.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~%=&".contains(&byte)));
    assert_eq!(Params::parse(&again), params);
    for (name, value) in params.iter_raw() {
        let first = params.raw(name).expect("it is there");
        assert_eq!(params.all_raw(name).next(), Some(first));
        assert!(params.all_raw(name).any(|other| other == value));
        let filtered = params.get(name).expect("it is there");
        assert!(!filtered.contains(|character: char| "<>()#&;\"".contains(character) || character.is_control()));
        assert_eq!(filter(&filtered), filtered);
        // What is taken as text is what the filter would have left.
        if let Ok(typed) = params.get_as::<String>(name) {
            assert!(typed == first && typed == filtered);
        }
        let markup = escape(value).to_string();
        assert!(!markup.contains(['<', '>', '"', '\'']));
        assert_eq!(unescape(&markup), value);
    }
}

fn unescape(markup: &str) -> String {
    let entities = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&amp;", "&")];
    entities.iter().fold(markup.to_owned(), |text, (entity, character)| text.replace(entity, character))
}
