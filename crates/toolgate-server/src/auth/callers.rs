//! Management of callers and their keys: list, create, change, rotate, revoke and remove.
//!
//! Invariant: a caller cannot grant permissions or groups it lacks, nor change a caller that has more. Configured
//! callers change only in the configuration; their stored keys can be changed here. No caller is created with an id
//! that belongs to a token issuer or that a rule names. A key is a second identity: over the network, only the owner, the
//! caller itself and its creators may make one.

use std::collections::HashMap;
use std::sync::Arc;

use http::StatusCode;
use jiff::Timestamp;
use serde_json::{Value as Json, json};
use toolgate_store::callers::{
    CallerChange, CallerStore, ChangeAuthor, KeyError, KeyRecord, KeyRotation, NewCaller, NewKey, RotatedKey,
    StoredCaller,
};
use toolgate_types::caller::PermissionPattern;
use toolgate_types::{Caller, CallerId, ErrorCode, Group, GroupName, Secret};

use super::table::CallerTable;
use super::{AuthRules, Authenticated, Authenticator, HttpError, require_permission};
use crate::routes::EXPLICIT_PERMISSIONS;

impl Authenticator {
    /// Lists all callers, without their credentials.
    pub(crate) fn list_callers(&self) -> Vec<Json> {
        let state = self.state.load();
        let keys = KeySummary::of_all(&state.table);
        let mut callers: Vec<_> = state.rules.callers.values().collect();
        callers.sort_by(|one, other| one.id.cmp(&other.id));
        let configured = callers.into_iter().map(|caller| {
            with_keys(describe_configured(&state.rules, &state.table, caller), keys.get(&caller.id))
        });
        let stored = state
            .table
            .stored
            .iter()
            .map(|(caller, _)| with_keys(describe_stored(caller), keys.get(&caller.id)));
        configured.chain(stored).collect()
    }

    /// All callers, by their ids: those of the configuration, and those created at runtime.
    pub(crate) fn all_callers(&self) -> Vec<Arc<Caller>> {
        let state = self.state.load();
        let stored = state.table.stored.iter().map(|(_, caller)| caller);
        let mut all: Vec<_> = state.rules.callers.values().chain(stored).map(Arc::clone).collect();
        all.sort_by(|one, other| one.id.cmp(&other.id));
        all
    }

    /// The callers created at runtime.
    pub(crate) fn created_callers(&self) -> Vec<Arc<Caller>> {
        self.state.load().table.stored.iter().map(|(_, caller)| Arc::clone(caller)).collect()
    }

    /// All groups of the configuration.
    pub(crate) fn groups(&self) -> Vec<Arc<Group>> {
        self.state.load().rules.groups.clone()
    }

    pub(crate) fn describe_caller(&self, id: &str) -> Option<Json> {
        let state = self.state.load();
        let configured = state.rules.callers.values().find(|caller| caller.id.as_str() == id);
        let (id, described) = match configured {
            Some(caller) => (&caller.id, describe_configured(&state.rules, &state.table, caller)),
            None => state.table.find(id).map(|(caller, _)| (&caller.id, describe_stored(caller)))?,
        };
        let mut keys = KeySummary::default();
        let own = state.table.stored_keys.iter().filter(|key| key.caller == *id);
        own.for_each(|key| keys.add(key, &state.table));
        Some(with_keys(described, Some(&keys)))
    }

    fn store(&self) -> Result<&Arc<dyn CallerStore>, HttpError> {
        let unavailable = || HttpError::unavailable("callers cannot be changed on this gateway");
        self.store.as_ref().ok_or_else(unavailable)
    }

    /// Creates a caller with a key. The key is valid when this returns.
    pub(crate) fn create_caller(
        &self,
        auth: &Authenticated,
        new: NewCaller<'_>,
    ) -> Result<(Json, Secret), HttpError> {
        let store = self.store()?;
        self.check_id_available(auth, new.id)?;
        self.check_new_rights(auth, new.permissions, new.groups)?;
        let (stored, key) = store.add_caller(new, author(auth)).map_err(key_error)?;
        self.reload_store();
        tracing::info!(id = %stored.id, by = %auth.caller.id, "caller created");
        Ok((describe_stored(&stored), key))
    }

