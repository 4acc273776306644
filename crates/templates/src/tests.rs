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
