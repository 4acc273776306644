use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;

use minijinja::context;

use super::*;

fn sources(files: &[(&str, &str)]) -> Sources {
    let mut sources = Sources::default();
    for (name, source) in files {
        sources.add((*name).into(), (*source).into()).unwrap();
    }
    sources.values.insert("company".into(), text_value("<ACME>"));
    sources.values.insert("year".into(), PublicValue::Int(2026));
    sources
}

fn compile(files: &[(&str, &str)]) -> TemplateSet {
    TemplateSet::compile(sources(files)).unwrap()
}

fn mistakes(files: &[(&str, &str)]) -> Vec<String> {
    TemplateSet::compile(sources(files)).unwrap_err().iter().map(ToString::to_string).collect()
}

#[test]
fn templates_include_and_extend_each_other_and_escape_what_is_html() {
    let set = compile(&[
        ("base.html", "<title>{% block title %}{% endblock %}</title>{% include 'part/foot.html' %}"),
        ("part/foot.html", "{{ values.company }} {{ values.year }}"),
        ("page.html", "{% extends 'base.html' %}{% block title %}{{ name }}{% endblock %}"),
        ("mail.txt", "{{ name }}"),
    ]);
    let page = set.render("page.html", context! { name => "a<b" }).unwrap();
    assert_eq!(page, "<title>a&lt;b</title>&lt;ACME&gt; 2026");
    assert_eq!(set.render("mail.txt", context! { name => "a<b" }).unwrap(), "a<b");
    assert_eq!(set.value("year"), Some(&Value::from(2026)));
    assert!(set.value("nothing").is_none());
}

#[test]
fn every_mistake_is_told_with_its_place() {
    let found = mistakes(&[
        ("a.html", "good"),
        ("b.html", "one\n  {% if x %}\n"),
        ("c.html", "{{ x +  }}"),
        ("d.html", "\n{% include 'e.html' %}{% include 'no.html' ignore missing %}{% include name %}"),
        ("f.html", "{% extends 'g.html' %}{% from 'a.html' import x %}{% import \"h\\x2ehtml\" as h %}"),
    ]);
    let starts =
        ["b.html:", "c.html:1: syntax error", "d.html:2: there is no template \"e.html\"", "f.html:1: "];
    for start in starts {
        assert!(found.iter().any(|one| one.starts_with(start)), "{start}: {found:#?}");
    }
    assert_eq!(found.len(), 5, "{found:#?}");
}

#[test]
fn a_page_that_is_too_much_is_given_up() {
    let set = compile(&[
        ("long.html", "{% for i in range(9000) %}{{ text }}{% endfor %}"),
        ("slow.html", "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}"),
        ("self.html", "{% include 'self.html' %}"),
        ("wrong.html", "\n{{ nothing }}"),
        ("outer.html", "{% include 'wrong.html' %}"),
    ]);
    let fails = |name| set.render(name, context! { text => "x".repeat(1000) }).unwrap_err().to_string();
    assert_eq!(fails("long.html"), "the page has become longer than 8 MiB");
    assert_eq!(fails("slow.html"), "the page has taken more than 5 million steps");
    assert!(fails("self.html").contains("recursion limit"), "{}", fails("self.html"));
    assert!(fails("outer.html").starts_with("template wrong.html:2: "), "{}", fails("outer.html"));
    assert_eq!(fails("no.html"), "there is no template \"no.html\"");
}

#[test]
fn versions_differ_by_content_alone() {
    let one = sources(&[("a", "b")]);
    assert_eq!(one.version(), sources(&[("a", "b")]).version());
    assert_ne!(one.version(), sources(&[("a", "c")]).version());
    assert_ne!(one.version(), sources(&[("ab", "")]).version());
    let mut other = one.clone();
    other.values.insert("year".into(), PublicValue::Int(2027));
    assert_ne!(one.version(), other.version());
}

#[test]
fn nothing_is_taken_beyond_the_limits() {
    let mut sources = Sources::default();
    assert!(sources.add("a".repeat(256), String::new()).is_err());
    assert!(sources.add("a".into(), "a".repeat(TEMPLATE_BYTES_MAX + 1)).is_err());
    for number in 0..ALL_BYTES_MAX / TEMPLATE_BYTES_MAX {
        sources.add(number.to_string(), "a".repeat(TEMPLATE_BYTES_MAX)).unwrap();
    }
    assert!(sources.add("a".into(), "a".into()).unwrap_err().contains("all templates"));
    let mut sources = Sources::default();
    for number in 0..TEMPLATES_MAX {
        sources.add(number.to_string(), String::new()).unwrap();
    }
    assert!(sources.add("a".into(), String::new()).unwrap_err().contains("1000 templates"));
}

