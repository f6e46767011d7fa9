//! Entries of `callers` become callers.

use toolgate_types::Caller;

use crate::context::Context;
use crate::file::CallerFile;
use crate::settle::{Draft, value, values};

impl Draft {
    /// Takes one caller over, or tells what is wrong with it.
    pub(crate) fn caller(&mut self, file: CallerFile, cx: &mut Context<'_>) {
        let written = file.written();
        let Some(id) = file.id else { return };
        if let Some((_, first)) = self.callers.iter().find(|(caller, _)| caller.id == id.value) {
            let hint = format!("the other is at {}; keep one", cx.sources.place(*first));
            cx.error(id.span, format!("caller `{}` is named twice", id.value), hint);
            return;
        }
        self.origins(&format!("callers.{}", id.value), written);
        if let Some(description) = value(file.description) {
            self.caller_descriptions.insert(id.value.clone(), description);
        }
        let permissions = values(file.permissions).unwrap_or_default();
        self.callers.push((Caller { id: id.value, permissions }, id.span));
    }
}
