//! HTML in which every value is escaped, unless it is HTML already.
//!
//! Runs in: a service's worker. Sees: text that a client may have made up. Never: lets a character of it take part in
//! the markup around it.

mod check;

use std::borrow::Cow;
use std::fmt::{self, Display, Formatter};

use bytes::Bytes;

use crate::escape;
#[doc(hidden)]
pub use check::check_html;

/// Markup that is safe to be sent: made by [`html!`](crate::html), or said to be so.
///
/// ```
/// use bulkhead_service::{Html, html};
///
/// let rows: Html = ["a&b", "c"].iter().map(|name| html!("<li>{}", name)).collect();
/// assert_eq!(html!("<ul>{}</ul>", rows).as_str(), "<ul><li>a&amp;b<li>c</ul>");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Html(String);

impl Html {
    /// Markup as it is: of the service's own making, never a client's.
    pub fn trusted(markup: impl Into<String>) -> Self {
        Self(markup.into())
    }

    /// The markup.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Display for Html {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<Html> for Bytes {
    fn from(html: Html) -> Self {
        html.0.into()
    }
}

impl From<Html> for String {
    fn from(html: Html) -> Self {
        html.0
    }
}

impl FromIterator<Html> for Html {
    fn from_iter<I: IntoIterator<Item = Html>>(parts: I) -> Self {
        Self(parts.into_iter().map(|part| part.0).collect())
    }
}

/// A value that [`html!`](crate::html) takes: text and numbers, which are escaped, and [`Html`], which is not. `None`
/// writes nothing.
pub trait ToHtml {
    /// Writes it as HTML.
    ///
    /// # Errors
    /// Those of `f`.
    fn fmt_html(&self, f: &mut Formatter<'_>) -> fmt::Result;
}

/// A value as [`html!`](crate::html) writes it.
#[doc(hidden)]
#[derive(Debug)]
pub struct HtmlValue<'a, T: ?Sized>(pub &'a T);

impl<T: ToHtml + ?Sized> Display for HtmlValue<'_, T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.fmt_html(f)
    }
}

impl ToHtml for Html {
    fn fmt_html(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl ToHtml for str {
    fn fmt_html(&self, f: &mut Formatter<'_>) -> fmt::Result {
        escape(self).fmt(f)
    }
}

impl<T: ToHtml + ?Sized> ToHtml for &T {
    fn fmt_html(&self, f: &mut Formatter<'_>) -> fmt::Result {
        (**self).fmt_html(f)
    }
}

impl<T: ToHtml> ToHtml for Option<T> {
    fn fmt_html(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.iter().try_for_each(|value| value.fmt_html(f))
    }
}

/// Formatted text is escaped like any other.
impl ToHtml for fmt::Arguments<'_> {
    fn fmt_html(&self, f: &mut Formatter<'_>) -> fmt::Result {
        escape(&self.to_string()).fmt(f)
    }
}

/// Percent-encoded text has no character that is special to HTML.
impl ToHtml for crate::UrlEncoded<'_> {
    fn fmt_html(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.fmt(f)
    }
}

macro_rules! as_text {
    ($($type:ty),*) => {
        $(impl ToHtml for $type {
            fn fmt_html(&self, f: &mut Formatter<'_>) -> fmt::Result {
                (**self).fmt_html(f)
            }
        })*
    };
}

macro_rules! as_displayed {
    ($($type:ty),*) => {
        $(impl ToHtml for $type {
            fn fmt_html(&self, f: &mut Formatter<'_>) -> fmt::Result {
                self.fmt(f)
            }
        })*
    };
}

as_text!(String, Cow<'_, str>);
as_displayed!(bool, f32, f64, i8, i16, i32, i64, i128, isize, u8, u16, u32, u64, u128, usize);

impl ToHtml for char {
    fn fmt_html(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.encode_utf8(&mut [0; 4]).fmt_html(f)
    }
}

/// Makes [`Html`] of a text with values in the places of `{}`, each escaped.
///
/// ```
/// use bulkhead_service::html;
///
/// let (name, count) = ("<Tom>", 3);
/// let page = html!("<p title=\"{}\">{} visits</p>", name, count);
/// assert_eq!(page.as_str(), "<p title=\"&lt;Tom&gt;\">3 visits</p>");
/// ```
///
/// Values are written behind the text. The compiler refuses what escaping would not make safe: a name between the
/// braces, which would not be escaped,
///
/// ```compile_fail
/// let name = "<Tom>";
/// bulkhead_service::html!("<p>{name}</p>");
/// ```
///
/// a value within a tag, but for the quoted value of an attribute,
///
/// ```compile_fail
/// bulkhead_service::html!("<p title={}>", "a onclick=alert(1)");
/// ```
///
/// one in the attribute `style` or one that begins with `on`, and one within `<script>` or `<style>`.
///
/// ```compile_fail
/// bulkhead_service::html!("<script>let name = '{}';</script>", "Tom");
/// ```
///
/// An address that a client has given may be `javascript:...`: it is to be checked before it stands in `href`, as by
/// [`local_path`](crate::local_path).
#[macro_export]
macro_rules! html {
    ($text:literal $(, $value:expr)* $(,)?) => {{
        const _: () = $crate::check_html($text);
        $crate::Html::trusted(::std::format!($text $(, $crate::HtmlValue(&$value))*))
    }};
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_escaped_and_html_is_not() {
        let none: Option<&str> = None;
        let page = html!(
            "<b class='{}'>{} {{}} {}</b>{}{}{}",
            "x'y",
            Some(String::from("<&>")),
            1.5,
            html!("<br>"),
            none,
            format_args!("{}<", 'a')
        );
        assert_eq!(page.as_str(), "<b class='x&#39;y'>&lt;&amp;&gt; {} 1.5</b><br>a&lt;");
        assert_eq!(html!("{}{}", '<', Cow::from("\"")).as_str(), "&lt;&quot;");
        assert_eq!(html!("{}", crate::url_encode("a/b")).as_str(), "a%2Fb");
    }
}
