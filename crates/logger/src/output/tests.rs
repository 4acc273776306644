use super::*;
use std::fs::{OpenOptions, read_to_string};

fn access(site: u16) -> Access<'static> {
    Access {
        time_us: 0,
        duration_us: 0,
        site,
        peer: "192.0.2.7:4711".parse().unwrap(),
        status: 200,
        body_bytes: 0,
        version: 1,
        method: b"GET",
        target: b"/",
        host: b"",
        referer: b"",
        agent: b"",
    }
}

#[test]
fn a_full_disk_loses_only_what_is_over_the_limit() {
    let path = std::env::temp_dir().join(format!("bulkhead-output-{}", std::process::id()));
    let mut files = LogFiles::default();
    files.set_error(OpenOptions::new().write(true).open("/dev/full").unwrap());
    let total = 100_000;
    let text = [b'x'; 60];
    for _ in 0..total {
        files.event(0, Level::Info, "a", &text);
        files.write_large(Instant::now());
    }
    assert!(files.waits());
    files.set_error(File::create(&path).unwrap());
    files.event(0, Level::Info, "a", b"after");
    files.close();
    let written = read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let kept = written.lines().filter(|line| line.ends_with("xxx")).count();
    let note = format!("error [logger] lost {} lines: No space left on device (os error 28)", total - kept);
    let mut last = written.lines().rev();
    assert!(kept > 30_000 && kept < total);
    assert!(last.next().unwrap().ends_with("after"));
    assert!(last.next().unwrap().ends_with(&note));
}

#[test]
fn what_waits_for_one_of_many_sites_is_written() {
    let path = std::env::temp_dir().join(format!("bulkhead-output-sites-{}", std::process::id()));
    let mut files = LogFiles::default();
    let full = || OpenOptions::new().write(true).open("/dev/full").unwrap();
    (0..100).for_each(|site| files.set_access(site, "a", full()));
    let access = access(7);
    files.access(&access);
    files.write_large(Instant::now());
    assert!(files.waits(), "it is not much");
    files.write(Instant::now());
    assert!(files.waits(), "nothing takes it");
    files.set_access(8, "a", File::create(&path).unwrap());
    assert!(files.waits(), "it is another's");
    files.set_access(7, "a", File::create(&path).unwrap());
    assert!(!files.waits());
    assert_eq!(read_to_string(&path).unwrap().lines().count(), 1);
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn what_waits_for_a_site_is_not_written_for_another_of_its_number() {
    let path = std::env::temp_dir().join(format!("bulkhead-output-number-{}", std::process::id()));
    let mut files = LogFiles::default();
    files.set_access(7, "a", OpenOptions::new().write(true).open("/dev/full").unwrap());
    files.access(&access(7));
    files.write(Instant::now());
    files.set_access(7, "b", File::create(&path).unwrap());
    assert!(!files.waits());
    files.access(&access(7));
    files.close();
    assert_eq!(read_to_string(&path).unwrap().lines().count(), 1);
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn a_log_that_is_not_open_is_asked_for_once_and_closed_when_nothing_waits() {
    let path =
        |name: &str| std::env::temp_dir().join(format!("bulkhead-output-{name}-{}", std::process::id()));
    let (own, none) = (path("own"), path("none"));
    let lines = |path| read_to_string(path).unwrap().lines().count();
    let mut files = LogFiles::default();
    files.set_access(wire::NO_PARTITION, "", File::create(&none).unwrap());
    files.close_access(7, "a");
    assert!(files.has_unopened() && files.lacks(7) && !files.lacks(8));
    assert!(files.asks_for(7) && !files.asks_for(7) && !files.asks_for(8));
    files.set_access(7, "a", File::create(&own).unwrap());
    assert!(!files.has_unopened() && !files.lacks(7));
    files.access(&access(7));
    files.close_access(7, "a");
    assert!(files.lacks(7) && files.asks_for(7) && !files.waits());
    assert_eq!(lines(&own), 1, "what waited was written");
    files.set_access(7, "a", OpenOptions::new().write(true).open("/dev/full").unwrap());
    files.access(&access(7));
    files.close_access(7, "a");
    assert!(!files.lacks(7) && files.waits(), "something waits for it");
    // Nobody is there to be asked.
    files.close_access(8, "b");
    files.open_no_more();
    assert!(!files.lacks(8) && !files.has_unopened());
    files.access(&access(8));
    files.write(Instant::now());
    assert_eq!(lines(&none), 1);
    [own, none].into_iter().for_each(|path| std::fs::remove_file(path).unwrap());
}

#[test]
fn an_access_log_has_as_many_bytes_as_it_may_and_tells_what_is_left_out() {
    let path =
        |name: &str| std::env::temp_dir().join(format!("bulkhead-output-{name}-{}", std::process::id()));
    let (error, first, second) = (path("full-error"), path("full-first"), path("full-second"));
    let mut files = LogFiles::default();
    files.set_error(File::create(&error).unwrap());
    files.set_access(7, "a", File::create(&first).unwrap());
    let fill = |files: &mut LogFiles, count| {
        (0..count).for_each(|_| files.access(&access(7)));
        files.write(Instant::now());
    };
    fill(&mut files, 1);
    let line = std::fs::metadata(&first).unwrap().len();
    files.set_access_bytes(10 * line);
    fill(&mut files, 9);
    assert_eq!(
        (std::fs::metadata(&first).unwrap().len(), read_to_string(&error).unwrap().lines().count()),
        (10 * line, 0)
    );
    fill(&mut files, 5);
    assert_eq!(std::fs::metadata(&first).unwrap().len(), 10 * line);
    let said = read_to_string(&error).unwrap();
    assert!(said.ends_with(&format!("access log of site a: left out 1 lines: {FULL}; {ROTATE}\n")), "{said}");
    // The lines of before count as well.
    files.set_access(7, "a", OpenOptions::new().append(true).open(&first).unwrap());
    fill(&mut files, 1);
    assert_eq!(std::fs::metadata(&first).unwrap().len(), 10 * line);
    files.set_access(7, "a", File::create(&second).unwrap());
    fill(&mut files, 1);
    let written = read_to_string(&second).unwrap();
    assert!(written.starts_with("# [") && written.contains(&format!("lost 6 lines: {FULL}\n")), "{written}");
    assert_eq!(written.lines().count(), 2);
    [error, first, second].into_iter().for_each(|path| std::fs::remove_file(path).unwrap());
}

#[test]
fn a_log_that_was_not_given_is_no_failure() {
    let mut files = LogFiles::default();
    files.event(0, Level::Info, "a", b"x");
    assert!(!files.waits());
}
