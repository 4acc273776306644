//! What falls of a database with those who have to do with it: services that call it, its data proxy, its connector.
//!
//! Runs in: the `bulkhead` command; pure. Sees: the checked configuration, what statements are granted. Never: grants a
//! right whose channel is not in the table; its callers look.

use config::{DataSource, Database, Engine, Service, Site};

use super::assets::{data_name, service_name, table_name, token_name};
use super::granted::{GrantedCalls, tables};
use super::inventory::Reaches;
use super::model::{AssetKind, Loss};

/// With a service: what the statements reach that are granted to it, and its token.
pub fn with_service<'a>(
    mut found: Reaches<'a>,
    granted: &GrantedCalls,
    site: &Site,
    service: &Service,
    data: &DataSource,
) -> Reaches<'a> {
    let source = data_name(site, data);
    let calls = granted.of_service(&source, &service.name);
    found = found.one(AssetKind::Data, &source, Loss::Part, &why(granted, &source, service));
    for table in tables(calls.clone()) {
        let does = if table.writes { "change" } else { "read" };
        let of_table = |known: &statements::NamedTable| known.name.eq_ignore_ascii_case(&table.name);
        let names = calls.clone().filter(|call| call.tables.iter().any(of_table)).map(|call| &*call.name);
        let how = format!("it calls statements that {does} it: {}", names.collect::<Vec<_>>().join(", "));
        found = found.one(AssetKind::Table, &table_name(&source, &table), Loss::Part, &how);
    }
    let token = token_name(&source, &service_name(site, service));
    found.one(
        AssetKind::Token,
        &token,
        Loss::Whole,
        "it shows it to the data proxy, on the one channel that it is for",
    )
}

fn why(granted: &GrantedCalls, source: &str, service: &Service) -> String {
    let own = "with values of its choice";
    if granted.why_not(source).is_some() {
        return format!("`data`: it calls the statements that are granted to it, {own}");
    }
    let calls = granted.of_service(source, &service.name);
    let (all, writing) = (calls.clone().count(), calls.filter(|call| call.writes).count());
    match (all, writing) {
        (0, _) => "`data`: it has a channel, and no statement is granted to it".into(),
        (_, 0) => format!("`data`: it calls {} that are granted to it and only read, {own}", statements(all)),
        _ => format!(
            "`data`: it calls {} that are granted to it, of which {writing} may change rows, {own}",
            statements(all)
        ),
    }
}

fn statements(count: usize) -> String {
    if count == 1 { "the one statement".into() } else { format!("the {count} statements") }
}

/// With the site's worker: what is granted to doors, as it says to them which machine has come.
pub fn with_site<'a>(mut found: Reaches<'a>, granted: &GrantedCalls, site: &Site) -> Reaches<'a> {
    let how = "it says to a door that a machine has come, and calls what is granted to that";
    for service in site.services.iter().filter(|service| service.remote) {
        for data in site.data.iter().filter(|data| service.data.contains(&data.name)) {
            let source = data_name(site, data);
            found = found.one(AssetKind::Data, &source, Loss::Part, how);
            for table in tables(granted.of_service(&source, &service.name)) {
                found = found.one(AssetKind::Table, &table_name(&source, &table), Loss::Part, how);
            }
        }
    }
    found
}

/// With its data proxy: all of it; of another machine's, what is granted there.
pub fn with_proxy<'a>(
    mut found: Reaches<'a>,
    granted: &GrantedCalls,
    site: &Site,
    data: &DataSource,
) -> Reaches<'a> {
    let source = data_name(site, data);
    let (loss, how) = match &data.database {
        Database::Sqlite { .. } | Database::Server(_) => {
            (Loss::Whole, "it holds the database, and answers for it")
        }
        Database::Remote(_) => (
            Loss::Part,
            "it calls what the other machine grants to any of its doors, and answers for it to services here",
        ),
    };
    found = with_tables(found.one(AssetKind::Data, &source, loss, how), granted, &source, loss, how)
        .one(AssetKind::Password, &source, Loss::Whole, "it logs in with it")
        .one(AssetKind::ClientKey, &source, Loss::Whole, "it shows the certificate of it");
    for service in site.services_with(&data.name) {
        let token = token_name(&source, &service_name(site, service));
        found = found.one(AssetKind::Token, &token, Loss::Whole, "it is shown it, and knows it");
    }
    found
}

/// All tables of a source.
fn with_tables<'a>(
    mut found: Reaches<'a>,
    granted: &GrantedCalls,
    source: &str,
    loss: Loss,
    how: &str,
) -> Reaches<'a> {
    for table in granted.tables(source) {
        found = found.one(AssetKind::Table, &table_name(source, &table), loss, how);
    }
    found
}

/// With the connector of its server: all that is said on the connections, unless that is under TLS, which ends in the
/// data proxy.
pub fn with_connector<'a>(
    found: Reaches<'a>,
    granted: &GrantedCalls,
    site: &Site,
    data: &DataSource,
) -> Reaches<'a> {
    if data.secured().is_some() {
        return found;
    }
    let source = data_name(site, data);
    let how = "it makes the connections on which its data proxy logs in, and may go on with them itself";
    let (loss, password) = match data.server().map(|server| server.engine) {
        Some(Engine::Mysql | Engine::Postgresql) | None => (
            Loss::Part,
            "it may be the server, and see proofs made of it, by which one that is weak is guessed",
        ),
        Some(Engine::Redis) => (Loss::Whole, "it may be the server, to which the password is sent as it is"),
    };
    with_tables(found.one(AssetKind::Data, &source, Loss::Whole, how), granted, &source, Loss::Whole, how)
        .one(AssetKind::Password, &source, loss, password)
}