#[test]
fn a_folder_is_read_to_its_depth_and_never_left() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("templates");
    fs::create_dir_all(root.join("part/deep")).unwrap();
    for (name, text) in
        [("a.html", "A"), ("part/b.html", "B"), ("part/deep/c.txt", "C"), (".git", "x"), ("a.html~", "x")]
    {
        fs::write(root.join(name), text).unwrap();
    }
    symlink("a.html", root.join("same.html")).unwrap();
    let open = || OwnedFd::from(fs::File::open(&root).unwrap());
    let names: Vec<String> = read(&open()).unwrap().templates.into_keys().collect();
    assert_eq!(names, ["a.html", "part/b.html", "part/deep/c.txt", "same.html"]);
    let told = || read(&open()).unwrap_err().iter().map(ToString::to_string).collect::<Vec<_>>();
    fs::write(folder.path().join("secret"), "s").unwrap();
    symlink("../secret", root.join("out.html")).unwrap();
    symlink("/etc/passwd", root.join("part/out.html")).unwrap();
    assert_eq!(told().len(), 2, "{:?}", told());
    assert!(told().iter().all(|one| one.contains("leads out of the folder")), "{:?}", told());
    fs::remove_file(root.join("out.html")).unwrap();
    fs::remove_file(root.join("part/out.html")).unwrap();
    symlink("..", root.join("part/deep/up")).unwrap();
    assert!(told().iter().any(|one| one.contains("deeper than 8 folders")), "{:?}", told());
    fs::remove_file(root.join("part/deep/up")).unwrap();
    fs::write(root.join("logo.png"), [0x89, b'P', 0xff]).unwrap();
    assert!(told()[0].contains("not UTF-8"), "{:?}", told());
}

/// All ways in which the grammar lets one thing stand in another of its kind: what stands before each, what is in the
/// middle, and what comes behind each.
const NESTED: [(&str, &str, &str); 44] = [
    ("-", "a", ""),
    ("- ", "a", ""),
    ("not ", "a", ""),
    ("", "a", "+a"),
    ("", "a", "-a"),
    ("", "a", "*a"),
    ("", "a", "/a"),
    ("", "a", "//a"),
    ("", "a", "%a"),
    ("", "a", "**a"),
    ("a**", "a", ""),
    ("", "a", "~a"),
    ("", "a", " and a"),
    ("", "a", " or a"),
    ("", "a", "<a"),
    ("", "a", "==a"),
    ("", "a", " in a"),
    ("", "a", " not in a"),
    ("", "a", ".b"),
    ("", "a", "[0]"),
    ("", "a", "['b']"),
    ("", "a", "[1:2]"),
    ("", "a", "()"),
    ("", "a", "(1,2)"),
    ("", "a", ".b()"),
    ("", "a", "|e"),
    ("", "a", "|default(1, 2)"),
    ("", "a", " is defined"),
    ("", "a", " is not defined"),
    ("", "a", " is eq(1)"),
    ("", "a", " if a else a"),
    ("a if a else ", "a", ""),
    ("a if ", "a", " else a"),
    ("(", "a", ")"),
    ("[", "a", "]"),
    ("{1:", "a", "}"),
    ("a(", "a", ")"),
    ("a[", "a", "]"),
    ("(1,", "a", ",1)"),
    ("[1,[2],", "a", "]"),
    ("a(b=", "a", ")"),
    ("-(", "a", ")"),
    ("a.b[-", "a", "|e]"),
    ("a|e(not ", "a", ")"),
];
/// The same of statements.
const BLOCKS: [(&str, &str); 12] = [
    ("{% if a %}", "{% endif %}"),
    ("{% if a %}{% elif a %}", "{% endif %}"),
    ("{% if a %}{% else %}", "{% endif %}"),
    ("{% for a in a %}", "{% endfor %}"),
    ("{% for a in a %}{% else %}", "{% endfor %}"),
    ("{% with a = a %}", "{% endwith %}"),
    ("{% set a %}", "{% endset %}"),
    ("{% filter e %}", "{% endfilter %}"),
    ("{% autoescape true %}", "{% endautoescape %}"),
    ("{% macro a() %}", "{% endmacro %}"),
    ("{% call a() %}", "{% endcall %}"),
    ("{% if a %}{% for b in c %}{% elif a %}{% endfor %}", "{% endif %}"),
];

