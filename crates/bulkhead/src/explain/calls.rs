//! What one process may be asked, or may ask, of databases: in a table, and for programs.
//!
//! Runs in: the `bulkhead` command; pure. Sees: names of the configuration and of statements. Never: says that a
//! statement only reads where its words leave that open.

use serde_json::{Value, json};
use statements::NamedTable;
use supervisor::spawn::process_spec::ProcessSpec;
use wire::Role;

use super::Explanation;
use super::assets::data_name;
use super::granted::{GrantedCall, tables};
use crate::table::align;

/// The calls of a service, or for each service of a data proxy how many it may make; nothing for others.
pub fn text(report: &Explanation, post: &ProcessSpec) -> String {
    let rows = match post.role {
        Role::Service => of_service(report, post),
        Role::DataProxy => of_proxy(report, post),
        _ => Vec::new(),
    };
    let header = match post.role {
        Role::Service => ["CALLS", "OF", "DOES", "READS", "WRITES"],
        _ => ["IS CALLED BY", "CALLS", "CHANGING", "READS", "WRITES"],
    };
    if rows.is_empty() {
        return String::new();
    }
    let rows: Vec<Vec<String>> = std::iter::once(header.map(str::to_owned).to_vec()).chain(rows).collect();
    let right: &[usize] = if post.role == Role::DataProxy { &[1, 2] } else { &[] };
    format!("\n\n{}", align(&rows, right))
}

/// The sources of a service, by their names with the site's and without.
fn sources<'r>(report: &'r Explanation, post: &ProcessSpec) -> Vec<(String, &'r str)> {
    let Some((site, service)) = post.site(&report.config).zip(post.service(&report.config)) else {
        return Vec::new();
    };
    let own = site.data.iter().filter(|data| service.data.contains(&data.name));
    own.map(|data| (data_name(site, data), data.name.as_str())).collect()
}

fn of_service(report: &Explanation, post: &ProcessSpec) -> Vec<Vec<String>> {
    let name = post.service(&report.config).map_or("", |service| &service.name);
    let of_source = |(source, short): (String, &str)| -> Vec<Vec<String>> {
        let calls = report.granted.of_service(&source, name);
        calls.map(|call| row([&call.name, short, does(call)], &call.tables)).collect()
    };
    sources(report, post).into_iter().flat_map(of_source).collect()
}

fn does(call: &GrantedCall) -> &'static str {
    match (call.writes, call.is_transaction) {
        (false, false) => "reads",
        (true, false) => "may change rows",
        (false, true) => "reads, in a transaction",
        (true, true) => "may change rows, in a transaction",
    }
}

fn row(cells: [&str; 3], tables: &[NamedTable]) -> Vec<String> {
    let [reads, writes] =
        split(tables).map(|names| if names.is_empty() { "-".into() } else { names.join(", ") });
    cells.map(str::to_owned).into_iter().chain([reads, writes]).collect()
}

/// The tables that are only read, and those that are changed.
fn split(tables: &[NamedTable]) -> [Vec<&str>; 2] {
    [false, true].map(|writes| {
        tables.iter().filter(|table| table.writes == writes).map(|table| table.name.as_str()).collect()
    })
}

/// The services that have a source, with the calls of each.
fn callers<'r>(report: &'r Explanation, post: &ProcessSpec) -> Vec<(&'r str, Vec<&'r GrantedCall>)> {
    let Some((site, data)) = post.site(&report.config).zip(post.data_source(&report.config)) else {
        return Vec::new();
    };
    let source = data_name(site, data);
    let services = site.services.iter().filter(|service| service.data.contains(&data.name));
    let calls = |service: &'r str| report.granted.of_service(&source, service).collect();
    services.map(|service| (service.name.as_str(), calls(&service.name))).collect()
}

fn of_proxy(report: &Explanation, post: &ProcessSpec) -> Vec<Vec<String>> {
    let of_caller = |(service, calls): (&str, Vec<&GrantedCall>)| {
        let changing = calls.iter().filter(|call| call.writes).count();
        row([service, &calls.len().to_string(), &changing.to_string()], &tables(calls))
    };
    callers(report, post).into_iter().map(of_caller).collect()
}

/// The same for programs: what a service may call; what may be called of a data proxy, with by whom.
pub fn json(report: &Explanation, post: &ProcessSpec) -> Vec<Value> {
    let of_call = |source: &str, service: &str, call: &GrantedCall| {
        let [reads, writes] = split(&call.tables);
        json!({
            "source": source, "service": service, "name": call.name, "transaction": call.is_transaction,
            "changes": call.writes, "reads": reads, "writes": writes,
        })
    };
    let site = post.site(&report.config);
    match (post.role, site, post.service(&report.config), post.data_source(&report.config)) {
        (Role::Service, _, Some(service), _) => {
            let sources = sources(report, post);
            let calls = sources.iter().flat_map(|(source, _)| {
                report.granted.of_service(source, &service.name).map(move |call| (source, call))
            });
            calls.map(|(source, call)| of_call(source, &service.name, call)).collect()
        }
        (Role::DataProxy, Some(site), _, Some(data)) => {
            let source = data_name(site, data);
            let callers = callers(report, post);
            let calls =
                callers.iter().flat_map(|(service, calls)| calls.iter().map(move |call| (service, call)));
            calls.map(|(service, call)| of_call(&source, service, call)).collect()
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::granted::tests::shop;
    use super::*;

    fn report() -> Explanation {
        let (config, granted) = shop("postgresql");
        Explanation::new("shop.toml".into(), config, granted, Err("no server is running".into()))
    }

    fn post(report: &Explanation, name: &str) -> ProcessSpec {
        report.posts.iter().find(|post| post.name == name).unwrap().clone()
    }

    #[test]
    fn a_service_has_a_line_for_each_call() {
        let report = report();
        let shop = text(&report, &post(&report, "a/shop"));
        let expected = "\n\n\
            CALLS     OF       DOES                               READS             WRITES\n\
            article   catalog  reads                              articles, makers  -\n\
            order_it  catalog  may change rows                    articles          orders\n\
            buy       catalog  may change rows, in a transaction  -                 articles, orders";
        assert_eq!(shop.lines().map(str::trim_end).collect::<Vec<_>>().join("\n"), expected);
        assert!(!text(&report, &post(&report, "a/search")).contains("order"));
        assert_eq!(text(&report, &post(&report, "a")), "");
    }

    #[test]
    fn a_data_proxy_has_a_line_for_each_service() {
        let report = report();
        let proxy = text(&report, &post(&report, "a/catalog:data"));
        let expected = "\n\n\
            IS CALLED BY  CALLS  CHANGING  READS             WRITES\n\
            search            1         0  articles, makers  -\n\
            shop              3         2  makers            articles, orders";
        assert_eq!(proxy.lines().map(str::trim_end).collect::<Vec<_>>().join("\n"), expected);
    }

    #[test]
    fn programs_are_told_the_same() {
        let report = report();
        let buy = json!({
            "source": "a/catalog", "service": "shop", "name": "buy", "transaction": true, "changes": true,
            "reads": [], "writes": ["articles", "orders"],
        });
        assert_eq!(json(&report, &post(&report, "a/shop"))[2], buy);
        assert_eq!(json(&report, &post(&report, "a/catalog:data"))[3], buy);
        assert_eq!(json(&report, &post(&report, "gate")), [] as [Value; 0]);
    }
}
