//! The last lines of processes that could not start, for who has started the server and looks at its terminal.
//!
//! Runs in: the logger. Sees: lines of any process, which come escaped. Never: waits for the terminal, or reads from
//! it.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::Write as _;
use std::rc::Rc;

/// LIMIT: lines of one failure, and bytes of each: more is in the error log.
const LINES_MAX: usize = 5;
const LINE_BYTES_MAX: usize = 400;
/// LIMIT: processes whose last lines are kept, those that run not counted.
const TAILS_MAX: usize = 1024;

/// The last lines of one process.
pub type Tail = Rc<RefCell<VecDeque<String>>>;

/// Adds a line, which is escaped.
pub fn push(tail: &Tail, line: &[u8]) {
    let mut lines = tail.borrow_mut();
    if lines.len() == LINES_MAX {
        lines.pop_front();
    }
    lines.push_back(String::from_utf8_lossy(&line[..line.len().min(LINE_BYTES_MAX)]).into_owned());
}

/// The terminal that the launcher prints to.
#[derive(Debug)]
pub struct Terminal {
    output: File,
    tails: HashMap<String, Tail>,
    /// The last line of each process, without numbers.
    shown: HashMap<String, String>,
}

impl Terminal {
    /// Writes to `output`, which does not block.
    pub fn new(output: File) -> Self {
        Self { output, tails: HashMap::new(), shown: HashMap::new() }
    }

    /// Where the last lines of a new process go.
    pub fn tail(&mut self, label: &str) -> Tail {
        if self.tails.len() >= TAILS_MAX {
            self.tails.retain(|_, tail| Rc::strong_count(tail) > 1);
            self.shown.retain(|label, _| self.tails.contains_key(label));
        }
        let tail = Tail::default();
        self.tails.insert(label.to_owned(), tail.clone());
        tail
    }

    /// The last lines of the newest process of this name.
    pub fn tail_of(&self, label: &str) -> Option<Tail> {
        self.tails.get(label).cloned()
    }

    /// Shows the last lines, unless they are the same as the last time: a process that is started again and again fails
    /// for the same reason.
    pub fn show(&mut self, label: &str) {
        let Some(tail) = self.tails.get(label) else { return };
        let lines: String =
            tail.borrow().iter().map(|line| format!("bulkhead: [{label}] {line}\n")).collect();
        // Numbers of threads and processes differ.
        let same: String = lines.chars().filter(|c| !c.is_ascii_digit()).collect();
        if !lines.is_empty() && self.shown.insert(label.to_owned(), same.clone()) != Some(same) {
            // One that is closed or stopped has nobody who looks at it.
            let _ = self.output.write_all(lines.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_short_lines_are_shown_and_each_failure_once() {
        let path = std::env::temp_dir().join(format!("bulkhead-terminal-{}", std::process::id()));
        let mut terminal = Terminal::new(File::create(&path).unwrap());
        let mut shown = |line: &str| {
            let tail = terminal.tail("service a/b");
            (0..9).for_each(|number| push(&tail, format!("{number} {line}").as_bytes()));
            terminal.show("service a/b");
            std::fs::read_to_string(&path).unwrap()
        };
        let first = shown("thread 7: no database");
        assert_eq!(first.lines().count(), LINES_MAX);
        assert!(first.starts_with("bulkhead: [service a/b] 4 thread 7: no database\n"), "{first}");
        assert_eq!(shown("thread 8: no database"), first);
        let long = shown(&"x".repeat(9000));
        assert!(long.len() - first.len() < LINES_MAX * (LINE_BYTES_MAX + 40), "{}", long.len());
        std::fs::remove_file(&path).unwrap();
    }
}
