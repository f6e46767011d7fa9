//! Branded IDs: a string in JSON, and in Rust the ID of one kind of thing.
//!
//! Invariant: an ID has 1 to [`MAX_ID_LENGTH`] printable characters, so it can be logged, quoted and compared.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Maximum length of an ID, in characters.
pub const MAX_ID_LENGTH: usize = 128;

/// ID of a `T`. IDs of different types cannot be mixed up:
///
/// ```compile_fail
/// # use toolgate_sdk::Id;
/// struct Card;
/// struct Deck;
/// fn deck(id: &Id<Deck>) {}
/// let card: Id<Card> = "card-1".parse().unwrap();
/// deck(&card);
/// ```
pub struct Id<T: ?Sized> {
    text: Box<str>,
    brand: PhantomData<fn() -> Box<T>>,
}

/// The string is not an ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an id has 1 to {MAX_ID_LENGTH} characters, and no white space or control characters among them")]
pub struct IdError;

impl<T: ?Sized> Id<T> {
    /// Creates an ID.
    ///
    /// # Errors
    /// If the string is empty, too long, or contains whitespace or control characters.
    pub fn new(text: impl Into<Box<str>>) -> Result<Self, IdError> {
        let text = text.into();
        let is_good = |c: char| !c.is_control() && !c.is_whitespace();
        let fits = !text.is_empty() && text.chars().count() <= MAX_ID_LENGTH;
        if fits && text.chars().all(is_good) { Ok(Self { text, brand: PhantomData }) } else { Err(IdError) }
    }

    /// Returns the ID as a string.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl<T: ?Sized> FromStr for Id<T> {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        Self::new(text)
    }
}

// Derived impls would demand the same traits of `T`, which is only a marker.
impl<T: ?Sized> Clone for Id<T> {
    fn clone(&self) -> Self {
        Self { text: self.text.clone(), brand: PhantomData }
    }
}

impl<T: ?Sized> PartialEq for Id<T> {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl<T: ?Sized> Eq for Id<T> {}

impl<T: ?Sized> PartialOrd for Id<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T: ?Sized> Ord for Id<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.text.cmp(&other.text)
    }
}

impl<T: ?Sized> Hash for Id<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl<T: ?Sized> fmt::Debug for Id<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(f)
    }
}

impl<T: ?Sized> fmt::Display for Id<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl<T: ?Sized> Serialize for Id<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de, T: ?Sized> Deserialize<'de> for Id<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

impl<T: ?Sized> JsonSchema for Id<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Id".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        // A pattern that every regular expression dialect reads in the same way.
        json_schema!({ "type": "string", "minLength": 1, "maxLength": MAX_ID_LENGTH, "pattern": r"^\S+$" })
    }
}

#[test]
fn validates_ids() {
    enum Card {}
    for good in ["card-1", "ü", &"x".repeat(MAX_ID_LENGTH)] {
        let id: Id<Card> = good.parse().unwrap();
        assert_eq!(serde_json::to_value(&id).unwrap(), good);
        assert_eq!(serde_json::from_value::<Id<Card>>(good.into()).unwrap(), id);
    }
    for bad in ["", " ", "a b", "a\n", &"x".repeat(MAX_ID_LENGTH + 1)] {
        assert!(bad.parse::<Id<Card>>().is_err(), "{bad:?}");
    }
}
