//! Callers created at runtime, and the API keys of all callers.
//!
//! [`CallerStore`] is the interface of a storage backend; [`CallerFile`] implements it with one file. Every operation
//! is built on `read` and `update`, so that it is the same for every backend. Invariant: a key is shown once and stored
//! as a hash only; it is durable before it is shown; a change applies to the newest records, or to none.

mod file;

use std::io;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde::{Deserialize, Deserializer, Serialize, de};
use toolgate_types::caller::PermissionPattern;
use toolgate_types::{Caller, CallerId, GroupName, HumanDuration, KeyHash, Secret};

pub use file::CallerFile;

/// Environment variable with the owner's key.
pub const KEY_VARIABLE: &str = "TOOLGATE_API_KEY";
/// Name of the key that the first start creates for the owner.
pub const FIRST_KEY: &str = "first";
/// Name of a key that was given none.
pub const DEFAULT_KEY: &str = "default";
/// Suffix of the name of a key that was rotated and is still valid.
const ROTATED_SUFFIX: &str = ".old";
/// Prefix of generated keys, so that secret scanners recognise them.
const KEY_PREFIX: &str = "tg_";
/// Random bytes in a generated key.
const KEY_BYTES: usize = 32;
/// Stored callers.
const MAX_CALLERS: usize = 10_000;
/// Stored keys of one caller.
const MAX_KEYS: usize = 20;
/// Longest name of a key.
const MAX_NAME_LENGTH: usize = 64;

/// Errors of API keys and their store.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The key is well known.
    #[error("the key in `{KEY_VARIABLE}` is a well-known weak key")]
    WellKnown,
    /// Another caller has the same key.
    #[error("the key in `{KEY_VARIABLE}` is also the key of caller `{0}`")]
    Duplicate(CallerId),
    /// The file is malformed or has unsafe permissions.
    #[error("`{}` is not a valid key file: {why}", path.display())]
    File { path: PathBuf, why: String },
    /// The caller exists already.
    #[error("caller `{0}` already exists")]
    Exists(CallerId),
    /// The store is full.
    #[error("the limit of {MAX_CALLERS} callers is reached")]
    TooMany,
    /// The caller has a key of this name already.
    #[error("caller `{caller}` already has a key `{name}`")]
    KeyExists { caller: CallerId, name: String },
    /// The caller has too many keys.
    #[error("caller `{0}` has {MAX_KEYS} keys; that is the limit")]
    TooManyKeys(CallerId),
    /// The caller has no key of this name.
    #[error("caller `{caller}` has no stored key `{name}`")]
    NoKey { caller: CallerId, name: String },
    /// The string is not the name of a key.
    #[error("`{0}` is not the name of a key: it has 1 to {MAX_NAME_LENGTH} letters, digits and `. _ - @`")]
    Name(String),
    /// The string is not a time of expiry.
    #[error("`{0}` is not a time, a date or a duration")]
    Expiry(String),
    /// The key would expire before it can be used.
    #[error("the key would have expired already")]
    Expired,
    /// The store could not be read or written.
    #[error("the key file cannot be read or written")]
    Io(#[from] io::Error),
}

impl KeyError {
    /// Returns the message with its cause, for log lines.
    pub fn with_cause(&self) -> String {
        match std::error::Error::source(self) {
            Some(cause) => format!("{self}: {cause}"),
            None => self.to_string(),
        }
    }

    /// Returns true if the request was wrong, not the store.
    pub fn is_rejection(&self) -> bool {
        !matches!(self, Self::File { .. } | Self::Io(_) | Self::WellKnown | Self::Duplicate(_))
    }

    pub fn hint(&self) -> String {
        match self {
            Self::WellKnown => {
                format!(
                    "set `{KEY_VARIABLE}` to a random value, such as the output of `openssl rand -hex 32`"
                )
            }
            Self::Duplicate(_) => "give each caller its own key".to_owned(),
            Self::File { path, .. } => {
                format!("move `{}` away; the next start creates a new key", path.display())
            }
            Self::Exists(_) => "choose another id, or remove the existing caller first".to_owned(),
            Self::TooMany => "remove callers that are not used".to_owned(),
            Self::KeyExists { .. } => "choose another name, or rotate the existing key".to_owned(),
            Self::TooManyKeys(_) => "revoke keys that are not used".to_owned(),
            Self::NoKey { caller, .. } => format!("`toolgate callers keys list {caller}` shows its keys"),
            Self::Name(_) => "choose a name such as `laptop`".to_owned(),
            Self::Expiry(_) | Self::Expired => {
                "give a later time, such as `90d`, `2027-01-31` or `2027-01-31T08:00:00Z`".to_owned()
            }
            Self::Io(_) => format!("set `{KEY_VARIABLE}`, so that no key has to be stored"),
        }
    }
}

