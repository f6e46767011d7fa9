//! Names of tools and servers.
//!
//! Invariant: a name that exists is safe to print, to put into a header and to compare: no control
//! characters, no white space at its ends, bounded length.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// The longest tool name.
pub const LONGEST_TOOL_NAME: usize = 128;
/// The longest server name; with `__` and a tool's name it still makes a readable line.
pub const LONGEST_SERVER_NAME: usize = 64;

/// Why a text is not a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// It is empty or too long.
    #[error("a name has 1 to {0} characters")]
    Length(usize),
    /// It has a character that tool names cannot have.
    #[error("a tool's name is made of letters, digits, `_`, `.` and `-`")]
    ToolCharacter,
    /// It has a character that server names cannot have.
    #[error("a server's name cannot have control characters, or white space at its ends")]
    ServerCharacter,
}

/// The name of a tool: `[A-Za-z0-9_.-]{1,128}`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ToolName(Box<str>);

impl ToolName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ToolName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        if text.is_empty() || text.len() > LONGEST_TOOL_NAME {
            return Err(NameError::Length(LONGEST_TOOL_NAME));
        }
        if !text.bytes().all(is_tool_byte) {
            return Err(NameError::ToolCharacter);
        }
        Ok(Self(text.into()))
    }
}

/// The name of an MCP server, as its configuration spells it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerName(Box<str>);

impl ServerName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name as the first half of `{server}__{tool}`: what a tool's name cannot hold becomes `-`.
    /// Two servers with the same prefix could not be told apart, so the configuration refuses them.
    pub fn prefix(&self) -> String {
        self.0.chars().map(|c| if u8::try_from(c).is_ok_and(is_tool_byte) { c } else { '-' }).collect()
    }
}

impl FromStr for ServerName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        if text.is_empty() || text.chars().count() > LONGEST_SERVER_NAME {
            return Err(NameError::Length(LONGEST_SERVER_NAME));
        }
        if text.chars().any(char::is_control) || text.trim() != text {
            return Err(NameError::ServerCharacter);
        }
        Ok(Self(text.into()))
    }
}

fn is_tool_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-')
}

impl fmt::Display for ToolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for ToolName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl Serialize for ServerName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tool_names() {
        for good in ["a", "create-card", "web_search", "git.status", &"x".repeat(128)] {
            assert_eq!(good.parse::<ToolName>().unwrap().as_str(), good);
        }
        for bad in ["", "a b", "a/b", "β", "a\n", &"x".repeat(129)] {
            assert!(bad.parse::<ToolName>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn server_names() {
        assert_eq!("GitHub β".parse::<ServerName>().unwrap().prefix(), "GitHub--");
        for bad in ["", " a", "a\u{7}b", "a\n", &"x".repeat(65)] {
            assert!(bad.parse::<ServerName>().is_err(), "{bad:?}");
        }
    }
}
