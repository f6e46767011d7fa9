//! Limits that hold for all replicas of a cluster together.
//!
//! A small allowance is taken from the database call by call, a large one in parts that this replica uses up within a
//! moment. While the database is unavailable, a replica admits its share of the limit. Invariant: as long as it is
//! available, no window has more admissions at all replicas together than the limit.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use toolgate_store::cluster::{TokenLease, TokenLeases, TokenRequest};
use toolgate_types::tool::RateLimit;

use crate::window_limit::WindowLimit;

/// Keys with parts, and with admissions that are known without the database.
const MAX_KEYS: usize = 10_000;
/// A part is this fraction of the limit, so that a replica that ends with an unused one wastes little.
const PARTS: u32 = 50;
/// Most calls in a part.
const MAX_PART: u32 = 200;
/// Lifetime of a part.
const HOLD: Duration = Duration::from_secs(1);

/// A limit with one counter per key for all replicas.
#[derive(Debug)]
pub struct SharedLimit {
    leases: Arc<dyn TokenLeases>,
    /// Tells the keys of this limit from those of others.
    name: String,
    limit: RateLimit,
    parts: Mutex<HashMap<String, Part>>,
    /// Admissions by this replica. They decide while the database is unavailable.
    own: WindowLimit<String>,
}

/// Admissions that were taken and are not used yet.
#[derive(Debug, Clone, Copy)]
struct Part {
    left: u32,
    until: Instant,
}

impl SharedLimit {
    /// Creates a limit. Its name is that of the thing it limits.
    pub fn new(leases: Arc<dyn TokenLeases>, name: String, limit: RateLimit) -> Self {
        let own = WindowLimit::new(limit, MAX_KEYS);
        Self { leases, name, limit, parts: Mutex::default(), own }
    }

    pub fn limit(&self) -> RateLimit {
        self.limit
    }

    /// Admits one call.
    ///
    /// # Errors
    /// The time to wait.
    pub async fn take(&self, key: &str, now: Instant) -> Result<(), Duration> {
        if self.take_from_part(key, now) {
            self.count_own(key, now);
            return Ok(());
        }
        let most = self.limit.max_calls.get();
        let want = (most / PARTS).clamp(1, MAX_PART);
        let hold = if want > 1 { HOLD } else { Duration::ZERO };
        let shared_key = format!("{}/{key}", self.name);
        let request = TokenRequest { key: &shared_key, want, limit: self.limit, hold };
        match self.leases.take(request).await {
            Ok(TokenLease::Granted(granted)) => {
                if granted > 1 {
                    self.keep_part(key, Part { left: granted - 1, until: now + hold }, now);
                }
                self.count_own(key, now);
                Ok(())
            }
            Ok(TokenLease::Wait(wait)) => Err(wait),
            Err(_) => self.own.take_within(key.to_owned(), 1, self.leases.share(most), now),
        }
    }

    fn take_from_part(&self, key: &str, now: Instant) -> bool {
        let mut parts = self.parts.lock();
        let Some(part) = parts.get_mut(key).filter(|part| part.left > 0 && now < part.until) else {
            return false;
        };
        part.left -= 1;
        true
    }

    fn keep_part(&self, key: &str, part: Part, now: Instant) {
        let mut parts = self.parts.lock();
        if parts.len() >= MAX_KEYS {
            parts.retain(|_, part| part.left > 0 && now < part.until);
        }
        if parts.len() < MAX_KEYS {
            parts.insert(key.to_owned(), part);
        }
    }

    /// Counts an admission that the database granted.
    fn count_own(&self, key: &str, now: Instant) {
        let _ = self.own.take_within(key.to_owned(), 1, u32::MAX, now);
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::sync::atomic::{AtomicU32, Ordering};

    use futures_util::FutureExt as _;
    use futures_util::future::BoxFuture;
    use toolgate_store::store::StoreUnavailable;
    use toolgate_types::HumanDuration;

    use super::*;

    /// A bucket that is never filled again; `None` if it is unavailable.
    #[derive(Debug)]
    struct Bucket {
        left: Mutex<Option<u32>>,
        requests: AtomicU32,
        share: u32,
    }

    impl TokenLeases for Bucket {
        fn take<'a>(
            &'a self,
            request: TokenRequest<'a>,
        ) -> BoxFuture<'a, Result<TokenLease, StoreUnavailable>> {
            self.requests.fetch_add(1, Ordering::Relaxed);
            let mut left = self.left.lock();
            let taken = match left.as_mut() {
                None => Err(std::io::Error::other("away").into()),
                Some(0) => Ok(TokenLease::Wait(Duration::from_secs(9))),
                Some(left) => {
                    let granted = request.want.min(*left);
                    *left -= granted;
                    Ok(TokenLease::Granted(granted))
                }
            };
            async { taken }.boxed()
        }

        fn share(&self, _limit: u32) -> u32 {
            self.share
        }
    }

    fn limit(bucket: &Arc<Bucket>, most: u32) -> SharedLimit {
        let max_calls = NonZeroU32::new(most).unwrap();
        let limit = RateLimit { max_calls, window: HumanDuration::from_secs(60) };
        SharedLimit::new(Arc::clone(bucket) as _, "tool".to_owned(), limit)
    }

    fn bucket(left: Option<u32>, share: u32) -> Arc<Bucket> {
        Arc::new(Bucket { left: Mutex::new(left), requests: AtomicU32::new(0), share })
    }

    async fn admitted(limit: &SharedLimit, calls: usize, now: Instant) -> usize {
        let mut admitted = 0;
        for _ in 0..calls {
            admitted += usize::from(limit.take("ann", now).await.is_ok());
        }
        admitted
    }

    #[tokio::test(start_paused = true)]
    async fn small_limits_are_taken_one_by_one_and_large_ones_in_parts() {
        let now = Instant::now();
        let small = bucket(Some(5), 0);
        assert_eq!(admitted(&limit(&small, 5), 9, now).await, 5);
        assert_eq!(small.requests.load(Ordering::Relaxed), 9);
        let large = bucket(Some(10_000), 0);
        assert_eq!(admitted(&limit(&large, 10_000), 1_000, now).await, 1_000);
        assert_eq!(large.requests.load(Ordering::Relaxed), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn an_old_part_is_not_used() {
        let (now, bucket) = (Instant::now(), bucket(Some(200), 0));
        let limit = limit(&bucket, 10_000);
        assert!(limit.take("ann", now).await.is_ok());
        assert_eq!(limit.take("ann", now + HOLD).await, Err(Duration::from_secs(9)), "the rest has expired");
    }

    #[tokio::test(start_paused = true)]
    async fn without_the_database_the_share_counts() {
        let (now, bucket) = (Instant::now(), bucket(Some(1), 2));
        let limit = limit(&bucket, 5);
        assert_eq!(admitted(&limit, 1, now).await, 1);
        *bucket.left.lock() = None;
        assert_eq!(admitted(&limit, 5, now).await, 1, "one of its two was used before");
        assert_eq!(admitted(&limit, 5, now + Duration::from_secs(60)).await, 2);
    }
}