/// A stored API key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyRecord {
    #[serde(deserialize_with = "parse_string")]
    pub caller: CallerId,
    /// Name of the key, unique among the keys of its caller.
    #[serde(default = "default_name")]
    pub name: String,
    #[serde(deserialize_with = "parse_string")]
    pub sha256: KeyHash,
    /// Time of creation. `None` for a key that an older version stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<Timestamp>,
    /// Id of the caller that created it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Expiry of the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
    /// Time of a recent use. `None` if it was never used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_used: Option<Timestamp>,
}

impl KeyRecord {
    /// Returns true for a key of the owner that the first start created and that was never used: the person may not
    /// have seen it. A key of an older version may have been used.
    fn is_unused_first_key(&self) -> bool {
        self.caller.as_str() == Caller::OWNER
            && self.name == FIRST_KEY
            && self.created.is_some()
            && self.last_used.is_none()
    }
}

/// A caller created at runtime.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredCaller {
    #[serde(deserialize_with = "parse_string")]
    pub id: CallerId,
    /// Purpose of the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(deserialize_with = "parse_strings")]
    pub permissions: Vec<PermissionPattern>,
    /// Groups that it is in.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "parse_strings")]
    pub groups: Vec<GroupName>,
    /// Time of creation.
    pub created: String,
    /// Id of the caller that created it.
    pub by: String,
    /// Ids of the callers that created that one, nearest first. Kept here, because they can be removed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub creators: Vec<String>,
    /// Hash of its key, as older versions stored it. Moved to the keys when it is read.
    #[serde(default, skip_serializing, deserialize_with = "parse_optional")]
    sha256: Option<KeyHash>,
}

impl StoredCaller {
    /// Ids of the callers that created it, directly and indirectly, nearest first.
    pub fn lineage(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.by.as_str()).chain(self.creators.iter().map(String::as_str))
    }
}

/// All stored callers and keys.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallerRecords {
    pub keys: Vec<KeyRecord>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub callers: Vec<StoredCaller>,
}

impl CallerRecords {
    /// Moves keys that older versions stored with their callers.
    fn migrate(mut self) -> Self {
        for caller in &mut self.callers {
            let Some(sha256) = caller.sha256.take() else { continue };
            self.keys.push(KeyRecord {
                caller: caller.id.clone(),
                name: DEFAULT_KEY.to_owned(),
                sha256,
                created: caller.created.parse().ok(),
                by: Some(caller.by.clone()),
                expires: None,
                last_used: None,
            });
        }
        self
    }

    pub fn keys_of(&self, caller: &CallerId) -> impl Iterator<Item = &KeyRecord> {
        self.keys.iter().filter(move |key| key.caller == *caller)
    }

    fn find_key(&mut self, caller: &CallerId, name: &str) -> Result<&mut KeyRecord, KeyError> {
        let mut keys = self.keys.iter_mut();
        keys.find(|key| key.caller == *caller && key.name == name)
            .ok_or_else(|| KeyError::NoKey { caller: caller.clone(), name: name.to_owned() })
    }

    fn insert_key(&mut self, key: KeyRecord) -> Result<(), KeyError> {
        if self.keys_of(&key.caller).any(|known| known.name == key.name) {
            return Err(KeyError::KeyExists { caller: key.caller, name: key.name });
        }
        if self.keys_of(&key.caller).count() >= MAX_KEYS {
            return Err(KeyError::TooManyKeys(key.caller));
        }
        self.keys.push(key);
        Ok(())
    }
}

/// Identifies the content of a store. It differs after every change, by any process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoreStamp(pub String);

/// A new caller.
#[derive(Debug, Clone, Copy)]
pub struct NewCaller<'a> {
    pub id: &'a CallerId,
    pub permissions: &'a [PermissionPattern],
    pub groups: &'a [GroupName],
    pub description: Option<&'a str>,
    /// Expiry of its key.
    pub expires: Option<Timestamp>,
}

