//! Templates: what is compiled can be rendered within its limits, and every mistake is in a file that is there. Two
//! templates, divided by a NUL, may name each other as `a` and `b`.

use templates::{PAGE_BYTES_MAX, Sources, TemplateSet};

pub fn fuzz(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut sources = Sources::default();
    for (name, source) in ["a", "b.html"].into_iter().zip(text.splitn(2, '\0')) {
        if sources.add(name.to_owned(), source.to_owned()).is_err() {
            return;
        }
    }
    match TemplateSet::compile(sources.clone()) {
        Err(mistakes) => {
            assert!(!mistakes.is_empty());
            for mistake in mistakes {
                let source = &sources.templates[&mistake.file];
                assert!(mistake.line <= source.split('\n').count());
            }
        }
        Ok(set) => {
            assert_eq!(set.version(), sources.version());
            for name in sources.templates.keys() {
                let page = set.render(name, [("x", "<x>")].into_iter().collect::<std::collections::BTreeMap<_, _>>());
                assert!(page.map_or(true, |page| page.len() <= PAGE_BYTES_MAX));
            }
        }
    }
}
