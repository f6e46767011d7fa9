//! `audit`: the settings of the execution log.

use serde_json::json;

use super::{config, errors, loaded};

fn audit(text: &str) -> toolgate_config::LoadOutcome {
    loaded(&[("toolgate.yaml", &format!("audit:\n{text}"))], &[])
}

#[test]
fn reads_every_key() {
    let text = "  folder: records\n  max_body: 2KiB\n  keep: 7d\n  on_full: allow\n  reserve: none\n  redact: ['ACME-[0-9]+', PAT]\n";
    assert_eq!(
        config(&audit(text))["audit"],
        json!({
            "folder": "records",
            "max_body": "2KiB",
            "keep": "7d",
            "on_full": "allow",
            "reserve": null,
            "redact": ["ACME-[0-9]+", "PAT"],
        })
    );
    assert!(config(&audit("  keep: 30d\n")).get("audit").is_none(), "it is the default");
}

#[test]
fn reports_mistakes_with_location() {
    let text = "  max_body: 0\n  keep: soon\n  on_full: maybe\n  reserve: some\n  redact:\n    - good\n    - 'a('\n    - '.*'\n    - '(?=a)b'\n";
    insta::assert_snapshot!(errors(&audit(text)).join("\n"), @"
    toolgate.yaml:2:13 `0` is not a size in audit (a size must be more than zero)
    toolgate.yaml:3:9 `soon` is not a duration in audit (`30s`, `500ms`, `1m30s`, an ISO 8601 duration such as `PT30S`, or a number of seconds is expected)
    toolgate.yaml:4:12 `maybe` is not a disk-full action in audit (`deny` or `allow` is expected)
    toolgate.yaml:5:12 `some` is not a size or `none` in audit (a number of bytes, or one with `KiB`, `MiB`, `GiB`, `KB`, `MB` or `GB` is expected)
    toolgate.yaml:8:7 `a(` is not a pattern in audit (unclosed group)
    toolgate.yaml:9:7 `.*` is not a pattern in audit (the pattern matches the empty string; it must match at least one character)
    toolgate.yaml:10:7 `(?=a)b` is not a pattern in audit (look-around, including look-ahead and look-behind, is not supported)
    ");
}
