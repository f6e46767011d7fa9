//! The processes of the cluster: each announces itself, and reads the others.

use tokio_postgres::types::Type;
use toolgate_store::cluster::{ClusterMembers, ClusterStatus, Replica};

use crate::connection::Connection;
use crate::database::{Database, DatabaseError};

/// A replica without an announcement for this time counts as dead, by the clock of the database.
const DEAD_AFTER_SECONDS: i32 = 3;

/// This replica, with hashes of its configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaIdentity {
    /// Name, unique in the cluster.
    pub name: String,
    /// Differs at each start.
    pub run: String,
    /// Version of Toolgate.
    pub version: String,
    /// Hash of the configuration in use, without the shared parts.
    pub config: String,
    /// Version of the policy in use.
    pub policy: String,
    /// Revision of the registry in use.
    pub registry: String,
}

impl ReplicaIdentity {
    /// Announces this replica. Returns true if it was asked to drain.
    pub(crate) async fn announce(&self, connection: &Connection) -> Result<bool, DatabaseError> {
        let sql = "INSERT INTO toolgate.replicas AS r (name, run, version, config, policy, registry)
            VALUES ($1, $2, $3, $4, $5, $6)
            ON CONFLICT (name) DO UPDATE SET run = excluded.run, version = excluded.version,
                config = excluded.config, policy = excluded.policy, registry = excluded.registry, seen = now(),
                started = CASE WHEN r.run = excluded.run THEN r.started ELSE now() END,
                drain = r.run = excluded.run AND r.drain
            WHERE r.run = excluded.run OR r.seen < now() - make_interval(secs => $7)
            RETURNING r.drain";
        let limit = f64::from(DEAD_AFTER_SECONDS);
        let rows = connection
            .query(
                sql,
                &[
                    (&self.name, Type::TEXT),
                    (&self.run, Type::TEXT),
                    (&self.version, Type::TEXT),
                    (&self.config, Type::TEXT),
                    (&self.policy, Type::TEXT),
                    (&self.registry, Type::TEXT),
                    (&limit, Type::FLOAT8),
                ],
            )
            .await?;
        let row = rows.first().ok_or_else(|| DatabaseError::NameTaken(self.name.clone()))?;
        Ok(row.get(0))
    }

    /// Removes this replica.
    pub(crate) async fn remove(&self, connection: &Connection) -> Result<(), DatabaseError> {
        let sql = "DELETE FROM toolgate.replicas WHERE name = $1 AND run = $2 RETURNING pg_notify('toolgate', '')::text";
        connection.query(sql, &[(&self.name, Type::TEXT), (&self.run, Type::TEXT)]).await.map(drop)
    }
}

/// Reads all replicas of the last day, by name.
pub(crate) async fn list(connection: &Connection) -> Result<Vec<Replica>, DatabaseError> {
    let sql = "SELECT name, version, config, policy, registry,
                extract(epoch FROM now() - started)::bigint, (extract(epoch FROM now() - seen) * 1000)::bigint,
                seen >= now() - make_interval(secs => $1), drain
            FROM toolgate.replicas WHERE seen > now() - interval '1 day' ORDER BY name";
    let rows = connection.query(sql, &[(&f64::from(DEAD_AFTER_SECONDS), Type::FLOAT8)]).await?;
    let replica = |row: &tokio_postgres::Row| Replica {
        name: row.get(0),
        version: row.get(1),
        config: row.get(2),
        policy: row.get(3),
        registry: row.get(4),
        up_seconds: row.get(5),
        seen_ms_ago: row.get(6),
        live: row.get(7),
        drain: row.get(8),
    };
    Ok(rows.iter().map(replica).collect())
}

impl ClusterMembers for Database {
    fn status(&self) -> ClusterStatus {
        Self::status(self)
    }
}
