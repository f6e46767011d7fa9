//! Profiles: named views of what there is, each for a kind of client.
//!
//! A profile chooses tools, prompts and resources, gives them other names and words, and says how they are shown. It
//! gives nobody anything: what a caller may do is up to its permissions and the policy. Who is bound to some has less.
//! Invariant: two profiles of one project have different names, and whatever a caller is bound to exists.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Serialize, Serializer};

use crate::caller::CallerId;
use crate::wildcard;

/// The longest name.
const LONGEST: usize = 64;
/// What follows `/sse/` and is no profile.
const TAKEN: &str = "messages";

/// The name of a profile, which is the end of its address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct ProfileName(Arc<str>);

/// A text is not the name of a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProfileNameError {
    /// It has other characters, none, or too many.
    #[error("a profile's name has 1 to {LONGEST} letters, digits, `_` and `-`")]
    Shape,
    /// It is the end of another address.
    #[error("`{TAKEN}` is the end of another address")]
    Taken,
}

impl ProfileName {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ProfileName {
    type Err = ProfileNameError;

    fn from_str(text: &str) -> Result<Self, ProfileNameError> {
        let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        if !(1..=LONGEST).contains(&text.len()) || !text.bytes().all(good) {
            return Err(ProfileNameError::Shape);
        }
        if text == TAKEN { Err(ProfileNameError::Taken) } else { Ok(Self(text.into())) }
    }
}

impl fmt::Display for ProfileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A view of what there is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Profile {
    /// Its name.
    pub name: ProfileName,
    /// What it is for, which models are told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Which tools, and as what.
    pub tools: Selection,
    /// Which prompts, and as what.
    pub prompts: Selection,
    /// Which resources and templates, by their addresses, and as what.
    pub resources: Selection,
    /// Whether tools are listed or searched for.
    pub exposure: Exposure,
    /// Whose models read the definitions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<Provider>,
    /// Where hints are.
    pub hints: HintsPlace,
}

impl Profile {
    /// Whether objects of any shape are written as the text of their JSON.
    pub fn takes_text(&self) -> bool {
        matches!(self.provider, Some(Provider::Gemini | Provider::Any))
    }
}

/// What of a kind is part of a profile. `*` in a word stands for any text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Selection {
    /// What is; all where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub include: Option<Vec<String>>,
    /// What of that is not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
    /// What is shown as something else.
    #[serde(rename = "as", skip_serializing_if = "BTreeMap::is_empty")]
    pub shown: BTreeMap<String, ShownAs>,
}

/// As what something is shown.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ShownAs {
    /// Under this name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// With this description.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

impl Selection {
    /// Whether something that has these names is part of it.
    pub fn has(&self, names: &[&str]) -> bool {
        let fits = |word: &String| names.iter().any(|name| wildcard::fits(word, name));
        self.include.as_ref().is_none_or(|words| words.iter().any(fits)) && !self.excludes(names)
    }

    /// Whether something that has these names is left out in so many words.
    pub fn excludes(&self, names: &[&str]) -> bool {
        self.exclude.iter().any(|word| names.iter().any(|name| wildcard::fits(word, name)))
    }

    /// As what something is shown that has these names.
    pub fn shown_as(&self, names: &[&str]) -> Option<&ShownAs> {
        names.iter().find_map(|name| self.shown.get(*name))
    }

    /// Every word that should fit something.
    pub fn words(&self) -> impl Iterator<Item = &str> {
        let included = self.include.iter().flatten().chain(&self.exclude).map(String::as_str);
        included.chain(self.shown.keys().map(String::as_str))
    }
}

/// How a client comes to the tools.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Exposure {
    /// It is given all of them.
    #[default]
    Full,
    /// It is given tools to find, describe and call them.
    Search,
}

/// Whose models read definitions: each refuses other things.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Provider {
    /// OpenAI, and those that speak its language.
    Openai,
    /// Anthropic.
    Anthropic,
    /// Google.
    Gemini,
    /// Whoever it is: what any of them refuses is not there.
    Any,
}

/// Where hints are found beside a result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HintsPlace {
    /// In `_meta` alone.
    #[default]
    Meta,
    /// In `_meta`, and in a text for models.
    Text,
}

/// Which profiles a caller uses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Choice {
    /// What it sees where it names none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<ProfileName>,
    /// The only ones it may use, where that is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub only: Option<Vec<ProfileName>>,
}

/// There is no such profile, or none for this caller, which is the same to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("there is no such profile")]
pub struct NoProfile;

/// All profiles, and who uses which.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Profiles {
    /// In the order of the file.
    pub all: Vec<Arc<Profile>>,
    /// For callers of which something is said.
    pub choices: BTreeMap<CallerId, Choice>,
}

impl Profiles {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The profile that a caller sees: the one that it names, or else its own. `None` is everything.
    ///
    /// # Errors
    /// When there is no such profile, as far as this caller may know.
    pub fn of(&self, caller: &CallerId, named: Option<&str>) -> Result<Option<&Arc<Profile>>, NoProfile> {
        let choice = self.choices.get(caller);
        let Some(name) = named.or_else(|| choice.and_then(Choice::usual)) else {
            // Who may use none is not shown everything.
            return if choice.is_some_and(|choice| choice.only.is_some()) {
                Err(NoProfile)
            } else {
                Ok(None)
            };
        };
        if !choice.is_none_or(|choice| choice.allows(name)) {
            return Err(NoProfile);
        }
        self.all.iter().find(|profile| profile.name.as_str() == name).map(Some).ok_or(NoProfile)
    }

