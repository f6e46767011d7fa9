//! Callers as they are managed: who there is, who may make another, and who may take one away.
//!
//! Invariant: nobody gives more than it has, or takes away who has more; who the configuration names is changed there
//! and nowhere else; and no id is made that is somebody else's by the word of an issuer or a rule.

use std::sync::Arc;

use hyper::StatusCode;
use serde_json::{Value as Json, json};
use tokio::time::Instant;
use toolgate_types::caller::PermissionPattern;
use toolgate_types::{Caller, CallerId, ErrorCode, Secret};

use super::{Gate, Refusal, demand_by_name};
use crate::keys::{KeptCaller, KeyError};
use crate::rest::{Guest, SERVERS_EXEC};

impl Gate {
    /// Everybody there is, without what they are known by.
    pub(crate) fn everybody(&self) -> Vec<Json> {
        let mut callers: Vec<_> = self.callers.values().collect();
        callers.sort_by(|one, other| one.id.cmp(&other.id));
        let made = self.made(Instant::now());
        let named = callers.into_iter().map(|caller| self.named(caller));
        named.chain(made.all.iter().map(|(kept, _)| shown(kept))).collect()
    }

    /// One of them.
    pub(crate) fn somebody(&self, id: &str) -> Option<Json> {
        let named = self.callers.values().find(|caller| caller.id.as_str() == id);
        named
            .map(|caller| self.named(caller))
            .or_else(|| self.made(Instant::now()).find(id).map(|(kept, _)| shown(kept)))
    }

    fn named(&self, caller: &Arc<Caller>) -> Json {
        let has = |found: bool, what: &'static str| found.then_some(what);
        let known_by = [
            has(self.keys.iter().any(|(_, of)| of.id == caller.id), "key"),
            has(self.certificates.iter().any(|(_, of)| of.id == caller.id), "certificate"),
        ];
        let known_by: Vec<_> = known_by.into_iter().flatten().collect();
        let mut document = json!({ "id": caller.id, "permissions": caller.permissions,
            "source": "configuration", "knownBy": known_by });
        if let Some(description) = self.descriptions.get(&caller.id) {
            document["description"] = json!(description);
        }
        document
    }

    /// Makes a caller with a key of its own. It counts when this returns.
    pub(crate) fn make(
        &self,
        guest: &Guest,
        caller: &Caller,
        description: Option<String>,
    ) -> Result<(Json, Secret), Refusal> {
        let kept = self.kept.as_ref().ok_or_else(|| Refusal::unavailable("no callers are kept here"))?;
        self.free(guest, &caller.id)?;
        for pattern in &caller.permissions {
            may_give(guest, pattern)?;
        }
        let made = kept.store.add(caller, description, guest.caller.id.as_str(), jiff::Timestamp::now());
        let (made, key) = made.map_err(refused)?;
        kept.renew(&self.callers);
        tracing::info!(id = %made.id, by = %guest.caller.id, "a caller was made");
        Ok((shown(&made), key))
    }

    /// Takes a caller away that was made. Its key counts no more when this returns.
    pub(crate) fn unmake(&self, guest: &Guest, id: &str) -> Result<(), Refusal> {
        let unknown = || Refusal::not_found(format!("there is no caller `{id}`"));
        if self.callers.values().any(|caller| caller.id.as_str() == id) {
            return Err(configured(id));
        }
        let kept = self.kept.as_ref().ok_or_else(unknown)?;
        let made = self.made(Instant::now());
        let (entry, _) = made.find(id).ok_or_else(unknown)?;
        for pattern in &entry.permissions {
            may_give(guest, pattern)?;
        }
        let removed = kept.store.remove(&entry.id).map_err(refused)?;
        kept.renew(&self.callers);
        tracing::info!(id, by = %guest.caller.id, "a caller was taken away");
        if removed { Ok(()) } else { Err(unknown()) }
    }

    /// Whether an id is nobody's, and is to be had by who asks.
    fn free(&self, guest: &Guest, id: &CallerId) -> Result<(), Refusal> {
        if [Caller::OWNER, Caller::ANONYMOUS].contains(&id.as_str()) || self.callers.contains_key(id) {
            return Err(configured(id.as_str()));
        }
        let issued = |prefix: &str| !prefix.is_empty() && id.as_str().starts_with(prefix);
        if self.tokens.issuers().any(|issuer| issued(&issuer.caller_prefix)) {
            let message = format!("`{id}` is who an issuer in `serve.jwt` says it is");
            return Err(Refusal::new(StatusCode::CONFLICT, "already_exists", message).hint("take another id"));
        }
        if !guest.at_machine && self.ruled.iter().any(|named| named == id.as_str()) {
            let message = format!("a rule names `{id}`, and may give it more than you have");
            let refusal = Refusal::new(StatusCode::FORBIDDEN, ErrorCode::Unauthorized.label(), message);
            return Err(
                refusal.hint("take another id, or make it with `toolgate callers add` at the machine")
            );
        }
        Ok(())
    }
}

/// Whether somebody has all that it gives, or takes away. Who is at the machine can write the file.
fn may_give(guest: &Guest, pattern: &PermissionPattern) -> Result<(), Refusal> {
    if guest.at_machine {
        return Ok(());
    }
    if !guest.caller.has_all_of(pattern) {
        let message = format!("the caller does not have `{pattern}` itself");
        let refusal = Refusal::new(StatusCode::FORBIDDEN, ErrorCode::Unauthorized.label(), message);
        return Err(refusal.hint("nobody gives, or takes away, more than it has"));
    }
    // What no star gives.
    if pattern.to_string() == SERVERS_EXEC { demand_by_name(&guest.caller, SERVERS_EXEC) } else { Ok(()) }
}

fn configured(id: &str) -> Refusal {
    let message = format!("caller `{id}` is what the configuration says");
    Refusal::new(StatusCode::CONFLICT, "already_exists", message).hint("change it in toolgate.yaml")
}

fn refused(error: KeyError) -> Refusal {
    match error {
        KeyError::Exists(_) => {
            Refusal::new(StatusCode::CONFLICT, "already_exists", error.to_string()).hint(error.hint())
        }
        KeyError::TooMany => Refusal::invalid(error.to_string()).hint(error.hint()),
        error => {
            tracing::error!("callers cannot be kept: {error}");
            let code = ErrorCode::StorageUnavailable.label();
            Refusal::new(StatusCode::SERVICE_UNAVAILABLE, code, "callers cannot be kept")
        }
    }
}

fn shown(kept: &KeptCaller) -> Json {
    let KeptCaller { id, description, permissions, created, by, .. } = kept;
    let mut document = json!({ "id": id, "permissions": permissions, "source": "made", "knownBy": ["key"],
        "created": created, "by": by });
    if let Some(description) = description {
        document["description"] = json!(description);
    }
    document
}
