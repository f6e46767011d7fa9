//! Names of tools: how they are written, and when two of them look alike.

use toolgate_types::ServerName;
use unicode_security::skeleton;

use super::{CatalogTool, SEPARATOR};

/// Every character that a tool's name cannot have becomes `-`.
pub(crate) fn normalised(name: &str) -> String {
    name.chars()
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-') { c } else { '-' })
        .collect()
}

/// Names that a reader takes for one another, such as `send_email` and `sеnd_emaiI`, have one of
/// these in common. There are two: a capital may look like another small letter than its own.
pub(super) fn looks(name: &str) -> [String; 2] {
    [skeleton(&name.to_lowercase()).collect(), skeleton(name).collect::<String>().to_lowercase()]
}

/// `{server}__{tool}`; an own tool that lost its name to a server keeps it behind `own__`.
pub(super) fn qualified(tool: &CatalogTool) -> String {
    let prefix = tool.server.as_ref().map_or_else(|| "own".to_owned(), ServerName::prefix);
    format!("{prefix}{SEPARATOR}{}", normalised(&tool.original))
}

pub(super) fn source(tool: &CatalogTool) -> String {
    tool.server.as_ref().map_or_else(|| "your own tools".to_owned(), |server| format!("MCP '{server}'"))
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
