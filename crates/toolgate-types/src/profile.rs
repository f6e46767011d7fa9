//! Profiles: named views of the catalog, each for one kind of client.
//!
//! A profile selects tools, prompts and resources, can rename and redescribe them, and sets how they are presented. It
//! grants nothing: a caller's permissions and the policy still decide. Binding a caller to profiles only narrows what
//! it sees. Invariant: profile names are unique, and every profile that a caller is bound to exists.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Serialize, Serializer};

use crate::caller::CallerId;
use crate::wildcard;

/// Maximum length of a name.
const MAX_NAME_LENGTH: usize = 64;
/// Path segment after `/sse/` that is not a profile.
const RESERVED: &str = "messages";

/// Name of a profile: the last segment of its URL.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct ProfileName(Arc<str>);

/// Reason why a string is not a profile name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProfileNameError {
    /// Wrong characters or length.
    #[error("a profile's name has 1 to {MAX_NAME_LENGTH} letters, digits, `_` and `-`")]
    Malformed,
    /// Used by another endpoint.
    #[error("`{RESERVED}` is reserved for another endpoint")]
    Reserved,
}

impl ProfileName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ProfileName {
    type Err = ProfileNameError;

    fn from_str(text: &str) -> Result<Self, ProfileNameError> {
        let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        if !(1..=MAX_NAME_LENGTH).contains(&text.len()) || !text.bytes().all(good) {
            return Err(ProfileNameError::Malformed);
        }
        if text == RESERVED { Err(ProfileNameError::Reserved) } else { Ok(Self(text.into())) }
    }
}

impl fmt::Display for ProfileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// View of the catalog.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Profile {
    pub name: ProfileName,
    /// Purpose, shown to models.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Selection of tools.
    pub tools: ProfileSelection,
    /// Selection of prompts.
    pub prompts: ProfileSelection,
    /// Selection of resources and resource templates, by URI.
    pub resources: ProfileSelection,
    /// Presentation of the tools: listed, or found by search.
    pub exposure: ToolExposure,
    /// Restricts tool schemas to the subset that this vendor's models accept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<SchemaDialect>,
    /// Hints in results over MCP.
    pub hints: HintsMode,
}

impl Profile {
    /// True if objects without fixed properties are passed as strings that contain JSON, as Gemini needs.
    pub fn wants_json_strings(&self) -> bool {
        matches!(self.provider, Some(SchemaDialect::Gemini | SchemaDialect::Any))
    }
}

/// Items of one kind that are part of a profile. In every pattern `*` matches any characters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ProfileSelection {
    /// Patterns of included items. `None` includes all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub include: Option<Vec<String>>,
    /// Patterns of items excluded from those.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
    /// Items presented under another name or description.
    #[serde(rename = "as", skip_serializing_if = "BTreeMap::is_empty")]
    pub overrides: BTreeMap<String, DisplayOverride>,
}

/// Name and description that replace an item's own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct DisplayOverride {
    /// New name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// New description.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

impl ProfileSelection {
    /// Returns true if an item with any of these names is part of the selection.
    pub fn contains(&self, names: &[&str]) -> bool {
        let matches = |pattern: &String| names.iter().any(|name| wildcard::matches(pattern, name));
        self.include.as_ref().is_none_or(|patterns| patterns.iter().any(matches)) && !self.excludes(names)
    }

    /// Returns true if an item with any of these names is excluded explicitly.
    pub fn excludes(&self, names: &[&str]) -> bool {
        self.exclude.iter().any(|pattern| names.iter().any(|name| wildcard::matches(pattern, name)))
    }

    /// Returns the override of an item with any of these names.
    pub fn override_for(&self, names: &[&str]) -> Option<&DisplayOverride> {
        names.iter().find_map(|name| self.overrides.get(*name))
    }

    /// Returns every pattern; each should match an item.
    pub fn patterns(&self) -> impl Iterator<Item = &str> {
        let included = self.include.iter().flatten().chain(&self.exclude).map(String::as_str);
        included.chain(self.overrides.keys().map(String::as_str))
    }
}

