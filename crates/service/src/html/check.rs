//! Checks the text of `html!`, in the compiler.
//!
//! Runs in: the compiler. Sees: the text of a service's author. Never: lets a value stand where escaping does not make
//! it harmless, as far as a text shows that by itself.

/// Where in a text something stands.
#[derive(Clone, Copy)]
enum HtmlState {
    Text,
    /// In a tag, outside of values in quotes.
    Tag,
    /// In a value between quotes of this kind.
    Quoted(u8),
    /// In the content of `script` or `style`, up to the next tag's end.
    Raw,
}

/// Fails to compile where a value would stand in the wrong place.
pub const fn check_html(text: &str) {
    let bytes = text.as_bytes();
    let (mut at, mut state) = (0, HtmlState::Text);
    // Where the name of the tag, and of the attribute, begins.
    let (mut tag, mut attribute) = (0, 0);
    while at < bytes.len() {
        if bytes[at] == b'{' {
            if is(bytes, at + 1, b'{') {
                at += 2;
                continue;
            }
            assert!(
                is(bytes, at + 1, b'}'),
                "html!: only `{{}}` is escaped; write the value behind the text"
            );
            check_place(state, bytes, attribute);
        }
        state = match (state, bytes[at]) {
            (HtmlState::Text, b'<') if is_name(bytes, at + 1) => {
                tag = at + 1;
                HtmlState::Tag
            }
            (HtmlState::Raw, b'<') if is(bytes, at + 1, b'/') => {
                tag = at + 1;
                HtmlState::Tag
            }
            (HtmlState::Tag, b'>') if is_raw(bytes, tag) => HtmlState::Raw,
            (HtmlState::Tag, b'>') => HtmlState::Text,
            (HtmlState::Tag, quote @ (b'"' | b'\'')) => HtmlState::Quoted(quote),
            (HtmlState::Quoted(quote), byte) if byte == quote => HtmlState::Tag,
            (state, _) => state,
        };
        if matches!(state, HtmlState::Tag) && bytes[at].is_ascii_whitespace() {
            attribute = at + 1;
        }
        at += 1;
    }
}

const fn check_place(state: HtmlState, bytes: &[u8], attribute: usize) {
    match state {
        HtmlState::Text => {}
        HtmlState::Tag => {
            panic!("html!: within a tag, a value may stand between quotes alone: title=\"{{}}\"")
        }
        HtmlState::Raw => panic!("html!: a value within <script> or <style> is not made safe by escaping"),
        HtmlState::Quoted(_) => assert!(
            !begins(bytes, attribute, b"on") && !begins(bytes, attribute, b"style"),
            "html!: a value that is script or style is not made safe by escaping"
        ),
    }
}

const fn is(bytes: &[u8], at: usize, byte: u8) -> bool {
    at < bytes.len() && bytes[at] == byte
}

/// Whether the name of a tag begins there, or `/`, or a value that might be one.
const fn is_name(bytes: &[u8], at: usize) -> bool {
    at < bytes.len() && (bytes[at].is_ascii_alphabetic() || matches!(bytes[at], b'/' | b'{'))
}

const fn is_raw(bytes: &[u8], tag: usize) -> bool {
    begins(bytes, tag, b"script") || begins(bytes, tag, b"style")
}

/// Whether `word` stands there, in whatever case.
const fn begins(bytes: &[u8], at: usize, word: &[u8]) -> bool {
    let mut index = 0;
    while index < word.len() {
        if at + index >= bytes.len() || !bytes[at + index].eq_ignore_ascii_case(&word[index]) {
            return false;
        }
        index += 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stand_where_escaping_is_enough() {
        for text in [
            "",
            "{}",
            "<p>1 + {} = {}</p>",
            "<a href=\"/x?{}\" title='{}'>{}</a>",
            "<!-- don't --><p>{}",
            "a < {} > b",
            "<script>let a = {{}};</script>{}",
            "<p onclick=\"f()\" title=\"{}\">",
            "<SCRIPT src=\"/{}\"></SCRIPT><p>{}",
        ] {
            check_html(text);
        }
        for text in [
            "{name}",
            "{0}",
            "{:?}",
            "{",
            "<p {}>",
            "<{}>",
            "<p title={}>",
            "<p onclick=\"{}\">",
            "<p STYLE='{}'>",
            "<p\nOnLoad=\"a{}\">",
            "<script>{}</script>",
            "<style>a<b {}",
        ] {
            assert!(std::panic::catch_unwind(|| check_html(text)).is_err(), "{text}");
        }
    }
}