/// A change of a caller. `None` leaves a part as it is.
#[derive(Debug, Clone, Copy, Default)]
pub struct CallerChange<'a> {
    pub permissions: Option<&'a [PermissionPattern]>,
    pub groups: Option<&'a [GroupName]>,
    /// `Some(None)` removes the description.
    pub description: Option<Option<&'a str>>,
}

/// A new key of a caller.
#[derive(Debug, Clone, Copy)]
pub struct NewKey<'a> {
    pub caller: &'a CallerId,
    pub name: &'a str,
    /// Expiry of the key.
    pub expires: Option<Timestamp>,
}

/// A key that replaces another one.
#[derive(Debug, Clone, Copy)]
pub struct KeyRotation<'a> {
    pub caller: &'a CallerId,
    /// Name of the key; the new key has the same.
    pub name: &'a str,
    /// Expiry of the new key. Without it, the new key lives as long as the old one was meant to.
    pub expires: Option<Timestamp>,
    /// Time that the old key stays valid.
    pub overlap: Duration,
}

/// A key that was rotated.
#[derive(Debug)]
pub struct RotatedKey {
    pub new: KeyRecord,
    /// The old key, if it is still valid.
    pub old: Option<KeyRecord>,
    pub key: Secret,
}

/// The owner's key.
#[derive(Debug)]
pub struct OwnerKey {
    pub hash: KeyHash,
    /// The key itself, if it was generated just now.
    pub generated: Option<Secret>,
}

/// Author and time of a change.
#[derive(Debug, Clone, Copy)]
pub struct ChangeAuthor<'a> {
    /// Id of the caller that makes the change.
    pub by: &'a str,
    pub now: Timestamp,
}

/// Storage of callers and keys. Operations block.
pub trait CallerStore: std::fmt::Debug + Send + Sync {
    /// Reads all callers and keys, as the last change left them.
    ///
    /// # Errors
    /// If the store is malformed or cannot be read.
    fn read(&self) -> Result<CallerRecords, KeyError>;

    /// Applies a change to the newest records and stores the result. No other change, of any process, comes in between.
    /// It is durable when this returns. A change that fails stores nothing.
    ///
    /// # Errors
    /// That of the change, or of the store.
    fn update(
        &self,
        change: &mut dyn FnMut(&mut CallerRecords) -> Result<(), KeyError>,
    ) -> Result<(), KeyError>;

    /// Returns a stamp of the content, cheaply.
    fn stamp(&self) -> StoreStamp;

    /// Returns true if the store was out of reach for so long that its keys do not count any more: a revocation could not
    /// arrive.
    fn is_stale(&self) -> bool {
        false
    }
}

