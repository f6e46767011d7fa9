//! `audit`: the execution log.

use std::path::PathBuf;

use serde::Serialize;
use toolgate_types::audit::DiskReserve;
use toolgate_types::{ByteSize, HumanDuration, OnFull, SecretPattern};

use crate::keys::{Spanned, choice, into_values, keys, read_by_parsing};
use crate::resolve::ConfigBuilder;

keys! {
    /// The execution log. `toolgate log` reads it; docs/log.md describes it.
    struct AuditFile as "audit" {
        /// Folder of the log, relative to the project folder.
        folder: String = ".toolgate/log",
        /// Bytes of arguments, and of output, kept per call. Longer bodies are truncated; their length and hash are
        /// recorded.
        max_body: ByteSize = "1MiB",
        /// Retention: a log file is deleted when its last record is older than this.
        keep: HumanDuration = "30d",
        /// Idempotent calls while the disk is full: `deny` refuses them, `allow` executes them and records them once
        /// there is space again. Other calls are always refused while the disk is full.
        on_full: OnFullName = "deny",
        /// Disk space reserved so that calls already sent can still be recorded when the disk fills up; at most
        /// 1/64 of the disk. `none` reserves no space.
        reserve: DiskReserve = "64MiB",
        /// Regular expressions for your own secrets; matches are redacted from the log. Matching takes linear
        /// time, so look-around and backreferences are not supported.
        redact: Vec<Spanned<SecretPattern>>,
    }
}

choice! {
    /// Handling of idempotent calls while the disk is full.
    enum OnFullName as "a disk-full action" {
        /// Refuses the call.
        Deny = "deny",
        /// Executes the call and records it once there is space again.
        Allow = "allow",
    }
}

read_by_parsing! {
    SecretPattern: "a pattern", { "type": "string", "format": "regex", "minLength": 1, "maxLength": 1000 };
    DiskReserve: "a size or `none`", { "type": ["string", "integer"], "examples": ["64MiB", "none"] };
}

/// Checked settings of the execution log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AuditConfig {
    /// Folder of the log, relative to the project folder.
    pub folder: PathBuf,
    /// Bytes of arguments, and of output, kept per call. Longer bodies are truncated.
    pub max_body: ByteSize,
    /// Retention: a file is removed once its last record is older than this.
    pub keep: HumanDuration,
    /// Handling of idempotent calls while the disk is full.
    pub on_full: OnFull,
    /// Disk space reserved for the end records of calls that already started.
    pub reserve: DiskReserve,
    /// Additional patterns of secrets to redact, besides the built-in ones.
    pub redact: Vec<SecretPattern>,
}

impl Default for AuditConfig {
    fn default() -> Self {
        Self {
            folder: ".toolgate/log".into(),
            max_body: ByteSize::from_mib(1),
            keep: HumanDuration::from_secs(30 * 24 * 60 * 60),
            on_full: OnFull::Deny,
            reserve: DiskReserve(Some(ByteSize::from_mib(64))),
            redact: Vec::new(),
        }
    }
}

impl AuditConfig {
    /// True if every setting has its default value.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl ConfigBuilder {
    pub(crate) fn set_audit(&mut self, file: AuditFile) {
        self.record_origins("audit", file.value_spans());
        let audit = &mut self.audit;
        if let Some(folder) = file.folder {
            audit.folder = folder.value.into();
        }
        audit.max_body = file.max_body.map_or(audit.max_body, |at| at.value);
        audit.keep = file.keep.map_or(audit.keep, |at| at.value);
        audit.reserve = file.reserve.map_or(audit.reserve, |at| at.value);
        audit.on_full = file.on_full.map_or(audit.on_full, |at| match at.value {
            OnFullName::Deny => OnFull::Deny,
            OnFullName::Allow => OnFull::Allow,
        });
        audit.redact = into_values(file.redact).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::LoadOutcome;
    use crate::test_support::{config, errors, loaded};

    fn audit(text: &str) -> LoadOutcome {
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
}
