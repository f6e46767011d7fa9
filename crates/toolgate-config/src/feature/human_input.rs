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
