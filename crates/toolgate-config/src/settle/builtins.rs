//! The tools that Toolgate brings along: each is there where its key is.

use toolgate_types::HumanDuration;
use toolgate_types::builtins::HumanInput;

use crate::file::HumanInputFile;
use crate::settle::Draft;

impl Draft {
    pub(crate) fn human_input(&mut self, file: HumanInputFile) {
        self.origins("human_input", file.written());
        let timeout = file.timeout.map_or(HumanDuration::from_secs(600), |at| at.value);
        self.builtins.human_input = Some(HumanInput { timeout });
    }
}
