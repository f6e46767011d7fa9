//! Resolves `audit`: the settings of the execution log.

use toolgate_types::OnFull;

use crate::file::{AuditFile, OnFullName};
use crate::resolve::{ConfigBuilder, into_values};

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
