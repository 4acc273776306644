//! `bulkhead status --isolation`: each layer of each process's jail, as the kernel reports it.
//!
//! Runs in: the `bulkhead` command; pure. Sees: names from the admin role, which may be compromised: they are
//! printed with control characters escaped. Never: shows a layer that could not be read as applied.

use crate::admin::printable;
use crate::layers::LAYERS;
use crate::status::{LAUNCHER, SeenProcess};
use crate::table::align;

/// The table, and what its headings mean.
pub fn render(seen: &[SeenProcess], missing: &str) -> String {
    let headings = LAYERS.iter().map(|layer| layer.heading.to_owned());
    let header: Vec<String> = ["PROCESS".into(), "PID".into()].into_iter().chain(headings).collect();
    let jailed = seen.iter().filter(|seen| seen.process.role != LAUNCHER);
    let rows: Vec<Vec<String>> = std::iter::once(header).chain(jailed.map(row)).collect();
    let mut text = align(&rows, &[1]) + "\n\n" + &legend();
    if !missing.is_empty() {
        text += &format!("\nThe server says that it does without: {}", printable(missing));
    }
    text
}

fn row(seen: &SeenProcess) -> Vec<String> {
    let process = &seen.process;
    let pid = if process.pid == 0 { printable(&process.state) } else { process.pid.to_string() };
    let columns = LAYERS
        .iter()
        .map(|layer| seen.layers.as_ref().map_or_else(|| "-".into(), |layers| layers.column(layer)));
    [printable(&process.name), pid].into_iter().chain(columns).collect()
}

/// Every heading with its meaning, in two columns.
fn legend() -> String {
    let half = LAYERS.len().div_ceil(2);
    let cells = |index: usize| {
        LAYERS
            .get(index)
            .map_or_else(Vec::new, |layer| vec![layer.heading.to_owned(), layer.means.to_owned()])
    };
    let rows: Vec<Vec<String>> =
        (0..half).map(|index| [cells(index), cells(index + half)].concat()).collect();
    let marks = "yes: the kernel says so; NO: it says otherwise; ?: it does not say, or only to root.";
    format!("{}\n\n{marks}", align(&rows, &[]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers::{LANDLOCK, Mark};
    use crate::status::tests::process;

    #[test]
    fn a_row_for_each_process_and_a_line_for_each_heading() {
        let mut own = process("service", "packages/search", std::process::id(), "serving");
        own.layers = own.layers.map(|layers| layers.with(LANDLOCK, Mark::Applied));
        let seen = [
            process("bulkheadd", "bulkheadd", std::process::id(), "serving"),
            own,
            process("site", "packages", 0, "broken"),
        ];
        let text = render(&seen, "seccomp");
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("PROCESS  "), "{text}");
        let words: Vec<&str> = lines[1].split_whitespace().collect();
        assert_eq!((words[0], words[2], words.len()), ("packages/search", "NO", LAYERS.len() + 2), "{text}");
        assert_eq!(words.last(), Some(&"yes"), "{text}");
        assert!(lines[2].starts_with("packages         ") && lines[2].contains("  broken  -    -"), "{text}");
        assert!(lines[3].is_empty(), "the launcher is in no jail: {text}");
        for layer in &LAYERS {
            assert!(text.contains(&format!("{} ", layer.heading)) && text.contains(layer.means), "{text}");
        }
        assert!(text.ends_with("without: seccomp"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() < 120), "{text}");
    }
}
