//! How deep the expressions of a template are, before anything reads it that calls itself for each level.
//!
//! Sees: the operator's files; in a service, what its publisher sends. Never: calls itself.
//!
//! SECURITY: minijinja bounds brackets and statements within each other. An expression that it reads in a loop
//! (`a + a + a`, `a.b.b`, `a|f|f`) or by a call of the same function (`- - a`, `not not a`, `a ** a`, `elif`) becomes a
//! tree as deep as it is long, and compiling it or letting go of it would run over the end of the stack.

use minijinja::machinery::{Token, tokenize};

use crate::TemplateMistake;

/// LIMIT: tokens of an expression that may stand in each other: between two commas of the same brackets, and in all
/// brackets around them. An `elif` counts as two. The deepest tree of so many takes less than half of a thread's stack
/// of 2 MiB.
pub const TOKENS_NESTED_MAX: usize = 400;

/// The mistake of a source that is nested too deep.
pub(crate) fn mistake(file: &str, source: &str) -> Option<TemplateMistake> {
    let line = too_deep(source)?;
    let rule = format!(
        "an expression has more than {TOKENS_NESTED_MAX} words and signs in one piece, or an `if` more than {} `elif`; \
         take it apart with `set`",
        TOKENS_NESTED_MAX / 2
    );
    Some(TemplateMistake::at(file, source, line, rule))
}

/// The first line with too much; up to the first thing that is no token, behind which nothing is read.
fn too_deep(source: &str) -> Option<usize> {
    // Tokens since the last comma, of each bracket that is open; and of each `if`, how many `elif` it has.
    let (mut brackets, mut branches) = (vec![0], Vec::new());
    let mut is_first = false;
    for (token, span) in tokenize(source, false, Default::default()).map_while(Result::ok) {
        let was_first = std::mem::take(&mut is_first);
        let innermost = brackets.len() - 1;
        match token {
            Token::TemplateData(_) => continue,
            Token::VariableStart | Token::BlockStart | Token::VariableEnd | Token::BlockEnd => {
                is_first = matches!(token, Token::BlockStart);
                brackets = vec![0];
                continue;
            }
            Token::Comma => brackets[innermost] = 0,
            Token::BracketOpen | Token::ParenOpen | Token::BraceOpen => {
                brackets[innermost] += 1;
                brackets.push(0);
            }
            Token::BracketClose | Token::ParenClose | Token::BraceClose if innermost > 0 => {
                brackets.pop();
            }
            Token::Ident("if") if was_first => branches.push(0),
            Token::Ident("elif") if was_first => {
                branches.last_mut().into_iter().for_each(|count| *count += 2)
            }
            Token::Ident("endif") if was_first => drop(branches.pop()),
            _ => brackets[innermost] += 1,
        }
        let deep = |counts: &[usize]| counts.iter().sum::<usize>() > TOKENS_NESTED_MAX;
        if deep(&brackets) || deep(&branches) {
            return Some(span.start_line as usize);
        }
    }
    None
}
