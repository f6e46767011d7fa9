//! `results`: storage of large results.

use toolgate_types::limits::ResultLimits;
use toolgate_types::{ByteSize, HumanDuration};

use crate::keys::keys;
use crate::resolve::ConfigBuilder;

keys! {
    /// Large results are stored as resources (`toolgate://results/…`). The caller gets a preview and reads the
    /// rest with the tool `read_result`. Every caller may read its own results.
    struct ResultsFile as "results" {
        /// Largest result returned inline.
        max_inline: ByteSize = "64KiB",
        /// Retention of stored results.
        keep: HumanDuration = "1h",
        /// Disk space for all stored results. The oldest are deleted first.
        max_disk: ByteSize = "256MiB",
    }
}

impl ConfigBuilder {
    pub(crate) fn set_results(&mut self, file: ResultsFile) {
        self.record_origins("results", file.value_spans());
        self.results = Some(ResultLimits {
            max_inline: file.max_inline.map_or(ByteSize::from_bytes(64 << 10), |at| at.value),
            keep: file.keep.map_or(HumanDuration::from_secs(3_600), |at| at.value),
            max_disk: file.max_disk.map_or(ByteSize::from_mib(256), |at| at.value),
        });
    }
}

#[cfg(test)]
mod tests {
    use crate::LoadOutcome;
    use crate::test_support::{config, loaded, messages};

    fn project(text: &str) -> LoadOutcome {
        loaded(&[("toolgate.yaml", text)], &[])
    }

    #[test]
    fn values_and_defaults() {
        insta::assert_snapshot!(config(&project("results: {max_inline: 2KiB, keep: 5m, max_disk: 3MiB}"))["results"], @r#"{"max_inline":"2KiB","keep":"5m","max_disk":"3MiB"}"#);
        insta::assert_snapshot!(config(&project("results: {}"))["results"], @r#"{"max_inline":"64KiB","keep":"1h","max_disk":"256MiB"}"#);
        assert!(config(&project("name: x")).get("results").is_none(), "results are not stored by default");
    }

    #[test]
    fn reports_mistakes() {
        insta::assert_snapshot!(messages(&project("results: {max_inline: 0, keep: never, max_dsk: 1}")), @"
        error toolgate.yaml:1:23 `0` is not a size in results (a size must be more than zero)
        error toolgate.yaml:1:32 `never` is not a duration in results (`30s`, `500ms`, `1m30s`, an ISO 8601 duration such as `PT30S`, or a number of seconds is expected)
        error toolgate.yaml:1:39 unknown key `max_dsk` in results (did you mean `max_disk`?)
        ");
    }
}
