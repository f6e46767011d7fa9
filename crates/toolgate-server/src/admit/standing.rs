//! How long somebody stays who was let in: for who keeps a stream open beyond the request it began with.
//!
//! Invariant: nobody is answered by what was taken back, or has expired, however long ago the conversation began.

use std::future::pending;

use tokio::time::{Instant, sleep_until};
use toolgate_types::KeyHash;

use super::Gate;

/// How long somebody stays.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Standing {
    /// As long as the door is open: the configuration does not change meanwhile.
    Lasting,
    /// Until its key is taken back.
    Made(KeyHash),
    /// Until its token has expired.
    Until(Instant),
}

impl Gate {
    /// Resolves when somebody is not let in any more.
    pub(crate) async fn over(&self, standing: Standing) {
        match (standing, &self.kept) {
            (Standing::Until(end), _) => sleep_until(end).await,
            (Standing::Made(key), Some(kept)) => kept.gone(&key).await,
            (Standing::Lasting | Standing::Made(_), _) => pending().await,
        }
    }
}
