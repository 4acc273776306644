use super::*;

#[test]
fn places_count_characters_from_one() {
    let problems = Problems::new("f", "ab\nä = 1\n");
    assert_eq!(problems.place(0), "f:1:1");
    assert_eq!(problems.place(3), "f:2:1");
    assert_eq!(problems.place(6), "f:2:3");
    assert_eq!(problems.place(10), "f:3:1");
    assert_eq!(Problems::new("f", "").place(0), "f:1:1");
}

#[test]
fn places_say_in_which_file_they_are() {
    let mut problems = Problems::new("f", "ab\n");
    let base = problems.add("g", "x\nyz").base();
    assert_eq!((problems.place(3), problems.place(base)), ("f:2:1".into(), "g:1:1".into()));
    problems.report(base + 3, "second");
    problems.report(1, "first");
    // Only the lines of the last file are settled.
    problems.settle();
    problems.report(base + 2, "an echo");
    problems.report(1, "another");
    let Diagnostics(found) = problems.into_diagnostics();
    let found: Vec<_> = found.iter().map(|one| (&*one.file, one.line, one.column, &*one.message)).collect();
    assert_eq!(found, [("f", 1, 2, "first"), ("f", 1, 2, "another"), ("g", 2, 2, "second")]);
}

#[test]
fn a_text_that_is_kept_keeps_its_places() {
    let mut problems = Problems::new("f", "ab\n");
    let kept = [problems.add("g", "x"), problems.add("h", "y\nz")];
    let next = problems.next();
    let mut problems = Problems::new("f", "ab\n");
    problems.go_on_at(next);
    problems.adopt(&kept[1]);
    let new = problems.add("g", "other");
    problems.report(new.base(), "second");
    problems.report(kept[1].base() + 2, "first");
    let Diagnostics(found) = problems.into_diagnostics();
    let found: Vec<_> = found.iter().map(|one| (&*one.file, one.line, &*one.message)).collect();
    assert_eq!(found, [("h", 2, "first"), ("g", 1, "second")]);
}

#[test]
fn of_one_file_enough_is_said_and_of_others_all() {
    let mut problems = Problems::new("main", "");
    let bases = ["a", "b"].map(|name| problems.add(name, &"x\n".repeat(3 * SAID_MAX)).base());
    for line in 0..3 * SAID_MAX {
        assert_eq!(problems.has_enough(bases[0]), line > SAID_MAX);
        problems.report(bases[0] + 2 * line, format!("mistake {line}"));
        problems.warn(bases[0] + 2 * line, "odd", "look");
    }
    problems.report(bases[1], "another's");
    // What two files want is found beside all others' mistakes, and a file that cannot be read has no mistakes but
    // that.
    for other in 0..2 * SAID_MAX {
        problems.report_conflict((bases[0], bases[1]), &other.to_string(), "both", "choose");
        problems.report_conflict((bases[0], 0), &other.to_string(), "both", "choose");
        problems.report_of(Path::new(&other.to_string()), 0, "unread", "let it be read");
    }
    let blames = problems.blames();
    let of = |file: &str| {
        blames.iter().filter(|blame| blame.file == file && blame.conflict.is_none()).collect::<Vec<_>>()
    };
    assert_eq!((of("a").len(), of("b").len(), of("7").len()), (SAID_MAX + 1, 1, 1));
    let last = &of("a")[SAID_MAX].diagnostic;
    assert_eq!(
        (&*last.message, last.line),
        ("the file has more mistakes; 100 of them are said", SAID_MAX + 1)
    );
    assert_eq!(blames.iter().filter(|blame| blame.conflict.is_some()).count(), 2 * (SAID_MAX + 1));
    assert_eq!(problems.into_warnings().len(), SAID_MAX + 1);
}

#[test]
fn quoted_text_cannot_drive_a_terminal() {
    assert_eq!(quote("a\u{1b}[2J\"'"), "\"a\\u{1b}[2J\\\"'\"");
    assert_eq!(quote(&"x".repeat(200)).len(), 125);
}
