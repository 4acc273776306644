//! `bulkhead send`: an order to one, some or all services.
//!
//! Runs in: the `bulkhead` command, as root or the server's owner. Sees: answers of services, which may be compromised,
//! by way of the admin role. Never: prints a control character of theirs.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::admin::{give, printable};
use crate::commands::{BadCertificates, relaunch, reopen};
use crate::fault::Fault;
use crate::republish::republish;
use crate::table::print;

/// To whom, and what.
#[derive(Debug, PartialEq, Eq)]
struct Order<'w> {
    /// The services; none stands for all.
    services: Vec<&'w str>,
    word: &'w str,
    argument: &'w str,
}

/// What a process has answered.
#[derive(Debug, Deserialize, Serialize)]
struct ProcessAnswer {
    process: String,
    answer: Option<String>,
    error: Option<String>,
}

impl<'w> Order<'w> {
    /// The words of the command line: names of services have a `/`, and orders have none.
    fn read(words: &'w [String], all: bool) -> Result<Self, Fault> {
        let count = words.iter().take_while(|word| word.contains('/')).count();
        let services: Vec<&str> = words[..count].iter().map(String::as_str).collect();
        match (&words[count..], services.is_empty()) {
            (_, true) if !all => Err(Fault::Usage("name a service, as SITE/SERVICE, or say --all".into())),
            (_, false) if all => Err(Fault::Usage("--all stands in the place of services".into())),
            ([], _) => Err(Fault::Usage(
                "the order is missing: relaunch, republish, log-turn, diagnostics, or a word of the services' own".into(),
            )),
            ([word], _) => Ok(Self { services, word, argument: "" }),
            ([word, argument], _) => Ok(Self { services, word, argument }),
            _ => Err(Fault::Usage("an order has one argument; put it in quotes if it has blanks".into())),
        }
    }
}

/// Gives the order, and says for each process what has become of it.
pub fn send(run_dir: &Path, words: &[String], all: bool, json: bool) -> Result<ExitCode, Fault> {
    let Order { services, word, argument } = Order::read(words, all)?;
    let services: Vec<String> = match all {
        true => all_services(run_dir)?,
        false => services.into_iter().map(str::to_owned).collect(),
    };
    let is_builtin = matches!(word, "relaunch" | "republish" | "log-turn" | "diagnostics");
    if is_builtin && !argument.is_empty() {
        return Err(Fault::Usage(format!("{word} has no argument")));
    }
    match word {
        // One logger writes the logs of all.
        "log-turn" => reopen(run_dir),
        "relaunch" => each(&services, |name| relaunch(run_dir, name, BadCertificates::Refuse)),
        "republish" => {
            let sites: BTreeSet<&str> = services.iter().filter_map(|name| name.split('/').next()).collect();
            each(&sites.into_iter().map(str::to_owned).collect::<Vec<_>>(), |site| {
                republish(run_dir, Some(site), json)
            })
        }
        "diagnostics" => ask(run_dir, &services, &json!({ "command": "send" }), json),
        word => {
            let order = json!({ "command": "send", "order": word, "argument": argument });
            ask(run_dir, &services, &order, json)
        }
    }
}

/// Does something with each; a fault of one keeps no other from its turn.
fn each(names: &[String], act: impl Fn(&str) -> Result<ExitCode, Fault>) -> Result<ExitCode, Fault> {
    let mut code = ExitCode::SUCCESS;
    for name in names {
        match act(name) {
            Ok(ExitCode::SUCCESS) => {}
            Ok(other) => code = other,
            Err(fault @ (Fault::Usage(_) | Fault::Unreachable(_))) => return Err(fault),
            Err(fault) => {
                eprintln!("{fault}");
                code = fault.code();
            }
        }
    }
    Ok(code)
}

/// The names of all services that have a process.
fn all_services(run_dir: &Path) -> Result<Vec<String>, Fault> {
    let status = give(run_dir, &json!({ "command": "status" }))?;
    let processes = status["processes"].as_array().map_or(&[][..], Vec::as_slice);
    let services = processes.iter().filter(|one| one["role"] == "service" && one["pid"] != 0);
    let names = services.filter_map(|one| one["name"].as_str()?.split('#').next());
    Ok(names.collect::<BTreeSet<_>>().into_iter().map(str::to_owned).collect())
}

/// Gives an order to all processes of services, and prints what they answer.
fn ask(run_dir: &Path, services: &[String], order: &Value, json: bool) -> Result<ExitCode, Fault> {
    let mut sent: Vec<ProcessAnswer> = Vec::new();
    for name in services {
        let mut order = order.clone();
        order["name"] = name.as_str().into();
        match give(run_dir, &order) {
            Ok(mut answer) => {
                sent.extend(serde_json::from_value::<Vec<ProcessAnswer>>(answer["answers"].take()).map_err(
                    |error| Fault::Failed(format!("the answer is not a list of answers: {error}")),
                )?)
            }
            Err(fault @ (Fault::Usage(_) | Fault::Unreachable(_))) => return Err(fault),
            Err(fault) => {
                sent.push(ProcessAnswer {
                    process: name.clone(),
                    answer: None,
                    error: Some(fault.to_string()),
                });
            }
        }
    }
    if json {
        print(&format!("{:#}", json!({ "answers": sent })))?;
    } else {
        sent.iter().try_for_each(|one| print(&one.text()))?;
    }
    let has_failed = sent.iter().any(|one| one.error.is_some());
    Ok(if has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

impl ProcessAnswer {
    fn text(&self) -> String {
        let process = printable(&self.process);
        match (&self.answer, &self.error) {
            (Some(answer), _) => {
                let lines: Vec<String> = answer.lines().map(printable).collect();
                format!("{process}: {}", lines.join("\n  "))
            }
            (None, error) => {
                format!("{process}: failed: {}", printable(error.as_deref().unwrap_or("no answer")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn services_come_before_the_order_and_its_argument() {
        let line = words("a/b c/d flush 10");
        let order = Order { services: vec!["a/b", "c/d"], word: "flush", argument: "10" };
        assert_eq!(Order::read(&line, false).unwrap(), order);
        assert_eq!(Order::read(&words("diagnostics"), true).unwrap().word, "diagnostics");
        for (line, all) in [
            ("", false),
            ("flush", false),
            ("a/b", false),
            ("a/b flush", true),
            ("a/b f 1 2", false),
            ("", true),
        ] {
            assert!(Order::read(&words(line), all).is_err(), "{line:?}");
        }
    }
}
