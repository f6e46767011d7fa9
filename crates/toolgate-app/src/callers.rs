//! Callers of a project: those of the configuration, those with a created key, and the key of the owner.

use std::path::Path;

use jiff::Timestamp;
use serde::Serialize;
use toolgate_config::Config;
use toolgate_server::CallerDirectory;
use toolgate_server::keys::{self, KEY_VARIABLE, KeyError, KeyStore, OwnerKey};
use toolgate_types::caller::PermissionPattern;
use toolgate_types::{Caller, CallerId, Secret};

use crate::project::{ProjectFiles, StateFolder};

/// Returns configured callers and callers with a created key.
pub(crate) fn known_callers(mut callers: Vec<Caller>, project: &Path) -> Vec<Caller> {
    // Errors of the key file are reported by the front ends that need it.
    let created = StateFolder::of(project).key_store().callers().unwrap_or_default();
    for stored in created {
        if callers.iter().all(|caller| caller.id != stored.id) {
            callers.push(stored.caller());
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
    pub(crate) fn load(config: &mut Config, files: &ProjectFiles) -> Result<Self, KeyError> {
        let state = files.state_folder();
        let given = files.environment.variables.get(KEY_VARIABLE);
        if let Some(given) = given.filter(|given| !given.is_empty()) {
            // Masks the key in logs and records.
            config.secrets.push(Secret::new(given.clone()));
        }
        let mut keys = config.caller_keys.clone();
        let mut new_owner_key = None;
        let owner: CallerId = Caller::owner().id;
        if given.is_some() || keys.iter().all(|(id, _)| *id != owner) {
            let OwnerKey { hash, generated } = keys::load_owner_key(given.map(String::as_str), state.path())?;
            if let Some((id, _)) = keys.iter().find(|(id, key)| *key == hash && *id != owner) {
                return Err(KeyError::Duplicate(id.clone()));
            }
            keys.push((owner, hash));
            new_owner_key = generated;
        }
        let policy = config.policy.as_ref();
        let directory = CallerDirectory {
            callers: config.callers.clone(),
            groups: config.groups.clone(),
            keys,
            certificates: config.caller_certificates.clone(),
            key_store: Some(state.key_store()),
            policy_callers: policy.map(|policy| policy.rules.named_callers()).unwrap_or_default(),
            descriptions: config.caller_descriptions.clone(),
        };
        Ok(Self { directory, new_owner_key })
    }
}

/// A caller in listings, as in the REST API.
#[derive(Debug, Clone, Serialize)]
pub struct CallerEntry {
    pub id: CallerId,
    pub permissions: Vec<PermissionPattern>,
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

/// The callers of a project without a running gateway: lists them, and changes the key file.
pub struct ProjectCallers<'a> {
    config: &'a Config,
    keys: KeyStore,
}

impl<'a> ProjectCallers<'a> {
    pub fn new(config: &'a Config, state: &StateFolder) -> Self {
        Self { config, keys: state.key_store() }
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
        let configured = callers.into_iter().map(|Caller { id, permissions, .. }| CallerEntry {
            description: self.config.caller_descriptions.get(&id).cloned(),
            id,
            permissions,
            source: "configuration",
            created: None,
            by: None,
        });
        let stored =
            self.keys.callers()?.into_iter().filter(|stored| !self.is_configured(stored.id.as_str()));
        Ok(configured.chain(stored.map(created_entry)).collect())
    }

    /// Adds a caller. Returns it with its key. The key cannot be shown again.
    ///
    /// # Errors
    /// If the caller exists or is invalid, or the key file cannot be written.
    pub fn add(&self, new: NewCaller<'_>) -> Result<(CallerEntry, Secret), CallerChangeError> {
        let NewCaller { id, description, permissions } = new;
        if self.is_configured(id) || id == Caller::ANONYMOUS {
            return Err(CallerChangeError::Configured(id.to_owned()));
        }
        let invalid = |text: &str, why: String| CallerChangeError::Invalid { text: text.to_owned(), why };
        let caller = Caller::new(
            id.parse().map_err(|error| invalid(id, format!("{error}")))?,
            permissions
                .iter()
                .map(|text| text.parse().map_err(|error| invalid(text, format!("{error}"))))
                .collect::<Result<_, _>>()?,
        );
        let description = description.map(ToOwned::to_owned);
        let (stored, key) = self.keys.add(&caller, description, Caller::OWNER, Timestamp::now())?;
        // A new caller is reported without the description that was just given.
        Ok((CallerEntry { description: None, ..created_entry(stored) }, key))
    }

    /// Removes a caller and its key.
    ///
    /// # Errors
    /// If there is no such caller, or the key file cannot be written.
    pub fn remove(&self, id: &str) -> Result<(), CallerChangeError> {
        if self.is_configured(id) {
            return Err(CallerChangeError::Configured(id.to_owned()));
        }
        let unknown = || CallerChangeError::Unknown(id.to_owned());
        let id = id.parse().map_err(|_| unknown())?;
        if self.keys.remove(&id)? { Ok(()) } else { Err(unknown()) }
    }
}

fn created_entry(stored: keys::ManagedCaller) -> CallerEntry {
    CallerEntry {
        id: stored.id,
        permissions: stored.permissions,
        source: "made",
        created: Some(stored.created),
        by: Some(stored.by),
        description: stored.description,
    }
}
