//! Management of callers: list, create and remove.
//!
//! Invariant: a caller cannot grant permissions it lacks, nor remove a caller that has more. Configured callers change
//! only in the configuration. No caller is created with an id that belongs to a token issuer or that a rule names.

use std::sync::Arc;

use http::StatusCode;
use serde_json::{Value as Json, json};
use tokio::time::Instant;
use toolgate_types::caller::PermissionPattern;
use toolgate_types::{Caller, CallerId, ErrorCode, Secret};

use super::{Authenticated, Authenticator, HttpError, require_explicit_permission};
use crate::keys::{KeyError, ManagedCaller};
use crate::routes::SERVERS_EXEC;

impl Authenticator {
    /// Lists all callers, without their credentials.
    pub(crate) fn list_callers(&self) -> Vec<Json> {
        let mut callers: Vec<_> = self.callers.values().collect();
        callers.sort_by(|one, other| one.id.cmp(&other.id));
        let managed_callers = self.managed_callers(Instant::now());
        let configured = callers.into_iter().map(|caller| self.describe_configured(caller));
        configured.chain(managed_callers.all.iter().map(|(caller, _)| describe_managed(caller))).collect()
    }

    pub(crate) fn describe_caller(&self, id: &str) -> Option<Json> {
        let configured = self.callers.values().find(|caller| caller.id.as_str() == id);
        configured.map(|caller| self.describe_configured(caller)).or_else(|| {
            self.managed_callers(Instant::now()).find(id).map(|(caller, _)| describe_managed(caller))
        })
    }

    fn describe_configured(&self, caller: &Arc<Caller>) -> Json {
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

    /// Creates a caller with a key. The key is valid when this returns.
    pub(crate) fn create_caller(
        &self,
        auth: &Authenticated,
        caller: &Caller,
        description: Option<String>,
    ) -> Result<(Json, Secret), HttpError> {
        let managed = self
            .managed
            .as_ref()
            .ok_or_else(|| HttpError::unavailable("callers cannot be created on this gateway"))?;
        self.check_id_available(auth, &caller.id)?;
        for pattern in &caller.permissions {
            check_grant(auth, pattern)?;
        }
        let managed_callers =
            managed.store.add(caller, description, auth.caller.id.as_str(), jiff::Timestamp::now());
        let (managed_callers, key) = managed_callers.map_err(key_error)?;
        managed.reload(&self.callers);
        tracing::info!(id = %managed_callers.id, by = %auth.caller.id, "caller created");
        Ok((describe_managed(&managed_callers), key))
    }

    /// Removes a caller created at runtime. Its key is invalid when this returns.
    pub(crate) fn remove_caller(&self, auth: &Authenticated, id: &str) -> Result<(), HttpError> {
        let unknown = || HttpError::not_found(format!("there is no caller `{id}`"));
        if self.callers.values().any(|caller| caller.id.as_str() == id) {
            return Err(configured_conflict(id));
        }
        let managed = self.managed.as_ref().ok_or_else(unknown)?;
        let managed_callers = self.managed_callers(Instant::now());
        let (entry, _) = managed_callers.find(id).ok_or_else(unknown)?;
        for pattern in &entry.permissions {
            check_grant(auth, pattern)?;
        }
        let removed = managed.store.remove(&entry.id).map_err(key_error)?;
        managed.reload(&self.callers);
        tracing::info!(id, by = %auth.caller.id, "caller removed");
        if removed { Ok(()) } else { Err(unknown()) }
    }

    /// Checks that an id is free, and that this caller may take it.
    fn check_id_available(&self, auth: &Authenticated, id: &CallerId) -> Result<(), HttpError> {
        if [Caller::OWNER, Caller::ANONYMOUS].contains(&id.as_str()) || self.callers.contains_key(id) {
            return Err(configured_conflict(id.as_str()));
        }
        let issued = |prefix: &str| !prefix.is_empty() && id.as_str().starts_with(prefix);
        if self.tokens.issuers().any(|issuer| issued(&issuer.caller_prefix)) {
            let message = format!("`{id}` is reserved for an issuer in `serve.jwt`");
            return Err(
                HttpError::new(StatusCode::CONFLICT, "already_exists", message).hint("choose another id")
            );
        }
        if !auth.via_socket && self.policy_callers.iter().any(|named| named == id.as_str()) {
            let message = format!("a policy rule names `{id}` and may grant it more than you have");
            let error = HttpError::new(StatusCode::FORBIDDEN, ErrorCode::Unauthorized.label(), message);
            return Err(
                error.hint("choose another id, or run `toolgate callers add` on the machine of the gateway")
            );
        }
        Ok(())
    }
}

/// Checks that a caller holds the permissions it grants or removes. The socket user can edit the file anyway.
fn check_grant(auth: &Authenticated, pattern: &PermissionPattern) -> Result<(), HttpError> {
    if auth.via_socket {
        return Ok(());
    }
    if !auth.caller.can_grant(pattern) {
        let message = format!("the caller does not have `{pattern}`");
        let error = HttpError::new(StatusCode::FORBIDDEN, ErrorCode::Unauthorized.label(), message);
        return Err(error.hint("a caller can grant or remove only permissions it has"));
    }
    // Wildcards do not include this permission.
    if pattern.to_string() == SERVERS_EXEC {
        require_explicit_permission(&auth.caller, SERVERS_EXEC)
    } else {
        Ok(())
    }
}

fn configured_conflict(id: &str) -> HttpError {
    let message = format!("caller `{id}` is defined in the configuration");
    HttpError::new(StatusCode::CONFLICT, "already_exists", message).hint("change it in toolgate.yaml")
}

fn key_error(error: KeyError) -> HttpError {
    match error {
        KeyError::Exists(_) => {
            HttpError::new(StatusCode::CONFLICT, "already_exists", error.to_string()).hint(error.hint())
        }
        KeyError::TooMany => HttpError::invalid(error.to_string()).hint(error.hint()),
        error => {
            tracing::error!("cannot change a caller: {}", error.with_cause());
            let code = ErrorCode::StorageUnavailable.label();
            HttpError::new(StatusCode::SERVICE_UNAVAILABLE, code, "the key file cannot be written")
        }
    }
}

fn describe_managed(caller: &ManagedCaller) -> Json {
    let ManagedCaller { id, description, permissions, created, by, .. } = caller;
    let mut document = json!({ "id": id, "permissions": permissions, "source": "made", "knownBy": ["key"],
        "created": created, "by": by });
    if let Some(description) = description {
        document["description"] = json!(description);
    }
    document
}