    /// The only profiles that a caller may use; `None` where it is bound to none.
    pub fn bound(&self, caller: &CallerId) -> Option<impl Iterator<Item = &Arc<Profile>>> {
        let choice = self.choices.get(caller).filter(|choice| choice.only.is_some())?;
        Some(self.all.iter().filter(|profile| choice.allows(profile.name.as_str())))
    }
}

impl Choice {
    fn allows(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only.iter().any(|one| one.as_str() == name))
    }

    /// Who may use some and says nothing gets the first of them.
    fn usual(&self) -> Option<&str> {
        let first = || self.only.as_ref().and_then(|only| only.first());
        self.default.as_ref().or_else(first).map(ProfileName::as_str)
    }
}

impl Serialize for Profiles {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let all: BTreeMap<_, _> = self.all.iter().map(|profile| (&profile.name, &**profile)).collect();
        let mut fields = serializer.serialize_struct("Profiles", 2)?;
        fields.serialize_field("all", &all)?;
        fields.serialize_field("callers", &self.choices)?;
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
            tools: Selection::default(),
            prompts: Selection::default(),
            resources: Selection::default(),
            exposure: Exposure::Full,
            provider: None,
            hints: HintsPlace::Meta,
        })
    }

    #[test]
    fn names() {
        for good in ["a", "coding", "Team_1", "a-b"] {
            assert_eq!(good.parse::<ProfileName>().unwrap().as_str(), good);
        }
        for bad in ["", "a/b", "a.b", "ä", " a", "%2e"] {
            assert_eq!(bad.parse::<ProfileName>(), Err(ProfileNameError::Shape), "{bad}");
        }
        assert!("a".repeat(65).parse::<ProfileName>().is_err());
        assert_eq!("messages".parse::<ProfileName>(), Err(ProfileNameError::Taken));
    }

    #[test]
    fn selections() {
        let words = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
        let all = Selection::default();
        assert!(all.has(&["anything"]));
        let some = Selection {
            include: Some(words(&["github__*", "echo"])),
            exclude: words(&["*delete*"]),
            shown: BTreeMap::new(),
        };
        for (names, due) in [
            (&["echo"][..], true),
            (&["search", "github__search"], true),
            (&["delete_repo", "github__delete_repo"], false),
            (&["other"], false),
        ] {
            assert_eq!(some.has(names), due, "{names:?}");
        }
        assert!(!Selection { include: Some(Vec::new()), ..Selection::default() }.has(&["echo"]));
    }

    #[test]
    fn who_sees_which() {
        let choice = |default: Option<&str>, only: Option<&[&str]>| Choice {
            default: default.map(|name| name.parse().unwrap()),
            only: only.map(|names| names.iter().map(|name| name.parse().unwrap()).collect()),
        };
        let profiles = Profiles {
            all: ["a", "b", "c"].map(profile).to_vec(),
            choices: [
                ("usual", choice(Some("b"), None)),
                ("bound", choice(None, Some(&["c", "a"]))),
                ("both", choice(Some("a"), Some(&["c", "a"]))),
                ("none", choice(None, Some(&[]))),
            ]
            .into_iter()
            .map(|(id, choice)| (id.parse().unwrap(), choice))
            .collect(),
        };
        let seen = |caller: &str, named: Option<&str>| {
            let found = profiles.of(&caller.parse().unwrap(), named);
            found.map(|profile| profile.map(|profile| profile.name.to_string()))
        };
        for (caller, named, due) in [
            ("anyone", None, Ok(None)),
            ("anyone", Some("a"), Ok(Some("a"))),
            ("anyone", Some("x"), Err(NoProfile)),
            ("usual", None, Ok(Some("b"))),
            ("usual", Some("c"), Ok(Some("c"))),
            ("bound", None, Ok(Some("c"))),
            ("bound", Some("a"), Ok(Some("a"))),
            ("bound", Some("b"), Err(NoProfile)),
            ("bound", Some("x"), Err(NoProfile)),
            ("both", None, Ok(Some("a"))),
            ("none", None, Err(NoProfile)),
            ("none", Some("a"), Err(NoProfile)),
        ] {
            let due = due.map(|name: Option<&str>| name.map(str::to_owned));
            assert_eq!(seen(caller, named), due, "{caller} {named:?}");
        }
        let bound = |caller: &str| {
            let caller = caller.parse().unwrap();
            let bound = profiles.bound(&caller);
            bound.map(|bound| bound.map(|profile| profile.name.to_string()).collect::<Vec<_>>())
        };
        assert_eq!((bound("anyone"), bound("usual")), (None, None));
        assert_eq!(bound("bound"), Some(vec!["a".to_owned(), "c".to_owned()]));
        assert_eq!((bound("both"), bound("none")), (bound("bound"), Some(Vec::new())));
    }
}
