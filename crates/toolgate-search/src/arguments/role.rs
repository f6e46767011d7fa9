//! Roles: the kind of value that a parameter takes, derived from its schema, name and description.
//!
//! Invariant: a parameter of unknown role takes free text, and is never reported missing because of its role.

use crate::entry::{ToolParameter, ValueKind};
use crate::values::SpanKind;
use crate::words::split;

/// The kind of value a parameter takes, in the order of assignment: specific before general.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ParameterRole {
    Email,
    Url,
    Path,
    Date,
    Time,
    /// One value of an enum.
    Choice,
    /// A boolean.
    Flag,
    Number,
    /// A unique identifier that is not a word.
    Id,
    /// A unique identifier that may be a word.
    Handle,
    Place,
    /// The name of a person or a thing.
    Name,
    /// The number of results, for which users are never asked.
    Count,
    /// Lists and objects, which sentences rarely contain.
    Many,
    /// Any free text.
    Words,
}

/// Roles by the words of a parameter name. The first match wins.
const ROLE_WORDS: &[(ParameterRole, &[&str])] = &[
    (ParameterRole::Email, &["email", "mail"]),
    (ParameterRole::Url, &["url", "uri", "link", "website", "webpage"]),
    (ParameterRole::Path, &["path", "file", "filename", "filepath", "directory", "folder", "dir"]),
    (ParameterRole::Id, &["id", "uuid", "identifier", "token", "pid", "number"]),
    (ParameterRole::Handle, &["key", "symbol", "ticker", "host", "hostname", "namespace", "selector"]),
    (ParameterRole::Date, &["date", "day", "birthday", "deadline"]),
    (ParameterRole::Time, &["time", "hour"]),
    (
        ParameterRole::Place,
        &[
            "city",
            "location",
            "place",
            "address",
            "airport",
            "station",
            "country",
            "state",
            "region",
            "town",
            "loc",
            "origin",
            "destination",
            "area",
            "zip",
            "where",
        ],
    ),
    (
        ParameterRole::Name,
        &[
            "name",
            "username",
            "user",
            "receiver",
            "recipient",
            "person",
            "password",
            "contact",
            "currency",
            "language",
        ],
    ),
];

/// Words for the number of results.
const COUNT_WORDS: &[&str] =
    &["limit", "num", "max", "maximum", "count", "top", "page", "size", "per", "offset", "results", "depth"];

impl ParameterRole {
    pub(super) fn from_parameter(parameter: &ToolParameter) -> Self {
        let name = split(&parameter.name);
        match &parameter.kind {
            ValueKind::OneOf(_) => Self::Choice,
            ValueKind::Boolean => Self::Flag,
            ValueKind::Integer | ValueKind::Number => {
                let counts = name.iter().any(|word| COUNT_WORDS.contains(&word.as_str()));
                if counts { Self::Count } else { Self::Number }
            }
            ValueKind::List(_) | ValueKind::Group(_) | ValueKind::Other => Self::Many,
            ValueKind::Text => match Self::from_words(name.iter().rev()) {
                // If the name is not conclusive, the first conclusive word of the description decides.
                Self::Words => match Self::from_words(split(&parameter.description).iter()) {
                    told @ (Self::Email | Self::Url | Self::Path | Self::Date | Self::Time | Self::Place) => {
                        told
                    }
                    _ => Self::Words,
                },
                told => told,
            },
        }
    }

    /// Returns the role of the first word that has one. Names are passed in reverse: `file_name` is a name.
    fn from_words<'a>(mut words: impl Iterator<Item = &'a String>) -> Self {
        let of = |word: &String| {
            ROLE_WORDS.iter().find_map(|(role, words)| words.contains(&word.as_str()).then_some(*role))
        };
        words.find_map(of).unwrap_or(Self::Words)
    }

    /// Returns true if a value of this kind can be the argument.
    pub(super) fn accepts(self, said: &SpanKind) -> bool {
        match self {
            Self::Email => matches!(said, SpanKind::Email),
            Self::Url => matches!(said, SpanKind::Url),
            Self::Path => matches!(said, SpanKind::Path | SpanKind::Quoted | SpanKind::Code),
            Self::Date => matches!(said, SpanKind::Date(_)),
            Self::Time => matches!(said, SpanKind::Time(_)),
            Self::Number | Self::Count => matches!(said, SpanKind::Number(_)),
            Self::Id => matches!(said, SpanKind::Code | SpanKind::Number(_) | SpanKind::Quoted),
            Self::Handle => !matches!(said, SpanKind::Date(_) | SpanKind::Time(_)),
            Self::Place => matches!(said, SpanKind::Name | SpanKind::Quoted | SpanKind::Code),
            Self::Name => !matches!(said, SpanKind::Date(_) | SpanKind::Time(_) | SpanKind::Path),
            Self::Words => matches!(said, SpanKind::Quoted),
            Self::Choice | Self::Flag | Self::Many => false,
        }
    }

    /// Returns true if a value of another kind may stand for the argument: `Wikipedia` for a URL.
    pub(super) fn hints_at(self, said: &SpanKind) -> bool {
        let stands_for = matches!(said, SpanKind::Name | SpanKind::Quoted | SpanKind::Code | SpanKind::Url);
        matches!(self, Self::Email | Self::Url | Self::Path) && stands_for
    }
}
