//! Callers, their permissions, and the groups they are in.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::Serialize;

use crate::tool::Permission;

/// Maximum length of a caller ID.
const MAX_ID_LENGTH: usize = 128;

/// ID of a caller: an agent, a program, a person.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct CallerId(Arc<str>);

/// The string is not a caller ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the id of a caller has 1 to {MAX_ID_LENGTH} letters, digits and `. _ - @ : /`")]
pub struct CallerIdError;

impl CallerId {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The id, to be shared without a copy.
    pub fn shared(&self) -> &Arc<str> {
        &self.0
    }
}

impl FromStr for CallerId {
    type Err = CallerIdError;

    fn from_str(text: &str) -> Result<Self, CallerIdError> {
        if is_id(text) { Ok(Self(text.into())) } else { Err(CallerIdError) }
    }
}

/// Returns true for the id of a caller or the name of a group.
fn is_id(text: &str) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '@' | ':' | '/');
    (1..=MAX_ID_LENGTH).contains(&text.len()) && text.chars().all(good)
}

impl fmt::Display for CallerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Name of a group of callers.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct GroupName(Arc<str>);

/// The string is not the name of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the name of a group has 1 to {MAX_ID_LENGTH} letters, digits and `. _ - @ : /`")]
pub struct GroupNameError;

impl GroupName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for GroupName {
    type Err = GroupNameError;

    fn from_str(text: &str) -> Result<Self, GroupNameError> {
        if is_id(text) { Ok(Self(text.into())) } else { Err(GroupNameError) }
    }
}

impl fmt::Display for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A group of callers. Its permissions are those of every member; rules of the policy can name it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Group {
    pub name: GroupName,
    /// Permissions granted to every member. Empty: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub permissions: Vec<PermissionPattern>,
}

/// An authenticated caller, its permissions and its groups.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Caller {
    pub id: CallerId,
    /// Permissions granted to it, besides those of its groups. Empty: none.
    pub permissions: Vec<PermissionPattern>,
    /// Groups that it is in.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "serialize_group_names")]
    pub groups: Vec<Arc<Group>>,
    /// Person responsible for it, for the execution log. Decides nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub person: Option<Arc<str>>,
    /// Name of the credential that authenticated it, for the execution log. Decides nothing.
    #[serde(skip)]
    pub credential: Option<Arc<str>>,
}

fn serialize_group_names<S: serde::Serializer>(
    groups: &[Arc<Group>],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(groups.iter().map(|group| &group.name))
}

impl Caller {
    /// ID of the person who owns the machine.
    pub const OWNER: &'static str = "owner";
    /// ID of callers without a credential.
    pub const ANONYMOUS: &'static str = "anonymous";

    /// Owner with every permission, used unless the configuration restricts it: it owns the files anyway.
    pub fn owner() -> Self {
        let permissions = vec![PermissionPattern { resource: PatternWord::Any, action: PatternWord::Any }];
        Self::new(CallerId(Self::OWNER.into()), permissions)
    }

    /// Creates a caller in no group.
    pub fn new(id: CallerId, permissions: Vec<PermissionPattern>) -> Self {
        Self { id, permissions, groups: Vec::new(), person: None, credential: None }
    }

    /// The permissions of the caller and of its groups.
    pub fn all_permissions(&self) -> impl Iterator<Item = &PermissionPattern> {
        self.permissions.iter().chain(self.groups.iter().flat_map(|group| &group.permissions))
    }

    /// Returns true if two callers are the same to the policy.
    pub fn has_same_rights(&self, other: &Self) -> bool {
        self.id == other.id && self.permissions == other.permissions && self.groups == other.groups
    }

    pub fn is_in_group(&self, name: &str) -> bool {
        self.groups.iter().any(|group| group.name.as_str() == name)
    }

    /// Returns the group that grants a permission, if the caller has it through a group only.
    pub fn granting_group(&self, permission: &Permission) -> Option<&GroupName> {
        if self.permissions.iter().any(|pattern| pattern.covers(permission)) {
            return None;
        }
        let grants = |group: &&Arc<Group>| group.permissions.iter().any(|pattern| pattern.covers(permission));
        self.groups.iter().find(grants).map(|group| &group.name)
    }

    pub fn has_permission(&self, permission: &Permission) -> bool {
        self.all_permissions().any(|pattern| pattern.covers(permission))
    }

    /// Returns true if a permission was granted by its exact name. Wildcards do not count: some permissions must be
    /// granted deliberately.
    pub fn has_explicit_permission(&self, permission: &Permission) -> bool {
        let named = |pattern: &PermissionPattern| {
            pattern.resource != PatternWord::Any
                && pattern.action != PatternWord::Any
                && pattern.covers(permission)
        };
        self.all_permissions().any(named)
    }

    /// Returns true if the caller has every permission a pattern covers, and so may grant the pattern to others.
    pub fn can_grant(&self, pattern: &PermissionPattern) -> bool {
        self.all_permissions().any(|own| own.includes(pattern))
    }

    /// Returns true if the caller has any permission on the resource of `permission`.
    pub fn has_any_permission_on(&self, permission: &Permission) -> bool {
        self.all_permissions().any(|pattern| pattern.resource.covers(permission.resource()))
    }
}

/// The identity that a server sees behind the calls of a caller. By name: no secret is in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamIdentity {
    /// Name of the credential that the server got.
    pub credential: Arc<str>,
    /// Account at the server, if it is known.
    pub account: Option<Arc<str>>,
}

/// Permissions granted to a caller: `cards:create`, `cards:*`, `*:read`, `*:*`. A star replaces a whole word, never a
/// part of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermissionPattern {
    resource: PatternWord,
    action: PatternWord,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum PatternWord {
    Any,
    One(Box<str>),
}

