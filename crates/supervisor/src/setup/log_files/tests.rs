//! Logs of made-up configurations, in folders of their own.

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use super::access::NO_SITE;
use super::*;

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

/// 2026-11-21 00:00:00.
const MIDNIGHT: u64 = 20_778 * 86_400;

/// The names of the access logs of a configuration whose logs are opened anew.
fn names_of(config: &Config) -> Vec<String> {
    let (folder, mut made) = (tempfile::tempdir().unwrap(), MadeFiles::default());
    let logs = AccessLogs::open(config, Where { folder: folder.path(), days: None }, &mut made).unwrap();
    logs.names().into_iter().map(str::to_owned).collect()
}

/// A folder that goes away with the test, and the logs of two sites in it.
struct Bench {
    folder: tempfile::TempDir,
    logs: Logs,
}

impl Bench {
    fn new(log: &str, now: SystemTime) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let text = format!(
            "{log}\n[[listen]]\naddress = '127.0.0.1:1'\n\
             [[site]]\nname = 'a'\nhost = ['a']\nroot = 'a'\naccess_log = 'access.log'\n\
             [[site]]\nname = 'b'\nhost = ['b']\nroot = 'b'\n"
        );
        let config = Config::parse(&text, "f", folder.path()).unwrap();
        let logs = Logs::open(&config, now).unwrap();
        Self { folder, logs }
    }

    /// The files, with what is in each.
    fn files(&self) -> Vec<(String, String)> {
        let entries = std::fs::read_dir(self.folder.path().join("log")).unwrap().map(Result::unwrap);
        let mut files: Vec<_> = entries
            .map(|entry| {
                let text = std::fs::read_to_string(entry.path()).unwrap();
                (entry.file_name().into_string().unwrap(), text)
            })
            .collect();
        files.sort();
        files
    }

    fn names(&self) -> Vec<String> {
        self.files().into_iter().map(|(name, _)| name).collect()
    }

    fn write(&mut self, text: &str) {
        use std::io::Write as _;
        self.logs.access.file(0).unwrap().as_ref().write_all(text.as_bytes()).unwrap();
    }
}

#[test]
fn a_day_has_its_files_and_the_next_one_others() {
    let mut bench = Bench::new("[log]\ndaily = true", at(MIDNIGHT - 1));
    let first = ["access.log.20261120", "b.access.log.20261120", "error.log", "no-site.access.log.20261120"];
    assert_eq!(bench.names(), first);
    bench.write("before\n");
    assert!(!bench.logs.are_due(at(MIDNIGHT - 1)) && bench.logs.are_due(at(MIDNIGHT)));
    bench.logs.reopen(at(MIDNIGHT)).unwrap();
    bench.write("after\n");
    let files = bench.files();
    assert_eq!(files.len(), 7);
    assert_eq!(files[0], ("access.log.20261120".into(), "before\n".into()));
    assert_eq!(files[1], ("access.log.20261121".into(), "after\n".into()));
    // An order on the same day adds to the file that is there.
    bench.logs.reopen(at(MIDNIGHT + 5)).unwrap();
    bench.write("later\n");
    assert_eq!(bench.files()[1].1, "after\nlater\n");
}

#[test]
fn without_days_there_is_one_file_whenever_it_is_opened() {
    let mut bench = Bench::new("", at(MIDNIGHT - 1));
    assert_eq!(bench.names(), ["access.log", "b.access.log", "error.log", "no-site.access.log"]);
    assert!(!bench.logs.are_due(at(MIDNIGHT)));
    assert_eq!(bench.logs.pause(at(MIDNIGHT)), None);
}

#[test]
fn logs_of_sites_that_stay_are_those_that_there_were() {
    let folder = tempfile::tempdir().unwrap();
    let config = |sites: &[(&str, &str)]| {
        let site = |(name, more): &(&str, &str)| {
            format!("[[site]]\nname = '{name}'\nhost = ['{name}']\nroot = 'a'\n{more}\n")
        };
        let text: String = sites.iter().map(site).collect();
        Config::parse(&format!("[[listen]]\naddress = '127.0.0.1:1'\n{text}"), "f", folder.path()).unwrap()
    };
    let first = config(&[("a", ""), ("b", ""), ("c", "access_log = 'x.log'")]);
    let logs = Logs::open(&first, at(MIDNIGHT)).unwrap();
    let (mut second, new) = (first.clone(), config(&[("b", "index = ['i']"), ("d", "")]));
    second.sites.extend(new.sites.iter().cloned());
    let next = logs.open_next(&second, at(MIDNIGHT)).unwrap();
    assert_eq!(next.access.names(), names_of(&second));
    let file = |logs: &Logs, number: usize| logs.access.file(number).cloned().unwrap();
    let same = |one, other| Arc::ptr_eq(&file(&logs, one), &file(&next, other));
    assert!((0..3).all(|number| same(number, number)) && same(1, 3) && same(3, 5));
    // The old `b` goes, and with it nothing, as there is a new one; `c` goes, and with it its log.
    let mut third = second.clone();
    [1, 2].into_iter().for_each(|gone| crate::numbers::leave_place(third.sites.get_mut(gone).unwrap()));
    let last = next.open_next(&third, at(MIDNIGHT)).unwrap();
    assert_eq!(last.access.names(), names_of(&third));
    assert_eq!(
        last.access.names(),
        ["a.access.log", "b.access.log", NO_SITE, "b.access.log", "d.access.log", NO_SITE]
    );
    let same = |one, other| Arc::ptr_eq(&file(&logs, one), &file(&last, other));
    assert!(same(3, 2) && same(1, 1));
    assert_eq!(logs.changed_sites(&last), Some(vec![2]));
}

