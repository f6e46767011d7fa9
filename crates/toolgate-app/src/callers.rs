//! Callers of a project: those of the configuration, those with a created key, and the key of the owner.

use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;
use toolgate_config::Config;
use toolgate_server::CallerDirectory;
use toolgate_store::callers::{
    self, CallerChange, CallerFile, CallerRecords, CallerStore, ChangeAuthor, KEY_VARIABLE, KeyError,
    KeyRecord, KeyRotation, NewKey, OwnerKey, RotatedKey, StoredCaller,
};
use toolgate_types::caller::PermissionPattern;
use toolgate_types::{Caller, CallerId, Group, GroupName, KeyHash, Secret};

use crate::app::AppError;
use crate::cluster::ClusterError;
use crate::project::{ProjectFiles, StateFolder};

/// Returns configured callers and callers with a created key.
pub(crate) fn known_callers(
    mut callers: Vec<Caller>,
    groups: &[Arc<Group>],
    store: &dyn CallerStore,
) -> Vec<Caller> {
    // Errors of the key file are reported by the front ends that need it.
    let created = store.read().unwrap_or_default().callers;
    for stored in created {
        if callers.iter().all(|caller| caller.id != stored.id) {
            let is_member = |group: &&Arc<Group>| stored.groups.contains(&group.name);
            let groups = groups.iter().filter(is_member).map(Arc::clone).collect();
            callers.push(Caller { groups, ..Caller::new(stored.id, stored.permissions) });
        }
    }
    callers
}

/// Callers of an HTTP gateway.
pub(crate) struct GatewayCallers {
    pub(crate) directory: CallerDirectory,
    /// Owner key, if it was created just now.
    pub(crate) new_owner_key: Option<Secret>,
}

impl GatewayCallers {
    /// Collects the callers with their credentials. The key of the owner is the one in the environment, else the one
    /// in the configuration, else the stored one, else a new one. A key from the environment becomes a secret of the
    /// configuration.
    pub(crate) fn load(config: &mut Config, files: &ProjectFiles) -> Result<Self, AppError> {
        let given = files.environment.variables.get(KEY_VARIABLE);
        if let Some(given) = given.filter(|given| !given.is_empty()) {
            // Masks the key in logs and records.
            config.secrets.push(Secret::new(given.clone()));
        }
        let directory = Self::directory(config, files)?;
        let owner = Caller::owner().id;
        let mut new_owner_key = None;
        if directory.keys.iter().all(|(id, ..)| *id != owner) {
            let store = files.caller_store();
            if files.cluster.is_none() {
                let OwnerKey { generated, .. } = store.owner_key(None, Timestamp::now())?;
                new_owner_key = generated;
            } else if store.read()?.keys_of(&owner).next().is_none() {
                // Each replica would replace the key that another one has shown.
                return Err(ClusterError::NoOwnerKey.into());
            }
        }
        Ok(Self { directory, new_owner_key })
    }

    /// Returns the callers and credentials of a configuration, with the key of the owner from the environment.
    ///
    /// # Errors
    /// If the key from the environment is well known, or that of another caller.
    pub(crate) fn directory(config: &Config, files: &ProjectFiles) -> Result<CallerDirectory, KeyError> {
        let named = |(id, key): &(CallerId, KeyHash)| (id.clone(), *key, "toolgate.yaml".to_owned());
        let mut keys: Vec<_> = config.caller_keys.iter().map(named).collect();
        let store = files.caller_store();
        if let Some(given) = files.environment.variables.get(KEY_VARIABLE) {
            let owner = Caller::owner().id;
            let OwnerKey { hash, .. } = store.owner_key(Some(given), Timestamp::now())?;
            if let Some((id, ..)) = keys.iter().find(|(id, key, _)| *key == hash && *id != owner) {
                return Err(KeyError::Duplicate(id.clone()));
            }
            keys.push((owner, hash, KEY_VARIABLE.to_owned()));
        }
        let policy = config.policy.as_ref();
        Ok(CallerDirectory {
            callers: config.callers.clone(),
            groups: config.groups.clone(),
            keys,
            certificates: config.caller_certificates.clone(),
            store: Some(store),
            policy_callers: policy.map(|policy| policy.rules.named_callers()).unwrap_or_default(),
            descriptions: config.caller_descriptions.clone(),
            access: Some(Arc::new(files.access_rules(config))),
        })
    }
}

/// A caller in listings, as in the REST API.
#[derive(Debug, Clone, Serialize)]
pub struct CallerEntry {
    pub id: CallerId,
    pub permissions: Vec<PermissionPattern>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupName>,
    /// `configuration`, or `made` for a caller with a created key.
    pub source: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
    /// Id of the caller that created it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// A caller to add, as typed by a person.
#[derive(Debug, Clone, Copy)]
pub struct NewCaller<'a> {
    pub id: &'a str,
    pub description: Option<&'a str>,
    pub permissions: &'a [String],
    pub groups: &'a [String],
    /// Expiry of its key, as typed.
    pub expires: Option<&'a str>,
}