impl dyn CallerStore + '_ {
    /// Adds a caller with a key. The key cannot be shown again.
    ///
    /// # Errors
    /// If the id exists, or the store could not be written.
    pub fn add_caller(
        &self,
        new: NewCaller<'_>,
        author: ChangeAuthor<'_>,
    ) -> Result<(StoredCaller, Secret), KeyError> {
        let key = generate_key()?;
        let mut added = None;
        self.update(&mut |records| {
            if records.callers.iter().any(|known| known.id == *new.id) {
                return Err(KeyError::Exists(new.id.clone()));
            }
            if records.callers.len() >= MAX_CALLERS {
                return Err(KeyError::TooMany);
            }
            let creator = records.callers.iter().find(|known| known.id.as_str() == author.by);
            let creators = creator.iter().flat_map(|creator| creator.lineage().map(str::to_owned)).collect();
            let caller = StoredCaller {
                id: new.id.clone(),
                description: new.description.map(str::to_owned),
                permissions: new.permissions.to_vec(),
                groups: new.groups.to_vec(),
                created: author.now.strftime("%FT%TZ").to_string(),
                by: author.by.to_owned(),
                creators,
                sha256: None,
            };
            // Keys of an earlier caller with this id must not become keys of this one.
            records.keys.retain(|key| key.caller != *new.id);
            let new_key = NewKey { caller: new.id, name: DEFAULT_KEY, expires: new.expires };
            records.insert_key(key_record(new_key, &key, author)?)?;
            records.callers.push(caller.clone());
            added = Some(caller);
            Ok(())
        })?;
        Ok((added.expect("the change was made"), key))
    }

    /// Changes a caller. Returns it as it is now; `None` if there is none.
    ///
    /// # Errors
    /// If the store is malformed or could not be written.
    pub fn change_caller(
        &self,
        id: &CallerId,
        change: CallerChange<'_>,
    ) -> Result<Option<StoredCaller>, KeyError> {
        let mut changed = None;
        self.update(&mut |records| {
            let Some(caller) = records.callers.iter_mut().find(|caller| caller.id == *id) else {
                return Ok(());
            };
            if let Some(permissions) = change.permissions {
                caller.permissions = permissions.to_vec();
            }
            if let Some(groups) = change.groups {
                caller.groups = groups.to_vec();
            }
            if let Some(description) = change.description {
                caller.description = description.map(str::to_owned);
            }
            changed = Some(caller.clone());
            Ok(())
        })?;
        Ok(changed)
    }

    /// Removes a caller with its keys. Returns false if there was none.
    ///
    /// # Errors
    /// If the store is malformed or could not be written.
    pub fn remove_caller(&self, id: &CallerId) -> Result<bool, KeyError> {
        if !self.read()?.callers.iter().any(|caller| caller.id == *id) {
            return Ok(false);
        }
        self.update(&mut |records| {
            records.callers.retain(|caller| caller.id != *id);
            records.keys.retain(|key| key.caller != *id);
            Ok(())
        })?;
        Ok(true)
    }

    /// Adds a key of a caller. It cannot be shown again.
    ///
    /// # Errors
    /// If the caller has such a key or too many, or the store could not be written.
    pub fn add_key(
        &self,
        new: NewKey<'_>,
        author: ChangeAuthor<'_>,
    ) -> Result<(KeyRecord, Secret), KeyError> {
        let key = generate_key()?;
        let record = key_record(new, &key, author)?;
        self.update(&mut |records| records.insert_key(record.clone()))?;
        Ok((record, key))
    }

    /// Replaces a key. The old one stays valid for the overlap, under its name with `.old` after it; a key of an earlier
    /// rotation with that name is revoked.
    ///
    /// # Errors
    /// If there is no such key, or the store could not be written.
    pub fn rotate_key(
        &self,
        rotation: KeyRotation<'_>,
        author: ChangeAuthor<'_>,
    ) -> Result<RotatedKey, KeyError> {
        let KeyRotation { caller, name, expires, overlap } = rotation;
        let key = generate_key()?;
        let old_name = format!("{name}{ROTATED_SUFFIX}");
        let mut rotated = None;
        self.update(&mut |records| {
            let old = records.find_key(caller, name)?.clone();
            let lifetime =
                old.expires.zip(old.created).map(|(expires, created)| expires.duration_since(created));
            let expires = match (expires, lifetime) {
                (None, Some(lifetime)) => author.now.checked_add(lifetime).ok(),
                (expires, _) => expires,
            };
            records.keys.retain(|key| key.caller != *caller || key.name != name && key.name != old_name);
            let new = key_record(NewKey { caller, name, expires }, &key, author)?;
            records.insert_key(new.clone())?;
            let end = author.now.checked_add(overlap).unwrap_or(Timestamp::MAX);
            let end = old.expires.map_or(end, |expires| expires.min(end));
            let old =
                (end > author.now).then(|| KeyRecord { name: old_name.clone(), expires: Some(end), ..old });
            if let Some(old) = &old {
                records.insert_key(old.clone())?;
            }
            rotated = Some((new, old));
            Ok(())
        })?;
        let (new, old) = rotated.expect("the change was made");
        Ok(RotatedKey { new, old, key })
    }

    /// Removes a key.
    ///
    /// # Errors
    /// If there is no such key, or the store could not be written.
    pub fn revoke_key(&self, caller: &CallerId, name: &str) -> Result<(), KeyError> {
        self.update(&mut |records| {
            records.find_key(caller, name)?;
            records.keys.retain(|key| key.caller != *caller || key.name != name);
            Ok(())
        })
    }

    /// Stores the last uses of keys. Keys that were removed meanwhile are ignored.
    ///
    /// # Errors
    /// If the store could not be written.
    pub fn record_uses(&self, uses: &[(KeyHash, Timestamp)]) -> Result<(), KeyError> {
        self.update(&mut |records| {
            for (hash, time) in uses {
                let key = records.keys.iter_mut().find(|key| key.sha256 == *hash);
                if let Some(key) = key.filter(|key| key.last_used.is_none_or(|known| known < *time)) {
                    key.last_used = Some(*time);
                }
            }
            Ok(())
        })
    }

    /// Returns the owner's key: the given one, else the stored one, else a new one. A key that an
    /// earlier start created and that was never used is replaced: it may have been lost before anyone saw it.
    ///
    /// # Errors
    /// If the given key is well known, or a new key could not be stored.
    pub fn owner_key(&self, given: Option<&str>, now: Timestamp) -> Result<OwnerKey, KeyError> {
        if let Some(given) = given {
            let hash = KeyHash::of(given);
            return if hash.is_well_known() {
                Err(KeyError::WellKnown)
            } else {
                Ok(OwnerKey { hash, generated: None })
            };
        }
        let owner = Caller::owner().id;
        let usable = |key: &&KeyRecord| !key.is_unused_first_key() && key.expires.is_none_or(|end| end > now);
        if let Some(key) = self.read()?.keys_of(&owner).find(usable) {
            return Ok(OwnerKey { hash: key.sha256, generated: None });
        }
        let key = generate_key()?;
        let author = ChangeAuthor { by: Caller::OWNER, now };
        let record = key_record(NewKey { caller: &owner, name: FIRST_KEY, expires: None }, &key, author)?;
        self.update(&mut |records| {
            records.keys.retain(|known| known.caller != owner || known.name != FIRST_KEY);
            records.insert_key(record.clone())
        })?;
        Ok(OwnerKey { hash: record.sha256, generated: Some(key) })
    }
}