/// Presentation of tools to a client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolExposure {
    /// Lists every tool.
    #[default]
    Full,
    /// Lists only meta tools, which find, describe and call the others.
    Search,
    /// Lists a tool that runs programs, with the others as functions, and one that finds functions.
    Code,
}

/// Vendor whose models read the tool schemas. Each accepts another subset of JSON Schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SchemaDialect {
    /// OpenAI and compatible APIs.
    Openai,
    Anthropic,
    /// Google Gemini.
    Gemini,
    /// Any vendor: the subset that all of them accept.
    Any,
}

/// Hints in a result over MCP.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HintsMode {
    /// In `_meta`, and only hints that the client can act on.
    #[default]
    Brief,
    /// None.
    Off,
    /// The hints of `Brief`, as one line of text content that models read.
    Text,
    /// All hints and metadata, in `_meta`.
    Full,
}

/// Profiles that a caller uses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ProfileChoice {
    /// Profile used if the caller names none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<ProfileName>,
    /// Profiles the caller is bound to. `None`: it may use every profile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub only: Option<Vec<ProfileName>>,
}

/// No such profile, or not available to this caller; the caller cannot tell the difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no such profile")]
pub struct UnknownProfile;

/// All profiles, and the callers' choices.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Profiles {
    /// In the order of the file.
    pub all: Vec<Arc<Profile>>,
    /// Choices by caller; callers without one may use every profile.
    pub choices: BTreeMap<CallerId, ProfileChoice>,
    /// Hints in results over MCP for clients without a profile.
    pub hints: HintsMode,
}

impl Profiles {
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns the profile that a caller uses: the one it names, or else its default. `None` is the whole catalog.
    ///
    /// # Errors
    /// If there is no such profile, or the caller is not bound to it.
    pub fn resolve(
        &self,
        caller: &CallerId,
        named: Option<&str>,
    ) -> Result<Option<&Arc<Profile>>, UnknownProfile> {
        let choice = self.choices.get(caller);
        let Some(name) = named.or_else(|| choice.and_then(ProfileChoice::default_name)) else {
            // A caller bound to an empty list must not see the whole catalog.
            return if choice.is_some_and(|choice| choice.only.is_some()) {
                Err(UnknownProfile)
            } else {
                Ok(None)
            };
        };
        if !choice.is_none_or(|choice| choice.allows(name)) {
            return Err(UnknownProfile);
        }
        self.all.iter().find(|profile| profile.name.as_str() == name).map(Some).ok_or(UnknownProfile)
    }

    /// Returns the profiles a caller is bound to; `None` if it is not bound.
    pub fn bound_profiles(&self, caller: &CallerId) -> Option<impl Iterator<Item = &Arc<Profile>>> {
        let choice = self.choices.get(caller).filter(|choice| choice.only.is_some())?;
        Some(self.all.iter().filter(|profile| choice.allows(profile.name.as_str())))
    }
}

impl ProfileChoice {
    fn allows(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only.iter().any(|one| one.as_str() == name))
    }

    /// Falls back to the first bound profile, since a bound caller never sees the whole catalog.
    fn default_name(&self) -> Option<&str> {
        let first = || self.only.as_ref().and_then(|only| only.first());
        self.default.as_ref().or_else(first).map(ProfileName::as_str)
    }
}

impl Serialize for Profiles {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let all: BTreeMap<_, _> = self.all.iter().map(|profile| (&profile.name, &**profile)).collect();
        let mut fields = serializer.serialize_struct("Profiles", 3)?;
        fields.serialize_field("all", &all)?;
        fields.serialize_field("callers", &self.choices)?;
        fields.serialize_field("hints", &self.hints)?;
        fields.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(name: &str) -> Arc<Profile> {
        Arc::new(Profile {
            name: name.parse().unwrap(),
            description: None,
            tools: ProfileSelection::default(),
            prompts: ProfileSelection::default(),
            resources: ProfileSelection::default(),
            exposure: ToolExposure::Full,
            provider: None,
            hints: HintsMode::Brief,
        })
    }

