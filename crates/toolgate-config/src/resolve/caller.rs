//! Resolves entries of `callers`, and hashes their API keys.

use toolgate_types::serve::CertificateMatch;
use toolgate_types::{Caller, CallerId, KeyHash};

use crate::context::Context;
use crate::file::CallerFile;
use crate::file::serve::CertificateFile;
use crate::keys::Spanned;
use crate::resolve::{ConfigBuilder, into_value, into_values};

impl ConfigBuilder {
    /// Adds a caller, or reports its problems.
    pub(crate) fn add_caller(&mut self, file: CallerFile, cx: &mut Context<'_>) {
        let written = file.value_spans();
        let Some(id) = file.id else { return };
        if let Some((_, first)) = self.callers.iter().find(|(caller, _)| caller.id == id.value) {
            let hint = format!("the other is at {}; keep one", cx.sources.location(*first));
            cx.error(id.span, format!("caller `{}` is named twice", id.value), hint);
            return;
        }
        self.record_origins(&format!("callers.{}", id.value), written);
        if let Some(description) = into_value(file.description) {
            self.caller_descriptions.insert(id.value.clone(), description);
        }
        let given = file.api_key.map(|Spanned { value, span, key_span }| {
            cx.hide(value.expose());
            Spanned { value: KeyHash::of(value.expose()), span, key_span }
        });
        for key in [given, file.key_sha256].into_iter().flatten() {
            self.add_caller_key(&id.value, &key, cx);
        }
        if let Some(certificate) = file.certificate {
            self.add_caller_certificate(&id.value, certificate, cx);
        }
        self.set_caller_profiles(&id.value, file.profile, file.profiles, cx);
        let permissions = into_values(file.permissions).unwrap_or_default();
        self.callers.push((Caller { id: id.value, permissions }, id.span));
    }

    /// Adds the certificate of a caller. Certificates must be unique.
    fn add_caller_certificate(
        &mut self,
        id: &CallerId,
        Spanned { value: file, span, .. }: Spanned<CertificateFile>,
        cx: &mut Context<'_>,
    ) {
        let certificate =
            CertificateMatch { san: into_value(file.san), sha256: into_value(file.sha256).map(|it| it.0) };
        if file.present_keys.is_empty() {
            cx.error(
                span,
                format!("the certificate of caller `{id}` has no conditions"),
                "add `san` or `sha256`",
            );
        } else if let Some((other, _, _)) =
            self.caller_certificates.iter().find(|(_, other, _)| *other == certificate)
        {
            let message = format!("caller `{id}` has the certificate of caller `{other}`");
            cx.error(span, message, "a certificate is for one caller; give each its own");
        } else {
            self.caller_certificates.push((id.clone(), certificate, span));
        }
    }

    /// Reports certificates of callers if the gateway does not request client certificates.
    pub(super) fn check_client_ca(&self, cx: &mut Context<'_>) {
        let asked = self.serve.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
        for (id, _, span) in self.caller_certificates.iter().filter(|_| !asked) {
            let message = format!("caller `{id}` needs `client_ca` for its certificate");
            cx.error(*span, message, "add `serve.tls` with `client_ca`, the authority that issued it");
        }
    }

    /// Adds the API key of a caller. Keys must be unique and not well-known.
    fn add_caller_key(&mut self, id: &CallerId, key: &Spanned<KeyHash>, cx: &mut Context<'_>) {
        if key.value.is_well_known() {
            let message = format!("the key of caller `{id}` is a well-known weak key");
            cx.error(key.span, message, "generate one: `openssl rand -hex 32`");
        } else if let Some((other, _)) = self.caller_keys.iter().find(|(_, other)| *other == key.value) {
            let message = format!("caller `{id}` has the key of caller `{other}`");
            cx.error(key.span, message, "a key is for one caller; give each its own");
        } else {
            self.caller_keys.push((id.clone(), key.value));
        }
    }
}