    /// Changes a caller created at runtime. Its streams end if its rights have changed.
    pub(crate) fn change_caller(
        &self,
        auth: &Authenticated,
        id: &str,
        change: CallerChange<'_>,
    ) -> Result<Json, HttpError> {
        let (store, id) = self.changeable_caller(auth, id)?;
        let (permissions, groups) = (change.permissions, change.groups);
        self.check_new_rights(auth, permissions.unwrap_or_default(), groups.unwrap_or_default())?;
        let changed = store.change_caller(&id, change).map_err(key_error)?;
        self.reload_store();
        tracing::info!(%id, by = %auth.caller.id, "caller changed");
        let known = changed.and_then(|_| self.describe_caller(id.as_str()));
        known.ok_or_else(|| no_caller(id.as_str()))
    }

    /// Removes a caller created at runtime. Its keys are invalid when this returns.
    pub(crate) fn remove_caller(&self, auth: &Authenticated, id: &str) -> Result<(), HttpError> {
        let (store, id) = self.changeable_caller(auth, id)?;
        let removed = store.remove_caller(&id).map_err(key_error)?;
        self.reload_store();
        tracing::info!(%id, by = %auth.caller.id, "caller removed");
        if removed { Ok(()) } else { Err(no_caller(id.as_str())) }
    }

    /// Returns the store and the id of a caller that the author of a request may change or remove: one created at
    /// runtime, with no rights that the author lacks.
    fn changeable_caller(
        &self,
        auth: &Authenticated,
        id: &str,
    ) -> Result<(&Arc<dyn CallerStore>, CallerId), HttpError> {
        let state = self.state.load();
        if state.rules.callers.values().any(|caller| caller.id.as_str() == id) {
            return Err(configured_conflict(id));
        }
        let store = self.store.as_ref().ok_or_else(|| no_caller(id))?;
        let (entry, caller) = state.table.find(id).ok_or_else(|| no_caller(id))?;
        check_rights(auth, caller)?;
        Ok((store, entry.id.clone()))
    }

    /// Checks that the author of a request has the rights that it gives a caller, and that the groups exist.
    fn check_new_rights(
        &self,
        auth: &Authenticated,
        permissions: &[PermissionPattern],
        groups: &[GroupName],
    ) -> Result<(), HttpError> {
        permissions.iter().try_for_each(|pattern| check_grant(auth, pattern))?;
        let rules = self.rules();
        for group in groups {
            if !rules.groups.iter().any(|known| known.name == *group) {
                let message = format!("there is no group `{group}`");
                let error = HttpError::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", message);
                return Err(error.hint("declare it in `groups` of toolgate.yaml"));
            }
            check_group(auth, group.as_str())?;
        }
        Ok(())
    }

    /// Lists the stored keys of a caller, without the keys themselves.
    pub(crate) fn list_keys(&self, id: &str) -> Result<Vec<Json>, HttpError> {
        let state = self.state.load();
        let caller = state.caller(id).ok_or_else(|| no_caller(id))?;
        let keys = state.table.stored_keys.iter().filter(|key| key.caller == caller.id);
        Ok(keys.map(|key| describe_key(key, state.table.last_used(key))).collect())
    }

    /// Adds a key of a caller. It is valid when this returns.
    pub(crate) fn add_key(
        &self,
        auth: &Authenticated,
        id: &str,
        (name, expires): (&str, Option<Timestamp>),
    ) -> Result<(Json, Secret), HttpError> {
        let caller = self.manageable_caller(auth, id)?;
        let new = NewKey { caller: &caller, name, expires };
        let (record, key) = self.store()?.add_key(new, author(auth)).map_err(key_error)?;
        self.reload_store();
        tracing::info!(id, name, by = %auth.caller.id, "key added");
        Ok((describe_key(&record, None), key))
    }

    /// Replaces a key of a caller. The new one is valid when this returns.
    pub(crate) fn rotate_key(
        &self,
        auth: &Authenticated,
        id: &str,
        (name, expires): (&str, Option<Timestamp>),
        overlap: std::time::Duration,
    ) -> Result<(Json, Secret), HttpError> {
        let caller = self.manageable_caller(auth, id)?;
        let rotation = KeyRotation { caller: &caller, name, expires, overlap };
        let RotatedKey { new, old, key } =
            self.store()?.rotate_key(rotation, author(auth)).map_err(key_error)?;
        self.reload_store();
        tracing::info!(id, name, by = %auth.caller.id, "key rotated");
        let old = old.map(|old| describe_key(&old, old.last_used));
        Ok((json!({ "new": describe_key(&new, None), "old": old }), key))
    }

