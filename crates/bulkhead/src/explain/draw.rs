//! The strokes of a picture: SVG elements as text.
//!
//! Runs in: the `bulkhead` command; pure. Sees: names of the operator's configuration. Never: lets a name become
//! markup, or refers to anything outside of the picture.

/// The colour of words.
pub const INK: &str = "#22272e";

/// The colour of words that matter less.
pub const FAINT: &str = "#66707c";

/// Where a text is anchored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// It begins there.
    Start,
    /// Its middle is there.
    Middle,
}

/// How a text looks.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// Its height, in pixels.
    pub size: u32,
    /// Its colour.
    pub colour: &'static str,
    /// Whether it stands out.
    pub weight: &'static str,
    /// What is at the place that is named.
    pub anchor: Anchor,
}

/// Words of usual size.
pub const WORDS: Style = Style { size: 12, colour: INK, weight: "400", anchor: Anchor::Start };

/// Words of less weight.
pub const SMALL: Style = Style { size: 11, colour: FAINT, weight: "400", anchor: Anchor::Start };

/// Text with its base line at `y`.
pub fn text(x: f64, y: f64, style: Style, words: &str) -> String {
    let Style { size, colour, weight, anchor } = style;
    let anchor = match anchor {
        Anchor::Start => "start",
        Anchor::Middle => "middle",
    };
    let words = escape(words);
    format!(
        "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" font-weight=\"{weight}\" fill=\"{colour}\" \
        text-anchor=\"{anchor}\">{words}</text>\n"
    )
}

/// Text that reads upwards from (`x`, `y`).
pub fn upwards(x: f64, y: f64, style: Style, words: &str) -> String {
    let turned = text(0.0, 0.0, style, words);
    format!("<g transform=\"translate({x:.1} {y:.1}) rotate(-90)\">{}</g>\n", turned.trim_end())
}

/// A filled box; `hint` is shown when one points at it.
pub fn rect(x: f64, y: f64, width: f64, height: f64, fill: &str, hint: &str) -> String {
    let place = format!("x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"2\"");
    if hint.is_empty() {
        return format!("<rect {place} fill=\"{fill}\"/>\n");
    }
    format!("<rect {place} fill=\"{fill}\"><title>{}</title></rect>\n", escape(hint))
}

/// An empty box with a line around it.
pub fn frame(x: f64, y: f64, width: f64, height: f64, stroke: &str) -> String {
    format!(
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"4\" fill=\"none\" \
        stroke=\"{stroke}\" stroke-width=\"2\"/>\n"
    )
}

/// Words as XML has them. Characters that XML cannot have are replaced.
pub fn escape(words: &str) -> String {
    let mut out = String::with_capacity(words.len());
    for c in words.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// At most `chars_max` characters; what is cut off is marked.
pub fn cut(words: &str, chars_max: usize) -> String {
    if words.chars().count() <= chars_max {
        return words.to_owned();
    }
    let kept: String = words.chars().take(chars_max.saturating_sub(1)).collect();
    kept + "…"
}

/// Lines of at most `chars_max` characters, broken at spaces.
pub fn wrap(words: &str, chars_max: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in words.split_whitespace() {
        let fits = |line: &String| line.chars().count() + 1 + word.chars().count() <= chars_max;
        match lines.last_mut().filter(|line| fits(line)) {
            Some(line) => {
                line.push(' ');
                line.push_str(word);
            }
            None => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_not_become_markup() {
        assert_eq!(escape("a<b>&\"c\"\u{1}ü"), "a&lt;b&gt;&amp;&quot;c&quot;\u{fffd}ü");
        let drawn = rect(0.0, 0.0, 1.0, 1.0, "#fff", "</title><script>");
        assert!(drawn.contains("<title>&lt;/title&gt;&lt;script&gt;</title>"), "{drawn}");
        assert!(text(0.0, 0.0, WORDS, "<x>").ends_with(">&lt;x&gt;</text>\n"));
    }

    #[test]
    fn words_are_cut_and_wrapped() {
        assert_eq!(cut("abcdef", 6), "abcdef");
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!(wrap("one two  three", 7), ["one two", "three"]);
        assert_eq!(wrap("longer-than-that a", 5), ["longer-than-that", "a"]);
        assert!(wrap("", 5).is_empty());
    }
}