/// A stack as small as the smallest on which templates are compiled; larger where nothing is optimized.
const STACK_BYTES: usize = if cfg!(debug_assertions) { 8 << 20 } else { 2 << 20 };

#[test]
fn nothing_is_nested_so_deep_that_a_stack_ends() {
    let compiled = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(|| {
        let (mut refused, mut taken) = (0, 0);
        let mut one = |source: String| {
            assert!(source.len() <= TEMPLATE_BYTES_MAX);
            match TemplateSet::compile(sources(&[("a.html", &source)])) {
                Ok(_) => taken += 1,
                Err(_) => refused += 1,
            }
        };
        for (before, middle, after) in NESTED {
            let depth_max = 120_000 / (before.len() + after.len());
            for depth in [1, 10, 60, TOKENS_NESTED_MAX / 2, TOKENS_NESTED_MAX - 2, 1000, 5000, depth_max] {
                let (before, after) = (before.repeat(depth), after.repeat(depth));
                one(format!("{{{{ {before}{middle}{after} }}}}"));
                one(format!("{{% set x = {before}{middle}{after} %}}"));
                one(format!("{{% if x %}}{{% elif {before}{middle}{after} %}}{{% endif %}}"));
            }
        }
        for (before, after) in BLOCKS {
            for depth in [1, 10, 100, 140, 1000, 240_000 / (before.len() + after.len())] {
                one(format!("{}{}", before.repeat(depth), after.repeat(depth)));
            }
        }
        for depth in [1, 100, TOKENS_NESTED_MAX / 2, 15_000] {
            one(format!("{{% if a %}}{}{{% endif %}}", "{% elif a %}".repeat(depth)));
        }
        (refused, taken)
    });
    let (refused, taken) = compiled.unwrap().join().unwrap();
    assert!(refused > 300 && taken > 300, "{refused}, {taken}");
}

#[test]
fn what_is_long_and_not_deep_is_taken_and_what_is_deep_has_its_place() {
    let list = "{'name': a.b|e, 'of': [1, 2, -3]}, ".repeat(2000);
    let branches = "{% if a %}{% elif b %}{% endif %}".repeat(2000);
    compile(&[("a.html", &format!("{{% set x = [{list}] %}}{{% macro a() %}}{branches}{{% endmacro %}}"))]);
    let found = mistakes(&[("a.html", &format!("\n\n{{{{ a{} }}}}", "\n + a".repeat(40_000)))]);
    assert_eq!(found.len(), 1);
    assert!(found[0].starts_with("a.html:203: an expression has more than 400 words and signs"), "{found:?}");
}

/// The output, in each kind of template, which is included, imported or extended by each kind.
#[test]
fn what_is_printed_is_escaped_for_wherever_it_is_included() {
    let evil = "</script><script>alert(1)//'\"&\\";
    for ext in ["html", "htm", "xml", "json", "js"] {
        let part = format!("part.{ext}");
        let printed = match ext {
            "json" | "js" => "var a = {{ evil }}; var b = {{ {'k': evil} }};{% set x = evil %}{{ x }}",
            _ => "{{ evil }}{% for one in [evil] %}{{ one }}{% endfor %}{{ evil|upper }}",
        };
        let macros = format!("{{% macro say(evil) %}}{printed}{{% endmacro %}}");
        for outer in ["html", "htm", "xml"] {
            let (page, from, extended) =
                (format!("page.{outer}"), format!("from.{outer}"), format!("extended.{outer}"));
            let macros_of = format!("macros.{ext}");
            let set = compile(&[
                (&part, printed),
                (&macros_of, &macros),
                (&page, &format!("<script>{{% include '{part}' %}}</script>")),
                (
                    &from,
                    &format!("{{% from '{macros_of}' import say %}}<script>{{{{ say(evil) }}}}</script>"),
                ),
                (&extended, &format!("{{% extends '{part}' %}}")),
            ]);
            for name in [&page, &from, &extended] {
                let made = set.render(name, context! { evil }).unwrap();
                let inside = made.strip_prefix("<script>").and_then(|made| made.strip_suffix("</script>"));
                let inside = inside.unwrap_or(&made);
                assert!(!inside.contains('<') && !inside.contains('>'), "{name}, {ext}: {made}");
            }
        }
    }
    // The result is the same text for a reader of the JSON.
    let set = compile(&[("a.json", "{{ evil }}")]);
    let made = set.render("a.json", context! { evil }).unwrap();
    assert_eq!(made, r#""\u003c/script\u003e\u003cscript\u003ealert(1)//\u0027\"\u0026\\""#);
}