#[test]
fn logs_of_a_change_that_is_given_up_go_with_it() {
    let mut bench = Bench::new("", at(MIDNIGHT));
    let before = bench.names();
    let text = |more: &str| {
        let site = |name: &str| format!("[[site]]\nname = '{name}'\nhost = ['{name}']\nroot = 'a'\n");
        let text = format!("[[listen]]\naddress = '127.0.0.1:1'\n{}{}{more}", site("a"), site("b"));
        Config::parse(&text, "f", bench.folder.path()).unwrap()
    };
    let new = "[[site]]\nname = 'c'\nhost = ['c']\nroot = 'c'\n";
    let mut tried = text(new);
    let next = bench.logs.open_next(&tried, at(MIDNIGHT)).unwrap();
    assert!(bench.names().contains(&"c.access.log".into()));
    drop(next);
    assert_eq!(bench.names(), before, "nothing was written there");
    let mut held = bench.logs.open_next(&tried, at(MIDNIGHT)).unwrap();
    held.keep();
    drop(held);
    assert!(bench.names().contains(&"c.access.log".into()), "it holds");
    // Its number is that of a place.
    crate::numbers::leave_place(tried.sites.get_mut(2).unwrap());
    bench.logs.take_places(&tried);
    assert_eq!((bench.logs.access.sites(), bench.logs.access.names().len()), (3, 4));
    let file = |number: usize| bench.logs.access.file(number).cloned().unwrap();
    assert!(Arc::ptr_eq(&file(2), &file(3)) && !Arc::ptr_eq(&file(1), &file(2)));
    // A folder in which the logs would be, too.
    let other = text("").server.log_dir.with_file_name("other");
    let elsewhere = text(&format!("[server]\nlog_dir = '{}'\n", other.display()));
    drop(bench.logs.open_next(&elsewhere, at(MIDNIGHT)).unwrap());
    assert!(!other.exists());
}

#[test]
fn what_was_opened_meanwhile_of_a_site_that_stays_stays_open() {
    let mut bench = Bench::new("[server]\nstart = 'on-demand'", at(MIDNIGHT));
    let config = Config::parse(
        "[server]\nstart = 'on-demand'\n[[listen]]\naddress = '127.0.0.1:1'\n\
         [[site]]\nname = 'a'\nhost = ['a']\nroot = 'a'\naccess_log = 'access.log'\n\
         [[site]]\nname = 'b'\nhost = ['b']\nroot = 'b'\n[[site]]\nname = 'c'\nhost = ['c']\nroot = 'c'\n",
        "f",
        bench.folder.path(),
    );
    let mut next = bench.logs.open_next(&config.unwrap(), at(MIDNIGHT)).unwrap();
    next.open_one(1).unwrap();
    bench.logs.take_opened(&next);
    drop(next);
    assert_eq!((bench.logs.is_closed(0), bench.logs.is_closed(1)), (true, false));
    assert!(bench.names().contains(&"b.access.log".into()));
}

#[test]
fn logs_of_sites_that_start_on_demand_are_opened_when_they_are_needed() {
    let log = "[server]\nstart = 'on-demand'\n[log]\ndaily = true";
    let mut bench = Bench::new(log, at(MIDNIGHT - 1));
    assert_eq!(bench.names(), ["error.log", "no-site.access.log.20261120"]);
    assert!(bench.logs.is_closed(0) && bench.logs.is_closed(1) && !bench.logs.is_closed(2));
    bench.logs.open_one(0).unwrap();
    bench.write("first\n");
    assert_eq!(bench.logs.access.closable().collect::<Vec<_>>(), [0]);
    bench.logs.reopen(at(MIDNIGHT)).unwrap();
    bench.write("second\n");
    assert_eq!(bench.names()[..2], ["access.log.20261120", "access.log.20261121"]);
    bench.logs.access.close_one(0);
    assert_eq!((bench.logs.is_closed(0), bench.logs.access.closable().count()), (true, 0));
    bench.logs.open_one(0).unwrap();
    bench.write("third\n");
    assert_eq!(bench.files()[1].1, "second\nthird\n");
    // The lines of one that cannot be opened are where those of no site are.
    std::fs::create_dir(bench.folder.path().join("log/b.access.log.20261121")).unwrap();
    assert!(bench.logs.open_one(1).is_err() && !bench.logs.is_closed(1));
    let file = |number: usize| bench.logs.access.file(number).cloned().unwrap();
    assert!(Arc::ptr_eq(&file(1), &file(2)));
}

#[test]
fn files_that_cannot_be_opened_replace_none() {
    let mut bench = Bench::new("[log]\ndaily = true", at(MIDNIGHT - 1));
    let (log, away) = (bench.folder.path().join("log"), bench.folder.path().join("away"));
    std::fs::rename(&log, &away).unwrap();
    assert!(bench.logs.reopen(at(MIDNIGHT)).is_err());
    bench.write("kept\n");
    std::fs::rename(&away, &log).unwrap();
    assert_eq!(bench.files()[0], ("access.log.20261120".into(), "kept\n".into()));
    // It is still due, a while later.
    assert!(bench.logs.are_due(at(MIDNIGHT + 61)));
    bench.logs.reopen(at(MIDNIGHT + 61)).unwrap();
    assert_eq!(bench.names().len(), 7);
}
