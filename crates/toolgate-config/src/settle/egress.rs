//! `egress`: what must not leave.

use toolgate_types::Secret;
use toolgate_types::egress::SHORTEST_CANARY;

use crate::context::Context;
use crate::file::EgressFile;
use crate::settle::Draft;

impl Draft {
    pub(crate) fn egress(&mut self, file: EgressFile, cx: &mut Context<'_>) {
        self.origins("egress", file.written());
        self.egress.secrets = file.secrets.is_some_and(|at| at.value);
        for canary in file.canaries.into_iter().flat_map(|at| at.value) {
            let text = canary.value.expose();
            cx.hide(text);
            if text.chars().count() < SHORTEST_CANARY {
                let message = format!("a canary has fewer than {SHORTEST_CANARY} characters in egress");
                cx.error(canary.span, message, "a short text is in many calls by chance; use a longer one");
            } else {
                self.egress.canaries.push(Secret::new(text));
            }
        }
    }
}
