//! `bulkhead-probe attempts [HINTS]`, `bulkhead-probe score [HINTS]`, `bulkhead-probe sweep`: one JSON document on
//! standard output. `bulkhead-probe filter` sweeps as a filter, on request.
//!
//! Runs in: the jail that is to be probed, or none. Sees: its arguments. Never: needs a descriptor other than
//! standard output, or a file.

use std::io::Write;
use std::process::ExitCode;

use probe::Hints;
use probe::hints::ProbedKind;

fn main() -> ExitCode {
    let arguments: Vec<String> =
        std::env::args_os().skip(1).map(|argument| argument.to_string_lossy().into_owned()).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (what, hints) = match arguments.as_slice() {
        [what] => (*what, Ok(Hints::default())),
        [what, hints] => (*what, Hints::parse(hints)),
        _ => ("", Ok(Hints::default())),
    };
    let hints = match hints {
        Ok(hints) => hints,
        Err(message) => return usage(&message),
    };
    let document = match what {
        "attempts" => probe::attempts(&hints).to_json(),
        "sweep" => probe::sweep::run(),
        "filter" => return filter(),
        "score" => probe::score::score(&hints).to_json(),
        // Prints the table, without trying any of it.
        "list" => probe::run::list(ProbedKind::Role),
        _ => return usage("what to do is missing"),
    };
    match writeln!(std::io::stdout(), "{document}") {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn filter() -> ExitCode {
    match probe::filter::serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn usage(message: &str) -> ExitCode {
    let _ = writeln!(
        std::io::stderr(),
        "error: {message}\nusage: bulkhead-probe attempts|score|list|sweep|filter [HINTS]   (HINTS is a JSON object)"
    );
    ExitCode::from(2)
}
