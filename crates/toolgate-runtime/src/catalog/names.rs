//! Names of tools: how they are written, and when two of them look alike.

use std::sync::LazyLock;

use toolgate_types::ServerName;
use unicode_security::skeleton;

use super::{CatalogTool, SEPARATOR, Upstream};

/// Every character that a tool's name cannot have becomes `-`.
pub(crate) fn normalised(name: &str) -> String {
    name.chars()
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-') { c } else { '-' })
        .collect()
}

/// Names that a reader takes for one another, such as `send_email` and `sеnd_emaiI`, have one of
/// these in common. There are two: a capital may look like another small letter than its own.
pub(super) fn looks(name: &str) -> [String; 2] {
    [look(&name.to_lowercase()), look(name).to_lowercase()]
}

/// The skeleton of a name. Most names are plain letters, whose skeletons are known one by one.
fn look(name: &str) -> String {
    if !name.is_ascii() {
        return skeleton(name).collect();
    }
    name.bytes().flat_map(|byte| PLAIN[usize::from(byte)].chars()).collect()
}

static PLAIN: LazyLock<[String; 128]> = LazyLock::new(|| {
    std::array::from_fn(|at| {
        let letter = char::from(u8::try_from(at).unwrap_or_default());
        skeleton(letter.encode_utf8(&mut [0; 4])).collect()
    })
});

/// `{server}__{tool}`; an own tool that lost its name to a server keeps it behind `own__`.
pub(super) fn qualified(tool: &CatalogTool) -> String {
    let prefix = tool.server.as_ref().map_or_else(|| "own".to_owned(), ServerName::prefix);
    format!("{prefix}{SEPARATOR}{}", normalised(&tool.original))
}

pub(super) fn source(tool: &CatalogTool) -> String {
    let kind = if matches!(tool.upstream, Upstream::OpenApi(_)) { "API" } else { "MCP" };
    tool.server.as_ref().map_or_else(|| "your own tools".to_owned(), |server| format!("{kind} '{server}'"))
}

#[test]
fn look_alikes() {
    let alike = |a: &str, b: &str| looks(a).iter().any(|look| looks(b).contains(look));
    // Cyrillic `е`, capital `I` for `l`, one for `l`, zero for `o`, full-width letters, capitals.
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
    /// What is known letter by letter is what the whole name has.
    #[test]
    fn plain_names_look_as_all_names_do(name in "[ -~]{0,20}") {
        proptest::prop_assert_eq!(look(&name), skeleton(&name).collect::<String>());
    }
}
