//! Tool names: normalization, and detection of look-alikes.

use std::sync::LazyLock;

use toolgate_types::{ServerName, ToolName};
use unicode_security::skeleton;

use super::{CatalogTool, SEPARATOR, Upstream};

/// Prefix of own tools that lost their name to a server.
const OWN: &str = "own";

/// Replaces every character that is not allowed in a tool name with `-`.
pub(crate) fn normalize_name(name: &str) -> String {
    name.chars()
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-') { c } else { '-' })
        .collect()
}

/// Confusable skeletons of a name. Names that people mistake for one another, such as `send_email` and `sеnd_emaiI`,
/// share at least one. There are two, because a capital may look like a different lowercase letter.
pub(super) fn skeletons(name: &str) -> [String; 2] {
    [ascii_skeleton(&name.to_lowercase()), ascii_skeleton(name).to_lowercase()]
}

/// The confusable skeleton of a name. ASCII names, the common case, use a lookup table.
fn ascii_skeleton(name: &str) -> String {
    if !name.is_ascii() {
        return skeleton(name).collect();
    }
    name.bytes().flat_map(|byte| ASCII_SKELETONS[usize::from(byte)].chars()).collect()
}

static ASCII_SKELETONS: LazyLock<[String; 128]> = LazyLock::new(|| {
    std::array::from_fn(|at| {
        let letter = char::from(u8::try_from(at).unwrap_or_default());
        skeleton(letter.encode_utf8(&mut [0; 4])).collect()
    })
});

/// `{server}__`, the beginning of names that belong to one server, in every spelling that looks like it.
#[derive(Debug)]
pub(super) struct NamePrefix([String; 2]);

impl NamePrefix {
    pub(super) fn of(server: &ServerName) -> Self {
        Self(skeletons(&format!("{}{SEPARATOR}", server.prefix())))
    }

    /// Returns true if a name with this skeleton begins with the prefix.
    pub(super) fn is_start_of(&self, skeleton: &str) -> bool {
        self.0.iter().any(|prefix| skeleton.starts_with(prefix.as_str()))
    }
}

/// `{server}__{tool}`. Own tools that lost their name to a server get the prefix `own__`.
pub(super) fn qualified_name(tool: &CatalogTool) -> String {
    let prefix = tool.server.as_ref().map_or_else(|| OWN.to_owned(), ServerName::prefix);
    format!("{prefix}{SEPARATOR}{}", normalize_name(&tool.original))
}

/// The qualified name of an own tool.
pub(super) fn own_name(name: &ToolName) -> String {
    format!("{OWN}{SEPARATOR}{name}")
}

pub(super) fn describe_source(tool: &CatalogTool) -> String {
    let kind = if matches!(tool.upstream, Upstream::OpenApi(_)) { "API" } else { "MCP" };
    tool.server.as_ref().map_or_else(|| "your own tools".to_owned(), |server| format!("{kind} '{server}'"))
}

#[test]
fn detects_look_alikes() {
    let alike = |a: &str, b: &str| skeletons(a).iter().any(|value| skeletons(b).contains(value));
    // Cyrillic `е`, capital `I` for `l`, `1` for `l`, Latin alpha, capitals.
    let pairs = ["s\u{0435}nd_email", "send_emaiI", "send_emai1", "send_em\u{0251}il", "SEND_EMAIL"];
    for other in pairs {
        assert!(alike("send_email", other), "{other}");
    }
    assert!(alike("tool", "t0ol"));
    assert!(alike("send", "\u{ff53}end"));
    assert!(!alike("send_email", "send_mail"));
    assert!(!alike("get_a", "get_b"));
    assert!(!alike("read_file", "read-file"));
}

#[cfg(test)]
proptest::proptest! {
    /// The lookup table gives the same skeletons as the library.
    #[test]
    fn ascii_table_matches_the_library(name in "[ -~]{0,20}") {
        proptest::prop_assert_eq!(ascii_skeleton(&name), skeleton(&name).collect::<String>());
    }
}
