//! Sessions that untrusted content has reached.

use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio_postgres::types::Type;
use toolgate_store::cluster::TaintStore;
use toolgate_store::store::StoreUnavailable;

use crate::database::Database;
use crate::limits::unavailable;

/// Stands for a caller without a session.
const NO_SESSION: &str = "";

impl TaintStore for Database {
    fn insert<'a>(
        &'a self,
        caller: &'a str,
        session: Option<&'a str>,
        lasting: Duration,
    ) -> BoxFuture<'a, Result<(), StoreUnavailable>> {
        Box::pin(async move {
            if self.is_away() {
                return Err(unavailable(self.inner.calls.unavailable()));
            }
            let sql = "INSERT INTO toolgate.taints AS t (caller, session, until)
                VALUES ($1, $2, now() + make_interval(secs => $3))
                ON CONFLICT (caller, session) DO UPDATE SET until = greatest(t.until, excluded.until)";
            let (session, lasting) = (session.unwrap_or(NO_SESSION), lasting.as_secs_f64());
            let parameters = &[
                (&caller as &(dyn tokio_postgres::types::ToSql + Sync), Type::TEXT),
                (&session, Type::TEXT),
                (&lasting, Type::FLOAT8),
            ];
            self.inner.calls.query(sql, parameters).await.map(drop).map_err(unavailable)
        })
    }

    fn contains<'a>(
        &'a self,
        caller: &'a str,
        session: Option<&'a str>,
    ) -> BoxFuture<'a, Result<bool, StoreUnavailable>> {
        Box::pin(async move {
            if self.is_away() {
                return Err(unavailable(self.inner.calls.unavailable()));
            }
            let sql = "SELECT EXISTS (SELECT FROM toolgate.taints
                WHERE caller = $1 AND session IN ($2, '*') AND until > now())";
            let session = session.unwrap_or(NO_SESSION);
            let parameters = &[
                (&caller as &(dyn tokio_postgres::types::ToSql + Sync), Type::TEXT),
                (&session, Type::TEXT),
            ];
            let rows = self.inner.calls.query(sql, parameters).await.map_err(unavailable)?;
            Ok(rows.first().is_none_or(|row| row.get(0)))
        })
    }
}