    #[test]
    fn validates_names() {
        for good in ["a", "coding", "Team_1", "a-b"] {
            assert_eq!(good.parse::<ProfileName>().unwrap().as_str(), good);
        }
        for bad in ["", "a/b", "a.b", "ä", " a", "%2e"] {
            assert_eq!(bad.parse::<ProfileName>(), Err(ProfileNameError::Malformed), "{bad}");
        }
        assert!("a".repeat(65).parse::<ProfileName>().is_err());
        assert_eq!("messages".parse::<ProfileName>(), Err(ProfileNameError::Reserved));
    }

    #[test]
    fn selects_by_pattern() {
        let words = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
        let all = ProfileSelection::default();
        assert!(all.contains(&["anything"]));
        let some = ProfileSelection {
            include: Some(words(&["github__*", "echo"])),
            exclude: words(&["*delete*"]),
            overrides: BTreeMap::new(),
        };
        for (names, due) in [
            (&["echo"][..], true),
            (&["search", "github__search"], true),
            (&["delete_repo", "github__delete_repo"], false),
            (&["other"], false),
        ] {
            assert_eq!(some.contains(names), due, "{names:?}");
        }
        assert!(
            !ProfileSelection { include: Some(Vec::new()), ..ProfileSelection::default() }
                .contains(&["echo"])
        );
    }

    #[test]
    fn resolves_profile_of_caller() {
        let choice = |default: Option<&str>, only: Option<&[&str]>| ProfileChoice {
            default: default.map(|name| name.parse().unwrap()),
            only: only.map(|names| names.iter().map(|name| name.parse().unwrap()).collect()),
        };
        let profiles = Profiles {
            all: ["a", "b", "c"].map(profile).to_vec(),
            choices: [
                ("default", choice(Some("b"), None)),
                ("bound", choice(None, Some(&["c", "a"]))),
                ("both", choice(Some("a"), Some(&["c", "a"]))),
                ("none", choice(None, Some(&[]))),
            ]
            .into_iter()
            .map(|(id, choice)| (id.parse().unwrap(), choice))
            .collect(),
            hints: HintsMode::Brief,
        };
        let seen = |caller: &str, named: Option<&str>| {
            let found = profiles.resolve(&caller.parse().unwrap(), named);
            found.map(|profile| profile.map(|profile| profile.name.to_string()))
        };
        for (caller, named, due) in [
            ("anyone", None, Ok(None)),
            ("anyone", Some("a"), Ok(Some("a"))),
            ("anyone", Some("x"), Err(UnknownProfile)),
            ("default", None, Ok(Some("b"))),
            ("default", Some("c"), Ok(Some("c"))),
            ("bound", None, Ok(Some("c"))),
            ("bound", Some("a"), Ok(Some("a"))),
            ("bound", Some("b"), Err(UnknownProfile)),
            ("bound", Some("x"), Err(UnknownProfile)),
            ("both", None, Ok(Some("a"))),
            ("none", None, Err(UnknownProfile)),
            ("none", Some("a"), Err(UnknownProfile)),
        ] {
            let due = due.map(|name: Option<&str>| name.map(str::to_owned));
            assert_eq!(seen(caller, named), due, "{caller} {named:?}");
        }
        let bound = |caller: &str| {
            let caller = caller.parse().unwrap();
            let bound = profiles.bound_profiles(&caller);
            bound.map(|bound| bound.map(|profile| profile.name.to_string()).collect::<Vec<_>>())
        };
        assert_eq!((bound("anyone"), bound("default")), (None, None));
        assert_eq!(bound("bound"), Some(vec!["a".to_owned(), "c".to_owned()]));
        assert_eq!((bound("both"), bound("none")), (bound("bound"), Some(Vec::new())));
    }
}
