//! The search path of a session that was there before the role got another one: a migration may have moved tables.
//!
//! Runs in: a data proxy. Sees: what the server has set for the role. Never: changes the session of a pooler, which
//! others have next.

use tokio_postgres::Client;

/// Sets the search path of a session as a login would now: the role's in this database, the role's, the database's. A
/// row, if it was another.
const SEARCH_PATH: &str = "SELECT set_config('search_path', path, false) FROM (
    SELECT substr(setting, length('search_path=') + 1) AS path
    FROM pg_catalog.pg_db_role_setting, pg_catalog.unnest(setconfig) AS setting
    WHERE setrole IN (0, (SELECT oid FROM pg_catalog.pg_roles WHERE rolname = session_user))
        AND setdatabase IN (0, (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database()))
        AND setting LIKE 'search\\_path=%'
    ORDER BY setrole <> 0 DESC, setdatabase <> 0 DESC LIMIT 1
) AS wanted WHERE path <> current_setting('search_path')";

/// Gives a session the search path that its role has by now: it has that of its login. Whether that is another one.
pub(super) async fn take(client: &Client) -> bool {
    client.query_opt(SEARCH_PATH, &[]).await.is_ok_and(|row| row.is_some())
}