impl PatternWord {
    fn covers(&self, word: &str) -> bool {
        match self {
            Self::Any => true,
            Self::One(one) => &**one == word,
        }
    }
}

/// The string is not a permission pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a permission is given as `resource:action`, each a word or `*`, such as `cards:*`")]
pub struct PermissionPatternError;

impl PermissionPattern {
    pub fn covers(&self, permission: &Permission) -> bool {
        self.resource.covers(permission.resource()) && self.action.covers(permission.action())
    }

    /// Returns true if this pattern covers everything that `other` covers.
    pub fn includes(&self, other: &Self) -> bool {
        let word = |own: &PatternWord, other: &PatternWord| *own == PatternWord::Any || own == other;
        word(&self.resource, &other.resource) && word(&self.action, &other.action)
    }
}

impl FromStr for PermissionPattern {
    type Err = PermissionPatternError;

    fn from_str(text: &str) -> Result<Self, PermissionPatternError> {
        let (resource, action) = text.split_once(':').ok_or(PermissionPatternError)?;
        // With every star replaced by a word, the rest must be a valid permission.
        let plain = |text: &'_ str| if text == "*" { "x".to_owned() } else { text.to_owned() };
        format!("{}:{}", plain(resource), plain(action))
            .parse::<Permission>()
            .map_err(|_| PermissionPatternError)?;
        let word = |text: &str| if text == "*" { PatternWord::Any } else { PatternWord::One(text.into()) };
        let (resource, action) = (word(resource), word(action));
        Ok(Self { resource, action })
    }
}

impl fmt::Display for PermissionPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |word: &PatternWord| match word {
            PatternWord::Any => "*".to_owned(),
            PatternWord::One(one) => one.to_string(),
        };
        write!(f, "{}:{}", word(&self.resource), word(&self.action))
    }
}

impl Serialize for PermissionPattern {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn covers(pattern: &str, permission: &str) -> bool {
        let pattern: PermissionPattern = pattern.parse().unwrap();
        pattern.covers(&permission.parse().unwrap())
    }

    #[test]
    fn stars_match_whole_words() {
        assert!(covers("cards:create", "cards:create"));
        assert!(covers("cards:*", "cards:create") && covers("*:read", "cards:read") && covers("*:*", "a:b"));
        assert!(!covers("cards:create", "cards:read"));
        assert!(!covers("cards:*", "card:read") && !covers("*:read", "cards:reads"));
        for bad in ["*", "cards", "car*:read", "cards:re*", ":*", "*:", "a:b:c", "a b:c", "**:*"] {
            assert!(bad.parse::<PermissionPattern>().is_err(), "{bad}");
        }
    }

    #[test]
    fn callers_can_grant_only_what_they_have() {
        let has = |own: &[&str], other: &str| {
            let permissions = own.iter().map(|pattern| pattern.parse().unwrap()).collect();
            Caller::new("ann".parse().unwrap(), permissions).can_grant(&other.parse().unwrap())
        };
        assert!(has(&["*:*"], "mail:*") && has(&["mail:*"], "mail:read") && has(&["mail:*"], "mail:*"));
        assert!(has(&["mail:read", "s:*"], "s:x") && has(&["*:read"], "mail:read"));
        assert!(!has(&["mail:*"], "*:*") && !has(&["mail:read"], "mail:*") && !has(&["*:read"], "mail:*"));
        assert!(!has(&["mail:*", "*:read"], "*:*") && !has(&[], "mail:read") && !has(&["mail:*"], "*:read"));
    }

    #[test]
    fn groups_grant_their_permissions() {
        let group = |name: &str, permission: &str| {
            let permissions = vec![permission.parse().unwrap()];
            Arc::new(Group { name: name.parse().unwrap(), permissions })
        };
        let own = vec!["mail:read".parse().unwrap()];
        let groups = vec![group("ops", "cards:*"), group("exec", "servers:exec")];
        let ann = Caller { groups, ..Caller::new("ann".parse().unwrap(), own) };
        let permission = |text: &str| text.parse::<Permission>().unwrap();
        let through = |text: &str| ann.granting_group(&permission(text)).map(GroupName::as_str);
        assert!(ann.has_permission(&permission("mail:read")) && through("mail:read").is_none());
        assert!(ann.has_permission(&permission("cards:create")) && through("cards:create") == Some("ops"));
        assert!(!ann.has_permission(&permission("mail:send")) && through("mail:send").is_none());
        assert!(ann.has_explicit_permission(&permission("servers:exec")));
        assert!(ann.can_grant(&"cards:read".parse().unwrap()) && ann.is_in_group("ops"));
        assert!(!ann.is_in_group("owner") && "a b".parse::<GroupName>().is_err());
    }

    #[test]
    fn validates_ids() {
        assert!("ann@example.com".parse::<CallerId>().is_ok());
        for bad in ["", "a b", "a\nb", "ä", &"x".repeat(129)] {
            assert!(bad.parse::<CallerId>().is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn pattern_covers_by_words(resource in "[a-z]{1,3}|\\*", action in "[a-z]{1,3}|\\*", permission in "[a-z]{1,3}:[a-z]{1,3}") {
            let (r, a) = permission.split_once(':').unwrap();
            let expected = (resource == "*" || resource == r) && (action == "*" || action == a);
            prop_assert_eq!(covers(&format!("{resource}:{action}"), &permission), expected);
        }

        #[test]
        fn pattern_round_trips(text in "([a-z]{1,4}|\\*):([a-z]{1,4}|\\*)") {
            prop_assert_eq!(text.parse::<PermissionPattern>().unwrap().to_string(), text);
        }
    }
}
