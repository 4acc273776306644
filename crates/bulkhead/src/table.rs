//! Output for people: aligned tables, sizes, durations.
//!
//! Runs in: the `bulkhead` command. Sees: text that its caller has made fit for a terminal. Never: panics because
//! a pager was closed.

use std::io::{self, Write};

use crate::fault::Fault;

/// Prints a line to standard output; a closed pipe (`| head`) is no failure.
pub fn print(text: &str) -> Result<(), Fault> {
    match writeln!(io::stdout(), "{text}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Fault::io("standard output")(error)),
        _ => Ok(()),
    }
}

/// Aligns rows to columns; the last one is not padded. Columns named in `right` are aligned to the right.
pub fn align(rows: &[Vec<String>], right: &[usize]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let cells = |column: usize| rows.iter().filter_map(move |row| row.get(column));
    let widths: Vec<usize> = (0..columns)
        .map(|column| cells(column).map(|cell| cell.chars().count()).max().unwrap_or(0))
        .collect();
    let lines = rows.iter().map(|row| {
        let cells = row.iter().enumerate().map(|(column, cell)| {
            let width = widths[column];
            if right.contains(&column) { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// A size in the unit that fits it.
pub fn size(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "KiB", "MiB"] {
        if value < 1024.0 {
            let digits = usize::from(unit == "MiB" && value < 100.0);
            return format!("{value:.digits$} {unit}");
        }
        value /= 1024.0;
    }
    format!("{value:.1} GiB")
}

/// A duration in its two largest units.
pub fn age(milliseconds: u64) -> String {
    let seconds = milliseconds / 1000;
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{minutes}m{:02}s", seconds % 60),
        3600..86_400 => format!("{hours}h{:02}m", minutes % 60),
        _ => format!("{days}d{:02}h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let rows = [row(["A", "N", "Z"]), row(["long", "1", ""]), row(["b", "100", "end"])];
        assert_eq!(align(&rows, &[1]), "A       N  Z\nlong    1\nb     100  end");
    }

    #[test]
    fn sizes_and_ages() {
        assert_eq!(size(512), "512 B");
        assert_eq!(size(900 * 1024), "900 KiB");
        assert_eq!(size(3 << 19), "1.5 MiB");
        assert_eq!(size(3 << 30), "3.0 GiB");
        assert_eq!(age(999), "0s");
        assert_eq!(age(61_000), "1m01s");
        assert_eq!(age(3_660_000), "1h01m");
        assert_eq!(age(90_000_000), "1d01h");
    }
}
