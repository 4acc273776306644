//! Templates that other templates name: minijinja looks for them only when it renders, which is too late to hear of a
//! typing error.

use std::collections::BTreeMap;

use minijinja::machinery::{Token, tokenize};

use crate::TemplateMistake;

/// Every `include`, `extends`, `import` and `from` of a name that there is not. A name that is computed, or one of a
/// list, is looked for when the page is rendered; so is one with `ignore missing`.
pub(crate) fn mistakes(templates: &BTreeMap<String, String>) -> Vec<TemplateMistake> {
    let mut found = Vec::new();
    for (file, source) in templates {
        for (name, line) in named(source) {
            if !templates.contains_key(&name) {
                let rule = format!("there is no template {name:?}");
                found.push(TemplateMistake::at(file, source, line, rule));
            }
        }
    }
    found
}

/// The names, each with its line; up to the first thing that is no token, which minijinja tells of.
fn named(source: &str) -> Vec<(String, usize)> {
    let tokens: Vec<_> = tokenize(source, false, Default::default()).map_while(Result::ok).collect();
    let mut names = Vec::new();
    for (at, window) in tokens.windows(4).enumerate() {
        let [(Token::BlockStart, _), (Token::Ident(word), _), (name, span), (after, _)] = window else {
            continue;
        };
        // Of a sum, it is only a part.
        let is_whole = matches!(
            (*word, after),
            ("include" | "extends", Token::BlockEnd)
                | ("include", Token::Ident("with" | "without"))
                | ("import", Token::Ident("as"))
                | ("from", Token::Ident("import"))
        );
        let ignores = tokens[at..].iter().take_while(|(token, _)| !matches!(token, Token::BlockEnd));
        let ignores = ignores.into_iter().any(|(token, _)| matches!(token, Token::Ident("ignore")));
        let name = match name {
            Token::Str(name) => (*name).to_owned(),
            Token::String(name) => name.to_string(),
            _ => continue,
        };
        if is_whole && !ignores {
            names.push((name, span.start_line as usize));
        }
    }
    names
}
