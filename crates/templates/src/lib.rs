//! Templates of a site: reading a folder of them, compiling all at once, rendering one within limits.
//!
//! Runs in: publishers, which read and check; services, which render; the command `check`. Sees: the operator's files;
//! in a service, what its publisher sends. Never: opens a file that is not below the folder it was given, or lets a
//! template call anything but what minijinja has built in: no file, no network, no clock.
//!
//! The syntax is Jinja2's, by the crate minijinja. Publisher and services use this one crate, so what one compiles, the
//! other does.

mod folder;
mod mistake;
mod nesting;
mod parts;
mod references;
mod render;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use minijinja::value::Kwargs;
use minijinja::{
    AutoEscape, Environment, Error, Output, State, UndefinedBehavior, Value, escape_formatter, filters,
};
use sha2::{Digest as _, Sha256};
use wire::Text;
use wire::templates::{PublicValue, TEMPLATE_NAME_MAX};

pub use folder::read;
pub use mistake::TemplateMistake;
pub use nesting::TOKENS_NESTED_MAX;
pub use parts::Incoming;
pub use render::RenderError;

/// LIMIT: templates of a site.
pub const TEMPLATES_MAX: usize = 1000;
/// LIMIT: bytes of one template.
pub const TEMPLATE_BYTES_MAX: usize = 256 * 1024;
/// LIMIT: bytes of all templates of a site. Each process of its services has them twice while a new version is staged.
pub const ALL_BYTES_MAX: usize = 4 << 20;
/// LIMIT: folders in folders.
pub const DEPTH_MAX: usize = 8;
/// LIMIT: public values of a site.
pub const VALUES_MAX: usize = 256;
/// LIMIT: bytes of a rendered page.
pub const PAGE_BYTES_MAX: usize = 8 << 20;
/// LIMIT: steps of minijinja in rendering one page, which is some tenths of a second: meanwhile the process does
/// nothing else.
pub const FUEL: u64 = 5_000_000;
/// LIMIT: includes, macros and blocks within each other.
const NESTING_MAX: usize = 64;

/// The name of the public values in templates.
pub const VALUES: &str = "values";

/// The sources and public values of one version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    /// The templates, by their paths below the folder.
    pub templates: BTreeMap<String, String>,
    /// The public values, by their names.
    pub values: BTreeMap<String, PublicValue>,
}

impl Sources {
    /// Tells versions apart: two with the same number have the same content.
    pub fn version(&self) -> u64 {
        let mut hash = Sha256::new();
        let mut part = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        };
        for (name, source) in &self.templates {
            part(name.as_bytes());
            part(source.as_bytes());
        }
        for (name, value) in &self.values {
            part(name.as_bytes());
            part(format!("{value:?}").as_bytes());
        }
        let digest = hash.finalize();
        u64::from_le_bytes(std::array::from_fn(|at| digest[at]))
    }

    /// Adds a template.
    ///
    /// # Errors
    /// It has no place beside those that are there.
    pub fn add(&mut self, name: String, source: String) -> Result<(), String> {
        if source.len() > TEMPLATE_BYTES_MAX {
            return Err(format!("it has more than {TEMPLATE_BYTES_MAX} bytes"));
        }
        if name.is_empty() || name.len() > TEMPLATE_NAME_MAX {
            return Err(format!("its name has more than {TEMPLATE_NAME_MAX} bytes"));
        }
        if self.templates.len() == TEMPLATES_MAX {
            return Err(format!("it is one of more than {TEMPLATES_MAX} templates"));
        }
        let bytes: usize = self.templates.values().map(String::len).sum();
        if bytes + source.len() > ALL_BYTES_MAX {
            return Err(format!("with it, all templates have more than {ALL_BYTES_MAX} bytes"));
        }
        self.templates.insert(name, source);
        Ok(())
    }
}

/// One version, compiled: all templates, and the public values. It never changes.
pub struct TemplateSet {
    environment: Environment<'static>,
    values: BTreeMap<String, Value>,
    version: u64,
}

/// Without any template.
impl Default for TemplateSet {
    fn default() -> Self {
        Self { environment: Environment::new(), values: BTreeMap::new(), version: 0 }
    }
}

impl fmt::Debug for TemplateSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TemplateSet {:016x}", self.version)
    }
}

impl TemplateSet {
    /// Compiles all templates.
    ///
    /// # Errors
    /// Every mistake of every template.
    pub fn compile(sources: Sources) -> Result<Self, Vec<TemplateMistake>> {
        let version = sources.version();
        let Sources { templates, values } = sources;
        let mut environment = Environment::new();
        // A misspelt name is a mistake, not an empty place on a page.
        environment.set_undefined_behavior(UndefinedBehavior::SemiStrict);
        environment.set_fuel(Some(FUEL));
        environment.set_recursion_limit(NESTING_MAX);
        environment.set_debug(false);
        environment.set_formatter(print);
        let mut mistakes = references::mistakes(&templates);
        let values: BTreeMap<String, Value> =
            values.into_iter().map(|(name, value)| (name, value_of(value))).collect();
        environment.add_global(VALUES, Value::from(values.clone()));
        for (name, source) in templates {
            if let Some(mistake) = nesting::mistake(&name, &source) {
                mistakes.push(mistake);
                continue;
            }
            let source: Arc<str> = source.into();
            let added = environment.add_template_owned(name.clone(), source.to_string());
            mistakes.extend(added.err().map(|error| TemplateMistake::new(&name, &source, &error)));
        }
        mistakes.sort_by(|one, other| (&one.file, one.line).cmp(&(&other.file, other.line)));
        mistakes.dedup();
        if mistakes.is_empty() { Ok(Self { environment, values, version }) } else { Err(mistakes) }
    }

    /// Which version it is.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// A public value.
    pub fn value(&self, name: &str) -> Option<&Value> {
        self.values.get(name)
    }
}

/// Prints a value as the template's name says.
///
/// SECURITY: JSON has no `<`, `>`, `&` and `'` of a value in it. A `.json` may be included in a `<script>` of a page,
/// where `</script>` in a text would end the script.
fn print(out: &mut Output<'_>, state: &mut State<'_, '_>, value: &Value) -> Result<(), Error> {
    if matches!(state.auto_escape(), AutoEscape::Json) && !value.is_safe() {
        let json = filters::tojson(value, None, Kwargs::from_iter(std::iter::empty::<(&str, Value)>()))?;
        return out.write_str(json.as_str().unwrap_or_default()).map_err(Error::from);
    }
    escape_formatter(out, state, value)
}

fn value_of(value: PublicValue) -> Value {
    match value {
        PublicValue::Text(text) => Value::from(text.as_str()),
        PublicValue::Int(number) => Value::from(number),
        PublicValue::Bool(value) => Value::from(value),
    }
}

/// A public value that is text.
pub fn text_value(text: &str) -> PublicValue {
    PublicValue::Text(Text::new(text))
}

#[cfg(test)]
mod tests;