    /// Revokes a key of a caller. It is invalid, and its streams end, when this returns.
    pub(crate) fn revoke_key(&self, auth: &Authenticated, id: &str, name: &str) -> Result<(), HttpError> {
        let caller = self.manageable_caller(auth, id)?;
        self.store()?.revoke_key(&caller, name).map_err(key_error)?;
        self.reload_store();
        tracing::info!(id, name, by = %auth.caller.id, "key revoked");
        Ok(())
    }

    /// Returns the id of a caller if its keys may be changed by the author of a request.
    fn manageable_caller(&self, auth: &Authenticated, id: &str) -> Result<CallerId, HttpError> {
        let state = self.state.load();
        let caller = state.caller(id).ok_or_else(|| no_caller(id))?;
        if id == Caller::ANONYMOUS {
            return Err(HttpError::invalid("`anonymous` has no keys"));
        }
        if auth.via_socket {
            return Ok(caller.id.clone());
        }
        check_rights(auth, caller)?;
        let is_creator = || {
            let stored = state.table.find(id);
            stored.is_some_and(|(stored, _)| stored.lineage().any(|by| by == auth.caller.id.as_str()))
        };
        if [id, Caller::OWNER].contains(&auth.caller.id.as_str()) || is_creator() {
            return Ok(caller.id.clone());
        }
        let message = format!("the keys of `{id}` are changed by itself, its creators and the owner");
        let error = HttpError::new(StatusCode::FORBIDDEN, ErrorCode::Unauthorized.label(), message);
        Err(error.hint("run `toolgate callers keys` on the machine of the gateway"))
    }

    /// Checks that an id is free, and that this caller may take it.
    fn check_id_available(&self, auth: &Authenticated, id: &CallerId) -> Result<(), HttpError> {
        let rules = self.rules();
        if [Caller::OWNER, Caller::ANONYMOUS].contains(&id.as_str()) || rules.callers.contains_key(id) {
            return Err(configured_conflict(id.as_str()));
        }
        let issued = |prefix: &str| !prefix.is_empty() && id.as_str().starts_with(prefix);
        if rules.tokens.issuers().any(|issuer| issued(&issuer.caller_prefix)) {
            let message = format!("`{id}` is reserved for an issuer in `serve.jwt`");
            return Err(
                HttpError::new(StatusCode::CONFLICT, "already_exists", message).hint("choose another id")
            );
        }
        if !auth.via_socket && rules.policy_callers.iter().any(|named| named == id.as_str()) {
            let message = format!("a policy rule names `{id}` and may grant it more than you have");
            let error = HttpError::new(StatusCode::FORBIDDEN, ErrorCode::Unauthorized.label(), message);
            return Err(
                error.hint("choose another id, or run `toolgate callers add` on the machine of the gateway")
            );
        }
        Ok(())
    }
}

fn author(auth: &Authenticated) -> ChangeAuthor<'_> {
    ChangeAuthor { by: auth.caller.id.as_str(), now: Timestamp::now() }
}

/// Checks that a caller holds all rights of another one.
fn check_rights(auth: &Authenticated, caller: &Caller) -> Result<(), HttpError> {
    caller.all_permissions().try_for_each(|pattern| check_grant(auth, pattern))?;
    caller.groups.iter().try_for_each(|group| check_group(auth, group.name.as_str()))
}

/// Checks that a caller is in a group that it makes others members of. Rules may grant its members more than permissions.
fn check_group(auth: &Authenticated, group: &str) -> Result<(), HttpError> {
    if auth.via_socket || auth.caller.is_in_group(group) {
        return Ok(());
    }
    let message = format!("the caller is not in the group `{group}`");
    let error = HttpError::new(StatusCode::FORBIDDEN, ErrorCode::Unauthorized.label(), message);
    Err(error.hint("a caller can change members of its own groups only"))
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
    let name = pattern.to_string();
    if EXPLICIT_PERMISSIONS.contains(&name.as_str()) {
        require_permission(&auth.caller, &name)
    } else {
        Ok(())
    }
}

fn no_caller(id: &str) -> HttpError {
    HttpError::not_found(format!("there is no caller `{id}`"))
}

