//! Parameters of a query or of a submitted form.
//!
//! Runs in: a service's worker. Sees: text that a client made up. Never: fails; what is no parameter is text.
//!
//! Source: Krohn, "Building Secure High-Performance Web Services with OKWS", USENIX ATC 2004, 5 (FilterCGI).

/// The characters that [`Params::filtered`] leaves out, as OKWS does.
const METACHARACTERS: [char; 8] = ['<', '>', '(', ')', '#', '&', ';', '"'];

/// Decoded parameters, in the order of their arrival.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Params(Vec<(String, String)>);

impl Params {
    /// Decodes `application/x-www-form-urlencoded` text.
    ///
    /// ```
    /// let params = bulkhead_service::Params::parse("q=web+server&page=2&q=%C3%A4");
    /// assert_eq!(params.get("q"), Some("web server"));
    /// assert_eq!(params.all("q").collect::<Vec<_>>(), ["web server", "ä"]);
    /// ```
    pub fn parse(text: &str) -> Self {
        Self(form_urlencoded::parse(text.as_bytes()).into_owned().collect())
    }

    /// The first value of `name`, as the client meant it. It must be escaped wherever it is put out.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(other, _)| *other == name).map(|(_, value)| value)
    }

    /// The first value of `name` without the characters that are special to HTML and to shells.
    ///
    /// It is for text that needs none of them. Escaping is what makes output safe, and it is still needed.
    pub fn filtered(&self, name: &str) -> Option<String> {
        self.get(name).map(|value| {
            value
                .chars()
                .filter(|character| !METACHARACTERS.contains(character) && !character.is_control())
                .collect()
        })
    }

    /// Every value of `name`.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.iter().filter(move |(other, _)| *other == name).map(|(_, value)| value)
    }

    /// Every name and value.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_is_no_form_stays_text() {
        for (text, decoded) in
            [("100%", "100%"), ("%4", "%4"), ("%zz%41", "%zzA"), ("%ff", "\u{fffd}"), ("g++", "g  ")]
        {
            assert_eq!(Params::parse(&format!("q={text}")).get("q"), Some(decoded), "{text}");
        }
        let params = Params::parse("&&=x&flag&a=b=c");
        let pairs: Vec<_> = params.iter().collect();
        assert_eq!(pairs, [("", "x"), ("flag", ""), ("a", "b=c")]);
    }

    #[test]
    fn a_filtered_value_has_no_metacharacters() {
        let params = Params::parse("q=%3Cscript%3Ealert(1)%3B%0a%26%23");
        assert_eq!(params.filtered("q").as_deref(), Some("scriptalert1"));
        assert_eq!(params.filtered("other"), None);
    }
}
