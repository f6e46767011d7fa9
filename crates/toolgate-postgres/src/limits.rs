//! Admissions of limits, in a sliding window by the clock of the database.

use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio_postgres::types::Type;
use toolgate_store::cluster::{TokenLease, TokenLeases, TokenRequest};
use toolgate_store::store::StoreUnavailable;

use crate::database::{Database, DatabaseError};

impl TokenLeases for Database {
    fn take<'a>(&'a self, request: TokenRequest<'a>) -> BoxFuture<'a, Result<TokenLease, StoreUnavailable>> {
        Box::pin(async move {
            let TokenRequest { key, want, limit, hold } = request;
            // Not every call of an outage waits for it.
            if self.is_away() {
                return Err(unavailable(self.inner.calls.unavailable()));
            }
            let number = |value: u32| i32::try_from(value).unwrap_or(i32::MAX);
            let (want, most) = (number(want), number(limit.max_calls.get()));
            let (window, hold) = (limit.window.get().as_secs_f64(), hold.as_secs_f64());
            let sql = "SELECT granted, wait_ms FROM toolgate.take_tokens($1, $2, $3, \
                make_interval(secs => $4), make_interval(secs => $5))";
            let parameters = &[
                (&key as &(dyn tokio_postgres::types::ToSql + Sync), Type::TEXT),
                (&want, Type::INT4),
                (&most, Type::INT4),
                (&window, Type::FLOAT8),
                (&hold, Type::FLOAT8),
            ];
            let rows = self.inner.calls.query(sql, parameters).await.map_err(unavailable)?;
            let (granted, wait): (i32, i64) =
                rows.first().map(|row| (row.get(0), row.get(1))).unwrap_or_default();
            Ok(match u32::try_from(granted) {
                Ok(granted) if granted > 0 => TokenLease::Granted(granted),
                _ => TokenLease::Wait(Duration::from_millis(u64::try_from(wait).unwrap_or_default())),
            })
        })
    }

    fn share(&self, limit: u32) -> u32 {
        let own = self.inner.identity.lock().name.clone();
        let state = self.inner.state.lock();
        let live: Vec<&str> =
            state.replicas.iter().filter(|one| one.live).map(|one| one.name.as_str()).collect();
        share_of(limit, &own, &live)
    }
}

/// Divides a limit among replicas, and the remainder among the first ones. A replica that does not know the others
/// gets nothing.
fn share_of(limit: u32, own: &str, live: &[&str]) -> u32 {
    let Some(rank) = live.iter().position(|name| *name == own) else { return 0 };
    let count = u32::try_from(live.len()).unwrap_or(u32::MAX);
    let is_among_first = u32::try_from(rank).is_ok_and(|rank| rank < limit % count);
    limit / count + u32::from(is_among_first)
}

pub(crate) fn unavailable(error: DatabaseError) -> StoreUnavailable {
    std::io::Error::other(error).into()
}

#[test]
fn shares_add_up_to_the_limit() {
    let live = ["a", "b", "c"];
    for limit in 1..20 {
        assert_eq!(live.iter().map(|own| share_of(limit, own, &live)).sum::<u32>(), limit);
    }
    assert_eq!(["a", "b", "c"].map(|own| share_of(2, own, &live)), [1, 1, 0]);
    assert_eq!(share_of(5, "new", &live), 0, "it is not known how many there are");
}
