//! The jail, from both sides of its wall: what a process in it has, cannot do, and that none starts half-jailed.
//!
//! Runs in: `cargo test`, as root (as another user, what needs root is skipped). The test is its own launcher,
//! which forks, so it must have one thread: it has a `main` of its own instead of the usual harness.

mod probe;
mod process;
mod root;
mod rootless;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

/// A test and its name.
type Test = (&'static str, fn());

fn main() -> ExitCode {
    let mut arguments = std::env::args();
    match arguments.next().as_deref() {
        Some(errand @ (probe::TELL | probe::STAY)) => return probe::run(errand),
        Some(process::LAUNCHER) => return process::be_launcher(),
        Some(rootless::SUITE) => return run(rootless::TESTS, &[], None),
        _ => {}
    }
    let words: Vec<String> = arguments.collect();
    if words.iter().any(|word| word == "--list") {
        return ExitCode::SUCCESS;
    }
    let filter = words.iter().find(|word| !word.starts_with('-')).map(String::as_str);
    if rustix::process::geteuid().is_root() {
        run(&root::tests(), &[], filter)
    } else {
        run(rootless::TESTS, &root::tests(), filter)
    }
}

/// Runs `tests` one after the other and sums up as cargo's own harness does.
fn run(tests: &[Test], skipped: &[Test], filter: Option<&str>) -> ExitCode {
    process::prepare_to_launch();
    let chosen = |test: &&Test| filter.is_none_or(|filter| test.0.contains(filter));
    let left_out = tests.iter().filter(|test| !chosen(test)).count();
    let (mut passed, mut failed, mut ignored) = (0, 0, 0);
    println!("\nrunning {} tests", tests.len() + skipped.len() - left_out);
    for (name, test) in tests.iter().filter(chosen) {
        // A failed assertion leaves nothing behind that the next test would use.
        let good = catch_unwind(AssertUnwindSafe(test)).is_ok();
        println!("test {name} ... {}", if good { "ok" } else { "FAILED" });
        *(if good { &mut passed } else { &mut failed }) += 1;
    }
    for (name, _) in skipped {
        println!("test {name} ... ignored, needs root");
        ignored += 1;
    }
    let verdict = if failed == 0 { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {verdict}. {passed} passed; {failed} failed; {ignored} ignored; 0 measured; {left_out} \
         filtered out\n"
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
