//! Entries of `callers` become callers, and their keys hashes.

use toolgate_types::door::CertificateMatch;
use toolgate_types::{Caller, CallerId, KeyHash};

use crate::context::Context;
use crate::file::CallerFile;
use crate::file::door::CertificateFile;
use crate::keys::At;
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
        let given = file.api_key.map(|At { value, span, key_span }| {
            cx.hide(value.expose());
            At { value: KeyHash::of(value.expose()), span, key_span }
        });
        for key in [given, file.key_sha256].into_iter().flatten() {
            self.caller_key(&id.value, &key, cx);
        }
        if let Some(certificate) = file.certificate {
            self.caller_certificate(&id.value, certificate, cx);
        }
        self.caller_profiles(&id.value, file.profile, file.profiles, cx);
        let permissions = values(file.permissions).unwrap_or_default();
        self.callers.push((Caller { id: id.value, permissions }, id.span));
    }

    /// A certificate is that of one caller, and says what it is known by.
    fn caller_certificate(
        &mut self,
        id: &CallerId,
        At { value: file, span, .. }: At<CertificateFile>,
        cx: &mut Context<'_>,
    ) {
        let certificate =
            CertificateMatch { san: value(file.san), sha256: value(file.sha256).map(|it| it.0) };
        if file.given.is_empty() {
            cx.error(
                span,
                format!("nothing says which certificate caller `{id}` has"),
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

    /// Certificates can be shown only where there is an authority that they are of.
    pub(super) fn certificates_can_be_shown(&self, cx: &mut Context<'_>) {
        let asked = self.serve.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
        for (id, _, span) in self.caller_certificates.iter().filter(|_| !asked) {
            let message = format!("caller `{id}` cannot show its certificate");
            cx.error(*span, message, "add `serve.tls` with `client_ca`, the authority that it is of");
        }
    }

    /// A key opens for one caller, and is not one that everybody knows.
    fn caller_key(&mut self, id: &CallerId, key: &At<KeyHash>, cx: &mut Context<'_>) {
        if key.value.is_well_known() {
            let message = format!("the key of caller `{id}` is one that everybody tries first");
            cx.error(key.span, message, "make one: `openssl rand -hex 32`");
        } else if let Some((other, _)) = self.caller_keys.iter().find(|(_, other)| *other == key.value) {
            let message = format!("caller `{id}` has the key of caller `{other}`");
            cx.error(key.span, message, "a key is for one caller; give each its own");
        } else {
            self.caller_keys.push((id.clone(), key.value));
        }
    }
}
