//! What falls with one process, in detail.
//!
//! Runs in: the `bulkhead` command; pure. Sees: text that is fit for a terminal. Never: leaves out a loss.

use supervisor::spawn::process_spec::ProcessSpec;
use wire::Role;

use crate::layers::Mark;
use crate::table::align;

use super::calls;
use super::contacts::Contact;
use super::model::Reach;
use super::ours::connections;
use super::running::Live;
use super::table::heading;
use super::{Explanation, Extent};

/// Everything about the process with this number.
pub fn one(report: &Explanation, number: usize) -> String {
    let post = &report.posts[number];
    let mut text = format!("{}: {}\n", post.name, role(report, post));
    for live in lives(report, post) {
        text += &format!("  {}\n", running(live));
    }
    text += &format!("{}\n", heading(report, report.extent(Some(number))));
    text += &losses(report, number);
    text += &fallen(report, number);
    text += &format!("\n\nCONNECTIONS: {}.", connections(&report.config, post).1);
    text += &granted(report, post);
    text += &calls::text(report, post);
    text += &topology(report, "SENDS TO", &report.topology().sends(number));
    text += &topology(report, "IS SENT BY", &report.topology().receives(number));
    if is_unconfined(report, post) {
        text += "\n\nIts root directory is the machine's: what everybody on this machine may read and reach, it \
            may as well,\nas far as no other layer of its jail forbids it. docs/security/threat-model.md says how far \
            that is.";
    }
    text
}

/// What a process is for, in words.
pub fn role(report: &Explanation, post: &ProcessSpec) -> String {
    match (post.role, post.site(&report.config), post.service(&report.config)) {
        (Role::Site, Some(site), _) => format!("the site on {}", site.hosts.join(", ")),
        (Role::Service, Some(site), Some(service)) if service.takes_connections => {
            format!("the service of {} at {}, which takes connections", site.name, service.path)
        }
        (Role::Service, Some(site), Some(service)) => {
            format!("the service of {} at {}", site.name, service.path)
        }
        (Role::Connector, Some(_), Some(service)) => {
            format!("makes the connections that {} is granted", service.name)
        }
        (Role::Broker, Some(_), Some(service)) => {
            format!("answers the calls by which {} connects", service.name)
        }
        (Role::DataProxy, Some(site), _) => {
            let source = post.data_source(&report.config).map_or("", |data| &data.name);
            format!("carries out the named statements of {source} for services of {}", site.name)
        }
        (Role::Connector, Some(_), _) if post.data_source(&report.config).is_some() => {
            let source = post.data_source(&report.config).map_or("", |data| &data.name);
            format!("connects the data proxy of {source} with its database server")
        }
        (Role::Publisher, Some(site), _) => format!("reads the templates of {}, for its services", site.name),
        (Role::Connector, Some(site), _) => format!("connects {} with the servers behind it", site.name),
        (role, ..) => role.facts().does.into(),
    }
}

fn lives<'r>(report: &'r Explanation, post: &'r ProcessSpec) -> impl Iterator<Item = &'r Live> {
    report.server.iter().flat_map(|running| running.of(&post.name))
}

fn running(live: &Live) -> String {
    if live.pid == 0 {
        return format!("runs not: {}", live.state);
    }
    let plural = if live.connections_now == 1 { "" } else { "s" };
    let layers = live.layers.as_ref().filter(|_| live.name != "bulkheadd");
    let layers = layers.map_or(String::new(), |layers| format!("; jail: {}", layers.cell()));
    let Live { pid, uid, state, connections_now, .. } = live;
    format!("pid {pid}, uid {uid}, {state}, {connections_now} connection{plural} now{layers}")
}

fn losses(report: &Explanation, number: usize) -> String {
    let header = ["LOST", "KIND", "WHAT", "WHY"].map(str::to_owned).to_vec();
    let mut losses: Vec<Reach> = report.ours.losses(number);
    let blast = report.ours.blast_of(&losses);
    losses.sort_by_key(|reach| std::cmp::Reverse(reach.loss));
    let rows = losses.into_iter().map(|reach| {
        let asset = &report.ours.assets[reach.asset];
        vec![reach.loss.name().into(), asset.kind.name().into(), asset.name.clone(), reach.how.to_string()]
    });
    let rows: Vec<Vec<String>> = std::iter::once(header).chain(rows).collect();
    let all = match report.extent(Some(number)) {
        Extent::Whole => format!(" of {}", blast.total),
        Extent::OfSite => String::new(),
    };
    format!(
        "\nIf it falls into an attacker's hands, {}{all} assets fall altogether, and {} in part:\n\n{}",
        blast.whole,
        blast.part,
        align(&rows, &[])
    )
}