fn configured_conflict(id: &str) -> HttpError {
    let message = format!("caller `{id}` is defined in the configuration");
    HttpError::new(StatusCode::CONFLICT, "already_exists", message).hint("change it in toolgate.yaml")
}

fn key_error(error: KeyError) -> HttpError {
    match error {
        KeyError::Exists(_) | KeyError::KeyExists { .. } => {
            HttpError::new(StatusCode::CONFLICT, "already_exists", error.to_string()).hint(error.hint())
        }
        KeyError::NoKey { .. } => HttpError::not_found(error.to_string()).hint(error.hint()),
        KeyError::TooMany => HttpError::invalid(error.to_string()).hint(error.hint()),
        error if error.is_rejection() => {
            let status = StatusCode::UNPROCESSABLE_ENTITY;
            HttpError::new(status, "invalid", error.to_string()).hint(error.hint())
        }
        error => {
            tracing::error!("cannot change a caller: {}", error.with_cause());
            let code = ErrorCode::StorageUnavailable.label();
            HttpError::new(StatusCode::SERVICE_UNAVAILABLE, code, "the key file cannot be written")
        }
    }
}

fn describe_configured(rules: &AuthRules, table: &CallerTable, caller: &Arc<Caller>) -> Json {
    let has = |found: bool, kind: &'static str| found.then_some(kind);
    let known_by = [
        has(table.has_key(&caller.id), "key"),
        has(rules.certificates.iter().any(|(_, of)| of.id == caller.id), "certificate"),
    ];
    let known_by: Vec<_> = known_by.into_iter().flatten().collect();
    let mut document = json!({ "id": caller.id, "permissions": caller.permissions,
        "source": "configuration", "knownBy": known_by });
    if !caller.groups.is_empty() {
        let groups: Vec<_> = caller.groups.iter().map(|group| &group.name).collect();
        document["groups"] = json!(groups);
    }
    if let Some(description) = rules.descriptions.get(&caller.id) {
        document["description"] = json!(description);
    }
    document
}

fn describe_stored(caller: &StoredCaller) -> Json {
    let StoredCaller { id, description, permissions, groups, created, by, .. } = caller;
    let mut document = json!({ "id": id, "permissions": permissions, "source": "made", "knownBy": ["key"],
        "created": created, "by": by });
    if !groups.is_empty() {
        document["groups"] = json!(groups);
    }
    if let Some(description) = description {
        document["description"] = json!(description);
    }
    document
}

/// The stored keys of one caller, together.
#[derive(Default)]
struct KeySummary {
    keys: usize,
    last_used: Option<Timestamp>,
    /// The latest expiry.
    expires: Option<Timestamp>,
    /// True if one of them does not expire.
    is_lasting: bool,
}

impl KeySummary {
    fn of_all(table: &CallerTable) -> HashMap<CallerId, Self> {
        let mut all: HashMap<CallerId, Self> = HashMap::new();
        for key in &table.stored_keys {
            all.entry(key.caller.clone()).or_default().add(key, table);
        }
        all
    }

    fn add(&mut self, key: &KeyRecord, table: &CallerTable) {
        self.keys += 1;
        self.last_used = self.last_used.max(table.last_used(key));
        self.expires = self.expires.max(key.expires);
        self.is_lasting |= key.expires.is_none();
    }
}

/// Adds the stored keys of a caller to its description.
fn with_keys(mut document: Json, keys: Option<&KeySummary>) -> Json {
    let expires = keys.and_then(|keys| keys.expires.filter(|_| !keys.is_lasting));
    document["keys"] = json!(keys.map_or(0, |keys| keys.keys));
    document["lastUsed"] = json!(keys.and_then(|keys| keys.last_used).map(time_text));
    document["expires"] = json!(expires.map(time_text));
    document["editable"] = json!(document["source"] == "made");
    document
}

fn time_text(time: Timestamp) -> String {
    time.strftime("%FT%TZ").to_string()
}

/// Describes a stored key, without its hash.
fn describe_key(key: &KeyRecord, last_used: Option<Timestamp>) -> Json {
    let mut document = json!({ "name": key.name });
    for (member, value) in [
        ("created", key.created.map(time_text)),
        ("by", key.by.clone()),
        ("expires", key.expires.map(time_text)),
        ("lastUsed", last_used.map(time_text)),
    ] {
        if let Some(value) = value {
            document[member] = json!(value);
        }
    }
    document
}
