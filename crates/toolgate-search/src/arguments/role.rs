//! Roles: what kind of value a parameter takes, by its schema, its name and what it says of itself.
//!
//! Invariant: a parameter of which nothing is known takes words, and is never said to be missing for what it is.

use crate::entry::{Kind, Parameter};
use crate::said::Said;
use crate::words::split;

/// What a parameter takes. In the order in which values are given away: the particular before the general.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Role {
    Email,
    Url,
    Path,
    Date,
    Time,
    /// One out of a list.
    Choice,
    /// Yes or no.
    Flag,
    Number,
    /// What tells one thing from all others of its kind, and is no word.
    Id,
    /// The same, where it may be a word.
    Handle,
    Place,
    /// What somebody or something is called.
    Name,
    /// How many results somebody wants, which nobody is asked.
    Count,
    /// Lists and objects, of which a sentence says little.
    Many,
    /// Anything that is said.
    Words,
}

/// Words of a name, and the role that they tell. The first that is found counts.
const TOLD: &[(Role, &[&str])] = &[
    (Role::Email, &["email", "mail"]),
    (Role::Url, &["url", "uri", "link", "website", "webpage"]),
    (Role::Path, &["path", "file", "filename", "filepath", "directory", "folder", "dir"]),
    (Role::Id, &["id", "uuid", "identifier", "token", "pid", "number"]),
    (Role::Handle, &["key", "symbol", "ticker", "host", "hostname", "namespace", "selector"]),
    (Role::Date, &["date", "day", "birthday", "deadline"]),
    (Role::Time, &["time", "hour"]),
    (
        Role::Place,
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
        Role::Name,
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

/// Words that tell how much of a result is wanted.
const COUNTS: &[&str] =
    &["limit", "num", "max", "maximum", "count", "top", "page", "size", "per", "offset", "results", "depth"];

impl Role {
    pub(super) fn of(parameter: &Parameter) -> Self {
        let name = split(&parameter.name);
        match &parameter.kind {
            Kind::OneOf(_) => Self::Choice,
            Kind::Boolean => Self::Flag,
            Kind::Integer | Kind::Number => {
                let counts = name.iter().any(|word| COUNTS.contains(&word.as_str()));
                if counts { Self::Count } else { Self::Number }
            }
            Kind::List(_) | Kind::Group(_) | Kind::Other => Self::Many,
            Kind::Text => match Self::told(name.iter().rev()) {
                // What a name leaves open, the description may say: its first word that tells something.
                Self::Words => match Self::told(split(&parameter.description).iter()) {
                    told @ (Self::Email | Self::Url | Self::Path | Self::Date | Self::Time | Self::Place) => {
                        told
                    }
                    _ => Self::Words,
                },
                told => told,
            },
        }
    }

    /// What the first of some words tells that tells anything. Of a name that is the last: `file_name` is a name.
    fn told<'a>(mut words: impl Iterator<Item = &'a String>) -> Self {
        let of = |word: &String| {
            TOLD.iter().find_map(|(role, words)| words.contains(&word.as_str()).then_some(*role))
        };
        words.find_map(of).unwrap_or(Self::Words)
    }

    /// Whether such a value can be what a parameter takes.
    pub(super) fn takes(self, said: &Said) -> bool {
        match self {
            Self::Email => matches!(said, Said::Email),
            Self::Url => matches!(said, Said::Url),
            Self::Path => matches!(said, Said::Path | Said::Quoted | Said::Code),
            Self::Date => matches!(said, Said::Date(_)),
            Self::Time => matches!(said, Said::Time(_)),
            Self::Number | Self::Count => matches!(said, Said::Number(_)),
            Self::Id => matches!(said, Said::Code | Said::Number(_) | Said::Quoted),
            Self::Handle => !matches!(said, Said::Date(_) | Said::Time(_)),
            Self::Place => matches!(said, Said::Name | Said::Quoted | Said::Code),
            Self::Name => !matches!(said, Said::Date(_) | Said::Time(_) | Said::Path),
            Self::Words => matches!(said, Said::Quoted),
            Self::Choice | Self::Flag | Self::Many => false,
        }
    }

    /// Whether such a value, which it does not take, may stand for one that it does: `Wikipedia` for an address.
    pub(super) fn hints_at(self, said: &Said) -> bool {
        let stands_for = matches!(said, Said::Name | Said::Quoted | Said::Code | Said::Url);
        matches!(self, Self::Email | Self::Url | Self::Path) && stands_for
    }
}