/// Parses the expiry of a key: a time, a date in UTC, or a duration from now.
///
/// # Errors
/// If the string is none of them.
pub fn parse_expiry(text: &str, now: Timestamp) -> Result<Timestamp, KeyError> {
    let error = || KeyError::Expiry(text.to_owned());
    if let Ok(time) = text.parse::<Timestamp>() {
        return Ok(time);
    }
    if let Ok(day) = text.parse::<Date>() {
        return Ok(day.to_zoned(TimeZone::UTC).map_err(|_| error())?.timestamp());
    }
    let duration = text.parse::<HumanDuration>().map_err(|_| error())?;
    now.checked_add(duration.get()).map_err(|_| error())
}

/// Parses the time that a rotated key stays valid. `0` is none.
///
/// # Errors
/// If the string is not a duration.
pub fn parse_overlap(text: &str) -> Result<Duration, KeyError> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let duration = text.parse::<HumanDuration>().map_err(|_| KeyError::Expiry(text.to_owned()))?;
    Ok(duration.get())
}

fn key_record(new: NewKey<'_>, key: &Secret, author: ChangeAuthor<'_>) -> Result<KeyRecord, KeyError> {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '@');
    if !(1..=MAX_NAME_LENGTH).contains(&new.name.len()) || !new.name.chars().all(good) {
        return Err(KeyError::Name(new.name.to_owned()));
    }
    if new.expires.is_some_and(|expires| expires <= author.now) {
        return Err(KeyError::Expired);
    }
    Ok(KeyRecord {
        caller: new.caller.clone(),
        name: new.name.to_owned(),
        sha256: KeyHash::of(key.expose()),
        created: Some(author.now),
        by: Some(author.by.to_owned()),
        expires: new.expires,
        last_used: None,
    })
}

fn generate_key() -> Result<Secret, KeyError> {
    let mut bytes = [0; KEY_BYTES];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(Secret::new(format!("{KEY_PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes))))
}

fn default_name() -> String {
    DEFAULT_KEY.to_owned()
}

fn parse_string<'de, D: Deserializer<'de>, T: FromStr<Err: std::fmt::Display>>(
    deserializer: D,
) -> Result<T, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
}

fn parse_optional<'de, D: Deserializer<'de>, T: FromStr<Err: std::fmt::Display>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    parse_string(deserializer).map(Some)
}

fn parse_strings<'de, D: Deserializer<'de>, T: FromStr<Err: std::fmt::Display>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    texts.iter().map(|text| text.parse().map_err(de::Error::custom)).collect()
}
