//! The tables, and their migrations: in order, forward only, under a lock.
//!
//! Replicas are replaced one by one, so each migration is compatible with the version before it.

use tokio_postgres::Client;

use crate::connection::describe;
use crate::database::DatabaseError;

/// Lock of the migrations. It belongs to the transaction, so that it works behind a pooler.
const LOCK: i64 = 0x0074_6f6f_6c67_6174;

/// Each with the oldest version of the schema that replicas beside it may have.
const MIGRATIONS: [(&str, i32); 1] = [(include_str!("schema/1.sql"), 1)];

/// Creates missing tables. The connection has no other user meanwhile.
pub(crate) async fn migrate(client: &Client) -> Result<(), DatabaseError> {
    let failed = |error: tokio_postgres::Error| match error.code() {
        None => DatabaseError::Unavailable(describe(&error)),
        Some(_) => DatabaseError::Schema(describe(&error)),
    };
    client.batch_execute("BEGIN").await.map_err(failed)?;
    let migrated = apply_missing(client).await;
    let end = if matches!(migrated, Ok(None)) { "COMMIT" } else { "ROLLBACK" };
    let ended = client.batch_execute(end).await;
    match migrated.map_err(failed)? {
        Some(newer) => Err(newer),
        None => ended.map_err(failed),
    }
}

/// Applies missing migrations. Returns an error if the tables are too new for this version.
async fn apply_missing(client: &Client) -> Result<Option<DatabaseError>, tokio_postgres::Error> {
    let (version, oldest) = lock_version(client).await?;
    let own = i32::try_from(MIGRATIONS.len()).expect("there are few migrations");
    if oldest > own {
        return Ok(Some(DatabaseError::Newer { version, own }));
    }
    let done = usize::try_from(version).unwrap_or_default();
    for (number, (sql, oldest)) in (1..).zip(MIGRATIONS).skip(done) {
        client.batch_execute(sql).await?;
        let set = format!("UPDATE toolgate.schema_version SET version = {number}, oldest = {oldest}");
        client.batch_execute(&set).await?;
    }
    Ok(None)
}

/// Locks the migrations until the end of the transaction. Returns the version of the tables, and the oldest version of
/// replicas that can use them.
async fn lock_version(client: &Client) -> Result<(i32, i32), tokio_postgres::Error> {
    client.batch_execute(&format!("SELECT pg_advisory_xact_lock({LOCK})")).await?;
    // Checked first: creating the schema needs a right that a prepared database need not grant.
    let is_new = client.query_typed("SELECT to_regclass('toolgate.schema_version') IS NULL", &[]).await?;
    if is_new.first().is_some_and(|row| row.get(0)) {
        client
            .batch_execute(
                "CREATE SCHEMA IF NOT EXISTS toolgate;
                 CREATE TABLE toolgate.schema_version (version int NOT NULL, oldest int NOT NULL);
                 INSERT INTO toolgate.schema_version VALUES (0, 0)",
            )
            .await?;
    }
    let row = client.query_typed("SELECT version, oldest FROM toolgate.schema_version", &[]).await?;
    Ok(row.first().map_or((0, 0), |row| (row.get(0), row.get(1))))
}
