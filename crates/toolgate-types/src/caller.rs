//! Who calls, and what it may do.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::Serialize;

use crate::tool::Permission;

/// The longest id of a caller.
const LONGEST_ID: usize = 128;

/// Who calls: an agent, a program, a person.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct CallerId(Arc<str>);

/// A text is not the id of a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the id of a caller has 1 to {LONGEST_ID} letters, digits and `. _ - @ : /`")]
pub struct CallerIdError;

impl CallerId {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for CallerId {
    type Err = CallerIdError;

    fn from_str(text: &str) -> Result<Self, CallerIdError> {
        let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '@' | ':' | '/');
        let fits = (1..=LONGEST_ID).contains(&text.len()) && text.chars().all(good);
        if fits { Ok(Self(text.into())) } else { Err(CallerIdError) }
    }
}

impl fmt::Display for CallerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A caller with what it was given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Caller {
    /// Who it is.
    pub id: CallerId,
    /// What it may do; nothing where it is empty.
    pub permissions: Vec<PermissionPattern>,
}

impl Caller {
    /// The person at the machine.
    pub const OWNER: &'static str = "owner";
    /// Whoever says nothing of itself.
    pub const ANONYMOUS: &'static str = "anonymous";

    /// The person at the machine where nothing is said about it: whoever sits there owns what is on it.
    pub fn owner() -> Self {
        let permissions = vec![PermissionPattern { resource: Word::Any, action: Word::Any }];
        Self { id: CallerId(Self::OWNER.into()), permissions }
    }

    /// Whether it was given a permission.
    pub fn has(&self, permission: &Permission) -> bool {
        self.permissions.iter().any(|pattern| pattern.covers(permission))
    }

    /// Whether it was given a permission by its name. A star does not count: some things are only for whom somebody
    /// meant to have them.
    pub fn has_by_name(&self, permission: &Permission) -> bool {
        let named = |pattern: &PermissionPattern| {
            pattern.resource != Word::Any && pattern.action != Word::Any && pattern.covers(permission)
        };
        self.permissions.iter().any(named)
    }

    /// Whether it has all that a pattern gives, and so may give it to another.
    pub fn has_all_of(&self, pattern: &PermissionPattern) -> bool {
        self.permissions.iter().any(|own| own.includes(pattern))
    }

    /// Whether it was given anything on what a permission is about.
    pub fn knows_of(&self, permission: &Permission) -> bool {
        self.permissions.iter().any(|pattern| pattern.resource.covers(permission.resource()))
    }
}

/// Permissions that a caller is given: `cards:create`, `cards:*`, `*:read`, `*:*`. A star stands for a
/// whole word, and for nothing less.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermissionPattern {
    resource: Word,
    action: Word,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Word {
    Any,
    One(Box<str>),
}

impl Word {
    fn covers(&self, word: &str) -> bool {
        match self {
            Self::Any => true,
            Self::One(one) => &**one == word,
        }
    }
}

/// A text is not a pattern of permissions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a permission is given as `resource:action`, each a word or `*`, such as `cards:*`")]
pub struct PatternError;

impl PermissionPattern {
    /// Whether it gives a permission.
    pub fn covers(&self, permission: &Permission) -> bool {
        self.resource.covers(permission.resource()) && self.action.covers(permission.action())
    }

    /// Whether it gives all that another one gives.
    pub fn includes(&self, other: &Self) -> bool {
        let word = |own: &Word, other: &Word| *own == Word::Any || own == other;
        word(&self.resource, &other.resource) && word(&self.action, &other.action)
    }
}

impl FromStr for PermissionPattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        let (resource, action) = text.split_once(':').ok_or(PatternError)?;
        // Whatever is not a star must make a permission.
        let plain = |text: &'_ str| if text == "*" { "x".to_owned() } else { text.to_owned() };
        format!("{}:{}", plain(resource), plain(action)).parse::<Permission>().map_err(|_| PatternError)?;
        let word = |text: &str| if text == "*" { Word::Any } else { Word::One(text.into()) };
        let (resource, action) = (word(resource), word(action));
        Ok(Self { resource, action })
    }
}

impl fmt::Display for PermissionPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |word: &Word| match word {
            Word::Any => "*".to_owned(),
            Word::One(one) => one.to_string(),
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
    fn stars_stand_for_whole_words() {
        assert!(covers("cards:create", "cards:create"));
        assert!(covers("cards:*", "cards:create") && covers("*:read", "cards:read") && covers("*:*", "a:b"));
        assert!(!covers("cards:create", "cards:read"));
        assert!(!covers("cards:*", "card:read") && !covers("*:read", "cards:reads"));
        for bad in ["*", "cards", "car*:read", "cards:re*", ":*", "*:", "a:b:c", "a b:c", "**:*"] {
            assert!(bad.parse::<PermissionPattern>().is_err(), "{bad}");
        }
    }

    #[test]
    fn nobody_gives_more_than_it_has() {
        let has = |own: &[&str], other: &str| {
            let permissions = own.iter().map(|pattern| pattern.parse().unwrap()).collect();
            Caller { id: "ann".parse().unwrap(), permissions }.has_all_of(&other.parse().unwrap())
        };
        assert!(has(&["*:*"], "mail:*") && has(&["mail:*"], "mail:read") && has(&["mail:*"], "mail:*"));
        assert!(has(&["mail:read", "s:*"], "s:x") && has(&["*:read"], "mail:read"));
        assert!(!has(&["mail:*"], "*:*") && !has(&["mail:read"], "mail:*") && !has(&["*:read"], "mail:*"));
        assert!(!has(&["mail:*", "*:read"], "*:*") && !has(&[], "mail:read") && !has(&["mail:*"], "*:read"));
    }

    #[test]
    fn ids() {
        assert!("ann@example.com".parse::<CallerId>().is_ok());
        for bad in ["", "a b", "a\nb", "ä", &"x".repeat(129)] {
            assert!(bad.parse::<CallerId>().is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn a_pattern_covers_what_its_words_cover(resource in "[a-z]{1,3}|\\*", action in "[a-z]{1,3}|\\*", permission in "[a-z]{1,3}:[a-z]{1,3}") {
            let (r, a) = permission.split_once(':').unwrap();
            let expected = (resource == "*" || resource == r) && (action == "*" || action == a);
            prop_assert_eq!(covers(&format!("{resource}:{action}"), &permission), expected);
        }

        #[test]
        fn a_pattern_reads_as_it_is_written(text in "([a-z]{1,4}|\\*):([a-z]{1,4}|\\*)") {
            prop_assert_eq!(text.parse::<PermissionPattern>().unwrap().to_string(), text);
        }
    }
}
