//! Names of tools and servers.
//!
//! Invariant: a name that exists is safe to print, to put into a header and to compare: no control
//! characters, no white space at its ends, bounded length.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// Maximum length of a tool name, in bytes.
pub const MAX_TOOL_NAME_LENGTH: usize = 128;
/// Maximum length of a server name, in characters; `{server}__{tool}` still makes a readable line.
pub const MAX_SERVER_NAME_LENGTH: usize = 64;

/// Reason why a string is not a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Empty or too long.
    #[error("a name has 1 to {0} characters")]
    Length(usize),
    /// Contains a character that tool names cannot have.
    #[error("a tool's name is made of letters, digits, `_`, `.` and `-`")]
    ToolCharacter,
    /// Contains a character that server names cannot have.
    #[error("a server's name cannot have control characters, or white space at its ends")]
    ServerCharacter,
}

/// Name of a tool: `[A-Za-z0-9_.-]{1,128}`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ToolName(Box<str>);

impl ToolName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ToolName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        if text.is_empty() || text.len() > MAX_TOOL_NAME_LENGTH {
            return Err(NameError::Length(MAX_TOOL_NAME_LENGTH));
        }
        if !text.bytes().all(is_tool_byte) {
            return Err(NameError::ToolCharacter);
        }
        Ok(Self(text.into()))
    }
}

/// Name of an MCP server, as spelled in the configuration.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerName(Box<str>);

impl ServerName {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the first half of `{server}__{tool}`: characters that tool names cannot have become `-`. The
    /// configuration rejects two servers with the same prefix, since their tools could not be told apart.
    pub fn prefix(&self) -> String {
        self.0.chars().map(|c| if u8::try_from(c).is_ok_and(is_tool_byte) { c } else { '-' }).collect()
    }
}

impl FromStr for ServerName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        if text.is_empty() || text.chars().count() > MAX_SERVER_NAME_LENGTH {
            return Err(NameError::Length(MAX_SERVER_NAME_LENGTH));
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
    fn validates_tool_names() {
        for good in ["a", "create-card", "web_search", "git.status", &"x".repeat(128)] {
            assert_eq!(good.parse::<ToolName>().unwrap().as_str(), good);
        }
        for bad in ["", "a b", "a/b", "β", "a\n", &"x".repeat(129)] {
            assert!(bad.parse::<ToolName>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn validates_server_names() {
        assert_eq!("GitHub β".parse::<ServerName>().unwrap().prefix(), "GitHub--");
        for bad in ["", " a", "a\u{7}b", "a\n", &"x".repeat(65)] {
            assert!(bad.parse::<ServerName>().is_err(), "{bad:?}");
        }
    }
}