/// A key in listings, as in the REST API.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KeyEntry {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
    /// Id of the caller that created it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_used: Option<String>,
}

/// A change of callers was not made.
#[derive(Debug, thiserror::Error)]
pub enum CallerChangeError {
    #[error("caller `{0}` is defined in the configuration")]
    Configured(String),
    #[error("`{text}`: {why}")]
    Invalid { text: String, why: String },
    #[error("there is no caller `{0}`; `toolgate callers list` shows them all")]
    Unknown(String),
    #[error(transparent)]
    Keys(#[from] KeyError),
}

impl CallerChangeError {
    /// Returns a suggested fix.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Configured(_) => Some("change it in toolgate.yaml".to_owned()),
            Self::Keys(error) => Some(error.hint()),
            Self::Invalid { .. } | Self::Unknown(_) => None,
        }
    }
}

/// The callers of a project without a running gateway: lists them, and changes the stored callers and keys.
pub struct ProjectCallers<'a> {
    config: &'a Config,
    store: CallerFile,
}

impl<'a> ProjectCallers<'a> {
    pub fn new(config: &'a Config, state: &StateFolder) -> Self {
        Self { config, store: state.caller_file() }
    }

    fn store(&self) -> &dyn CallerStore {
        &self.store
    }

    /// Returns true for callers that only the configuration can change.
    fn is_configured(&self, id: &str) -> bool {
        id == Caller::OWNER || self.config.callers.iter().any(|caller| caller.id.as_str() == id)
    }

    /// Lists configured callers, sorted by id, then callers with a created key.
    ///
    /// # Errors
    /// If the key file is malformed.
    pub fn list(&self) -> Result<Vec<CallerEntry>, CallerChangeError> {
        let mut callers = self.config.callers.clone();
        if callers.iter().all(|caller| caller.id.as_str() != Caller::OWNER) {
            callers.push(Caller::owner());
        }
        callers.sort_by(|one, other| one.id.cmp(&other.id));
        let configured = callers.into_iter().map(|Caller { id, permissions, groups, .. }| CallerEntry {
            description: self.config.caller_descriptions.get(&id).cloned(),
            id,
            permissions,
            groups: groups.iter().map(|group| group.name.clone()).collect(),
            source: "configuration",
            created: None,
            by: None,
        });
        let CallerRecords { callers: stored, .. } = self.store.read()?;
        let stored = stored.into_iter().filter(|stored| !self.is_configured(stored.id.as_str()));
        Ok(configured.chain(stored.map(created_entry)).collect())
    }

    /// Adds a caller. Returns it with its key. The key cannot be shown again.
    ///
    /// # Errors
    /// If the caller exists or is invalid, or the key file cannot be written.
    pub fn add(&self, new: NewCaller<'_>) -> Result<(CallerEntry, Secret), CallerChangeError> {
        let NewCaller { id, description, permissions, groups, expires } = new;
        if self.is_configured(id) || id == Caller::ANONYMOUS {
            return Err(CallerChangeError::Configured(id.to_owned()));
        }
        let id: CallerId = id.parse().map_err(|error| invalid(id, format!("{error}")))?;
        let permissions = parse_permissions(permissions)?;
        let groups = self.find_groups(groups)?;
        let author = ChangeAuthor { by: Caller::OWNER, now: Timestamp::now() };
        let expires = expires.map(|text| callers::parse_expiry(text, author.now)).transpose()?;
        let new =
            callers::NewCaller { id: &id, permissions: &permissions, groups: &groups, description, expires };
        let (stored, key) = self.store().add_caller(new, author)?;
        // A new caller is reported without the description that was just given.
        Ok((CallerEntry { description: None, ..created_entry(stored) }, key))
    }

    /// Changes a caller. `None` leaves a part as it is; an empty description removes it.
    ///
    /// # Errors
    /// If there is no such caller, the change is invalid, or the key file cannot be written.
    pub fn update(
        &self,
        id: &str,
        permissions: Option<&[String]>,
        groups: Option<&[String]>,
        description: Option<&str>,
    ) -> Result<CallerEntry, CallerChangeError> {
        if self.is_configured(id) {
            return Err(CallerChangeError::Configured(id.to_owned()));
        }
        let unknown = || CallerChangeError::Unknown(id.to_owned());
        let permissions = permissions.map(parse_permissions).transpose()?;
        let groups = groups.map(|groups| self.find_groups(groups)).transpose()?;
        let change = CallerChange {
            permissions: permissions.as_deref(),
            groups: groups.as_deref(),
            description: description.map(|text| Some(text).filter(|text| !text.is_empty())),
        };
        let changed = self.store().change_caller(&id.parse().map_err(|_| unknown())?, change)?;
        changed.map(created_entry).ok_or_else(unknown)
    }

