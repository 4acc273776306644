//! The same for scripts: one JSON object.
//!
//! Runs in: the `bulkhead` command; pure. Sees: names of the configuration. Never: says less than the text does.

use serde_json::{Value, json};

use super::calls;
use super::contacts::Contact;
use super::model::{Blast, Model, Reach};
use super::ours::connections;
use super::{Explanation, Extent};

/// All of it, or only what is about the process with the number `chosen`.
pub fn report(report: &Explanation, chosen: Option<usize>) -> Value {
    let extent = report.extent(chosen);
    let kept = |number: &usize| chosen.is_none_or(|chosen| chosen == *number);
    let processes: Vec<Value> =
        (0..report.posts.len()).filter(kept).map(|number| process(report, number, extent)).collect();
    let mut value = json!({
        "configuration": report.file,
        "server": { "running": report.server.is_ok(), "why_not": report.server.as_ref().err() },
        "notes": report.notes,
        "processes": processes,
    });
    if extent == Extent::Whole {
        let assets = report.ours.assets.iter().map(|asset| {
            json!({
                "kind": asset.kind.name(),
                "name": asset.name,
                "site": asset.site.and_then(|site| report.config.sites.get(site)).map(|site| &site.name),
            })
        });
        value["assets"] = assets.collect();
    }
    if chosen.is_none() {
        let servers = report.servers();
        let compared = servers.iter().map(|(name, assumed, model)| server(name, assumed, model));
        value["comparison"] = compared.collect();
    }
    value
}

fn process(report: &Explanation, number: usize, extent: Extent) -> Value {
    let post = &report.posts[number];
    let lives = report.server.iter().flat_map(|running| running.of(&post.name));
    let running = lives.map(|live| {
        json!({
            "pid": live.pid, "uid": live.uid, "state": live.state, "connections_now": live.connections_now,
        })
    });
    let lost = report.ours.losses(number);
    let falls = report.ours.falls(number);
    let falls = falls
        .iter()
        .skip(1)
        .map(|drag| json!({ "name": report.ours.processes[drag.process].name, "why": &*drag.how }));
    json!({
        "name": post.name,
        "role": post.role.name(),
        "running": running.collect::<Vec<_>>(),
        "blast": blast(report.ours.blast_of(&lost), extent),
        "losses": losses(&report.ours, &lost),
        "falls_with_it": falls.collect::<Vec<_>>(),
        "calls": calls::json(report, post),
        "connections": connections(&report.config, post).0,
        "sends": contacts(report, &report.topology().sends(number), "to"),
        "receives": contacts(report, &report.topology().receives(number), "from"),
    })
}

fn contacts(report: &Explanation, contacts: &[Contact], peer: &str) -> Vec<Value> {
    let value = contacts.iter().map(|contact| {
        json!({
            peer: report.posts[contact.peer].name,
            "message": contact.message, "descriptors": contact.descriptors,
        })
    });
    value.collect()
}

fn losses(model: &Model, losses: &[Reach]) -> Vec<Value> {
    let value = losses.iter().map(|reach| {
        let asset = &model.assets[reach.asset];
        json!({
            "kind": asset.kind.name(), "name": asset.name, "lost": reach.loss.name(), "why": &*reach.how,
        })
    });
    value.collect()
}

fn blast(blast: Blast, extent: Extent) -> Value {
    match extent {
        Extent::Whole => json!({
            "all": blast.whole, "part": blast.part, "assets": blast.total,
            "share_lost": rounded(blast.lost()), "share_touched": rounded(blast.touched()),
        }),
        Extent::OfSite => json!({ "all": blast.whole, "part": blast.part }),
    }
}

fn server(name: &str, assumed: &str, model: &Model) -> Value {
    let summary = model.summary();
    let processes = model.processes.iter().zip(model.blasts()).map(
        |(process, lost)| json!({ "name": process.name, "trusted": process.is_root, "blast": blast(lost, Extent::Whole) }),
    );
    json!({
        "server": name,
        "assumed": assumed,
        "processes": processes.collect::<Vec<_>>(),
        "worst": summary.worst.map(|(process, _)| &process.name),
        "mean_share_lost": rounded(summary.lost),
        "mean_share_touched": rounded(summary.touched),
    })
}

/// To ten-thousandths, so that numbers stay readable.
fn rounded(share: f64) -> f64 {
    (share * 10_000.0).round() / 10_000.0
}

#[cfg(test)]
mod tests {
    use super::super::{running::tests::whole, tests::demo};
    use super::*;

    #[test]
    fn says_what_the_text_says() {
        let value = report(&demo(None), None);
        assert_eq!(value["server"]["running"], false);
        assert_eq!(value["server"]["why_not"], "no server is running");
        assert_eq!(value["assets"].as_array().unwrap().len(), 19);
        let search = &value["processes"][3];
        assert_eq!(search["name"], "packages/search");
        assert_eq!(
            search["blast"],
            json!({
                "all": 3, "part": 2, "assets": 19, "share_lost": 0.1579, "share_touched": 0.2632
            })
        );
        let first = json!({
            "kind": "service", "name": "packages/search", "lost": "all", "why": "it is this process"
        });
        assert_eq!(search["losses"][0], first);
        assert_eq!(search["receives"][1]["from"], "packages");
        assert_eq!(value["comparison"][1]["server"], "Apache prefork");
        assert_eq!(value["comparison"][1]["processes"][0]["trusted"], true);
        assert_eq!(value["comparison"][3]["worst"], "server");
    }

    #[test]
    fn one_process_of_a_running_server() {
        let value = report(&demo(Some(whole())), Some(1));
        assert_eq!(value["server"], json!({ "running": true, "why_not": null }));
        assert_eq!(value["processes"].as_array().unwrap().len(), 1);
        assert_eq!(value["processes"][0]["running"].as_array().unwrap().len(), 2);
        assert_eq!(value["processes"][0]["running"][0]["connections_now"], 2);
        assert!(value["comparison"].is_null());
    }
}
