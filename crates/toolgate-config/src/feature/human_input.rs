//! `human_input`: questions to people.

use toolgate_types::HumanDuration;
use toolgate_types::builtins::HumanInputConfig;

use crate::keys::keys;
use crate::resolve::ConfigBuilder;

keys! {
    /// Questions to people. They are answered at the terminal of `toolgate tools call`; for `toolgate serve`,
    /// with `toolgate questions` or over HTTP.
    struct HumanInputFile as "human_input" {
        /// Time to answer a question.
        timeout: HumanDuration = "10m",
    }
}

impl ConfigBuilder {
    pub(crate) fn set_human_input(&mut self, file: HumanInputFile) {
        self.record_origins("human_input", file.value_spans());
        let timeout = file.timeout.map_or(HumanDuration::from_secs(600), |at| at.value);
        self.builtins.human_input = Some(HumanInputConfig { timeout });
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
        insta::assert_snapshot!(config(&project("human_input: {timeout: 3m}"))["human_input"], @r#"{"timeout":"3m"}"#);
        insta::assert_snapshot!(config(&project("human_input: {}"))["human_input"], @r#"{"timeout":"10m"}"#);
        assert!(config(&project("name: x")).get("human_input").is_none(), "it is off by default");
    }

    #[test]
    fn reports_mistakes() {
        insta::assert_snapshot!(messages(&project("human_input: {timeout: 0, timeut: 1m}")), @"
        error toolgate.yaml:1:24 `0` is not a duration in human_input (a duration must be more than zero)
        error toolgate.yaml:1:27 unknown key `timeut` in human_input (did you mean `timeout`?)
        ");
    }
}