    fn find_groups(&self, names: &[String]) -> Result<Vec<GroupName>, CallerChangeError> {
        let find = |text: &String| {
            let known = self.config.groups.iter().find(|group| group.name.as_str() == text);
            let unknown = || invalid(text, "there is no such group in `groups` of toolgate.yaml".to_owned());
            known.map(|group| group.name.clone()).ok_or_else(unknown)
        };
        names.iter().map(find).collect()
    }

    /// Removes a caller and its keys.
    ///
    /// # Errors
    /// If there is no such caller, or the key file cannot be written.
    pub fn remove(&self, id: &str) -> Result<(), CallerChangeError> {
        if self.is_configured(id) {
            return Err(CallerChangeError::Configured(id.to_owned()));
        }
        let unknown = || CallerChangeError::Unknown(id.to_owned());
        let id = id.parse().map_err(|_| unknown())?;
        if self.store().remove_caller(&id)? { Ok(()) } else { Err(unknown()) }
    }

    /// Lists the stored keys of a caller.
    ///
    /// # Errors
    /// If there is no such caller, or the key file is malformed.
    pub fn keys(&self, id: &str) -> Result<Vec<KeyEntry>, CallerChangeError> {
        let id = self.known_caller(id)?;
        Ok(self.store.read()?.keys_of(&id).map(key_entry).collect())
    }

    /// Adds a key of a caller. The key cannot be shown again.
    ///
    /// # Errors
    /// If there is no such caller, it has such a key, or the key file cannot be written.
    pub fn add_key(
        &self,
        id: &str,
        name: &str,
        expires: Option<&str>,
    ) -> Result<(KeyEntry, Secret), CallerChangeError> {
        let caller = &self.known_caller(id)?;
        let author = ChangeAuthor { by: Caller::OWNER, now: Timestamp::now() };
        let expires = expires.map(|text| callers::parse_expiry(text, author.now)).transpose()?;
        let (record, key) = self.store().add_key(NewKey { caller, name, expires }, author)?;
        Ok((key_entry(&record), key))
    }

    /// Replaces a key of a caller. Returns the new key, and the old one if it is still valid.
    ///
    /// # Errors
    /// If there is no such caller or key, or the key file cannot be written.
    pub fn rotate_key(
        &self,
        id: &str,
        name: &str,
        (expires, overlap): (Option<&str>, Option<&str>),
    ) -> Result<(KeyEntry, Option<KeyEntry>, Secret), CallerChangeError> {
        let caller = &self.known_caller(id)?;
        let author = ChangeAuthor { by: Caller::OWNER, now: Timestamp::now() };
        let expires = expires.map(|text| callers::parse_expiry(text, author.now)).transpose()?;
        let overlap = overlap.map(callers::parse_overlap).transpose()?.unwrap_or_default();
        let rotation = KeyRotation { caller, name, expires, overlap };
        let RotatedKey { new, old, key } = self.store().rotate_key(rotation, author)?;
        Ok((key_entry(&new), old.as_ref().map(key_entry), key))
    }

    /// Revokes a key of a caller.
    ///
    /// # Errors
    /// If there is no such caller or key, or the key file cannot be written.
    pub fn revoke_key(&self, id: &str, name: &str) -> Result<(), CallerChangeError> {
        Ok(self.store().revoke_key(&self.known_caller(id)?, name)?)
    }

    /// Returns the id of a caller, of the configuration or with a created key.
    fn known_caller(&self, id: &str) -> Result<CallerId, CallerChangeError> {
        let unknown = || CallerChangeError::Unknown(id.to_owned());
        let parsed: CallerId = id.parse().map_err(|_| unknown())?;
        let is_stored = || -> Result<bool, KeyError> {
            Ok(self.store.read()?.callers.iter().any(|caller| caller.id == parsed))
        };
        if id != Caller::ANONYMOUS && (self.is_configured(id) || is_stored()?) {
            Ok(parsed)
        } else {
            Err(unknown())
        }
    }
}

fn invalid(text: &str, why: String) -> CallerChangeError {
    CallerChangeError::Invalid { text: text.to_owned(), why }
}

fn parse_permissions(texts: &[String]) -> Result<Vec<PermissionPattern>, CallerChangeError> {
    texts.iter().map(|text| text.parse().map_err(|error| invalid(text, format!("{error}")))).collect()
}

fn created_entry(stored: StoredCaller) -> CallerEntry {
    CallerEntry {
        id: stored.id,
        permissions: stored.permissions,
        groups: stored.groups,
        source: "made",
        created: Some(stored.created),
        by: Some(stored.by),
        description: stored.description,
    }
}

fn key_entry(key: &KeyRecord) -> KeyEntry {
    let time = |time: Timestamp| time.strftime("%FT%TZ").to_string();
    KeyEntry {
        name: key.name.clone(),
        created: key.created.map(time),
        by: key.by.clone(),
        expires: key.expires.map(time),
        last_used: key.last_used.map(time),
    }
}