/// The processes that fall with it, if there are any.
fn fallen(report: &Explanation, number: usize) -> String {
    let falls = report.ours.falls(number);
    let rows: Vec<Vec<String>> = (falls.iter().skip(1))
        .map(|drag| vec![report.ours.processes[drag.process].name.clone(), drag.how.to_string()])
        .collect();
    if rows.is_empty() {
        return "\n\nNo other process falls with it.".into();
    }
    format!("\n\nThese processes fall with it:\n\n{}", align(&rows, &[]))
}

fn topology(report: &Explanation, title: &str, contacts: &[Contact]) -> String {
    let header = [title, "MESSAGE", "WITH"].map(str::to_owned).to_vec();
    let rows = contacts.iter().map(|contact| {
        vec![report.posts[contact.peer].name.clone(), contact.message.into(), contact.descriptors.into()]
    });
    let rows: Vec<Vec<String>> = std::iter::once(header).chain(rows).collect();
    format!("\n\n{}", align(&rows, &[]))
}

/// What the configuration lets a program do besides.
fn granted(report: &Explanation, post: &ProcessSpec) -> String {
    let filters = &report.config.conditioning.filters;
    let service = post.service(&report.config).filter(|_| post.role == Role::Service);
    let jit = match post.role {
        Role::Filter => filters.iter().any(|filter| filter.jit),
        _ => service.is_some_and(|service| service.jit),
    };
    let mut text = String::new();
    if let Some(network) = service.map(|service| &service.network).filter(|network| network.is_granted()) {
        let tcp = network.tcp.iter().map(|grant| {
            let hosts = grant.network.as_deref().unwrap_or("any host");
            format!("TCP port {} of {hosts}", grant.port)
        });
        let udp = network.udp.then(|| "UDP, any port of any host".to_owned());
        let all: Vec<String> = tcp.chain(udp).collect();
        text += &format!("\n\nNETWORK: {}; its connector makes these connections.", all.join(", "));
    }
    let libraries = service.map(|service| service.libraries.as_slice()).unwrap_or_default();
    if !libraries.is_empty() {
        let folders: Vec<String> = libraries.iter().map(|folder| folder.display().to_string()).collect();
        text += &format!(
            "\n\nLIBRARIES: it loads code from {} while it runs (`libraries`), and from nowhere else.",
            folders.join(", ")
        );
    }
    if jit {
        text += "\n\nCODE: it may make code while it runs (`jit = true`): who takes it over runs code of his own.";
    }
    text
}

/// Whether the kernel says that a service has the machine's root directory.
fn is_unconfined(report: &Explanation, post: &ProcessSpec) -> bool {
    let sees_all =
        |live: &Live| live.layers.as_ref().is_some_and(|layers| layers.mark("root") == Mark::Missing);
    post.role == Role::Service && lives(report, post).any(sees_all)
}

#[cfg(test)]
mod tests {
    use super::super::{running::tests::whole, tests::demo};
    use super::*;
    use crate::layers::Layers;

    fn detail(report: &Explanation, name: &str) -> String {
        one(report, report.posts.iter().position(|post| post.name == name).unwrap())
    }

    #[test]
    fn one_service_without_a_server() {
        let text = detail(&demo(None), "packages/search");
        assert!(text.starts_with("packages/search: the service of packages at /search\ndemo.toml, alone: "));
        assert!(text.contains("3 assets fall altogether, and 2 in part:"), "{text}");
        assert!(text.contains("all   files    data"), "{text}");
        assert!(text.contains("No other process falls with it."), "{text}");
        assert!(text.contains("SENDS TO   MESSAGE"), "{text}");
        assert!(text.contains("IS SENT BY"), "{text}");
        assert!(!text.contains("packages/package"), "{text}");
    }

    #[test]
    fn the_price_of_taking_connections_is_named() {
        let text = detail(&demo(None), "packages/package");
        assert!(text.contains("which takes connections"), "{text}");
        let price = "part  users    packages             who holds a client's connection can answer what the \
            client sends next on it, on the same host";
        assert!(text.contains(price), "{text}");
    }

    #[test]
    fn a_running_process_is_described() {
        let mut running = whole();
        running.processes[3].layers = Some(Layers::of(0, 1, "service").with("root", Mark::Missing));
        let report = demo(Some(running));
        let text = detail(&report, "packages/search");
        assert!(text.contains("pid 4000000003, uid 51003, serving, 2 connections now; jail: "), "{text}");
        assert!(text.contains("Its root directory is the machine's"), "{text}");
        assert!(!detail(&report, "packages/crash").contains("Its root directory"));
        assert_eq!(detail(&report, "gate").matches("pid 4000").count(), 2);
    }

    #[test]
    fn with_the_launcher_all_others_fall() {
        let text = detail(&demo(None), "bulkheadd");
        assert!(text.contains("These processes fall with it:\n\ngate "), "{text}");
        assert!(text.contains("all   host     root on this machine"), "{text}");
    }
}
