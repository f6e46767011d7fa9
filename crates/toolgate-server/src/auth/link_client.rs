//! Messages that are no HTTP request of their own: on a WebSocket or an SSE stream, or in a JSON-RPC batch.
//!
//! Invariant: each counts like a request, against the limits of its caller and of its client address, and is answered
//! with the rights of its caller at that moment.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::value::RawValue;
use tokio::time::Instant;
use toolgate_types::CallerId;

use super::{AuthState, Authenticator, CredentialLifetime, HttpError, rate_limited};
use crate::Gateway;
use crate::listener::client_key;

/// The client at the other end of a link: its quota and its credential.
pub(crate) struct LinkClient {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) caller: CallerId,
    /// `None` for the Unix socket.
    pub(crate) address: Option<IpAddr>,
    /// True if the first message of a batch was counted as a request already.
    pub(crate) counts_batches_only: bool,
    /// The credential that opened the link.
    pub(crate) lifetime: CredentialLifetime,
}

impl LinkClient {
    /// Takes one message from the quota. Returns the time to wait if it is used up.
    pub(crate) fn take(&self, is_in_batch: bool) -> Result<(), Duration> {
        if self.counts_batches_only && !is_in_batch {
            return Ok(());
        }
        self.gateway.authenticator.take_messages(&self.caller, self.address, 1)
    }

    /// Returns the state in use; `None` if the credential was revoked, or its caller has other rights.
    pub(crate) fn current_state(&self) -> Option<Arc<AuthState>> {
        self.gateway.authenticator.current_state(&self.lifetime)
    }
}

impl Authenticator {
    /// Counts the members of a batch, except for the first: it is counted as the request itself.
    ///
    /// # Errors
    /// 429 if they are too many. Nothing of the batch may be executed then.
    pub(crate) fn count_batch(
        &self,
        caller: &CallerId,
        address: Option<IpAddr>,
        body: &Bytes,
    ) -> Result<(), HttpError> {
        let rules = self.rules();
        let is_limited = rules.address_quota.is_some() || rules.caller_quota.is_some();
        let is_batch = || body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[');
        if !is_limited || !is_batch() {
            return Ok(());
        }
        // A batch that cannot be read is rejected later.
        let Ok(members) = serde_json::from_slice::<Vec<&RawValue>>(body) else { return Ok(()) };
        let more = u32::try_from(members.len().saturating_sub(1)).unwrap_or(u32::MAX);
        if more == 0 {
            return Ok(());
        }
        self.take_messages(caller, address, more)
            .map_err(|wait| rate_limited("too many messages in this batch for the rate limit", wait))
    }

    fn take_messages(&self, caller: &CallerId, address: Option<IpAddr>, count: u32) -> Result<(), Duration> {
        let now = Instant::now();
        let rules = self.rules();
        if let Some((quota, address)) = rules.address_quota.as_ref().zip(address) {
            quota.take(client_key(address), count, now)?;
        }
        match &rules.caller_quota {
            Some(quota) => quota.take(caller.clone(), count, now),
            None => Ok(()),
        }
    }
}
