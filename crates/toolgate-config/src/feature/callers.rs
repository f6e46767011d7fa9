//! `callers`: their permissions, credentials and profiles.

use toolgate_types::caller::PermissionPattern;
use toolgate_types::serve::CertificateMatch;
use toolgate_types::{Caller, CallerId, ConfigString, GroupName, KeyHash};

use crate::context::Context;
use crate::keys::{OneOrMany, Spanned, into_value, into_values, keys, read_by_parsing};
use crate::node::{Node, Value};
use crate::resolve::ConfigBuilder;

keys! {
    /// An agent, program or person that calls tools.
    struct CallerFile as "caller" {
        /// Id of the caller: letters, digits and `. _ - @ : /`.
        id: CallerId; required,
        /// Purpose of the caller.
        description: String,
        /// Permissions as `resource:action`; `*` matches any resource or action. By default a tool requires
        /// `{server}:{tool}`, a tool of this project `tools:{name}`. Without this key the caller may only make
        /// calls permitted by the policy file.
        permissions: Vec<Spanned<PermissionPattern>>,
        /// Groups that the caller is in, with any credential. They must be declared in `groups`.
        groups: OneOrMany<GroupName>,
        /// Person responsible for the caller, such as an email address. Recorded with every call.
        person: String,
        /// API key of the caller, as a variable: `${CI_KEY}`. Never shown.
        api_key: ConfigString,
        /// SHA-256 of the API key, in place of `api_key`: 64 hexadecimal digits from `printf %s KEY | sha256sum`.
        key_sha256: KeyHash,
        /// Client certificate of the caller, issued by an authority in `serve.tls.client_ca`.
        certificate: CertificateFile,
        /// Profile used when a request names none, as at `/mcp`. Default: the first of `profiles`, otherwise the
        /// whole catalog.
        profile: String,
        /// Profiles the caller may use. It is limited to their tools, over REST too; other profiles look
        /// nonexistent. Default: all profiles.
        profiles: OneOrMany<String>,
    }
}

keys! {
    /// Conditions on a client certificate. All of them must match.
    struct CertificateFile as "certificate" {
        /// Subject alternative name: a host name, or a URI such as `spiffe://example.com/ci`.
        san: String,
        /// SHA-256 fingerprint, 64 hexadecimal digits with or without colons: `openssl x509 -noout
        /// -fingerprint -sha256 -in FILE`.
        sha256: CertificateFingerprint,
        /// Groups that the caller is in while it shows this certificate, in addition to its own.
        groups: OneOrMany<GroupName>,
    }
}

/// SHA-256 fingerprint of a certificate, with or without colons.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CertificateFingerprint(pub(crate) KeyHash);

impl std::str::FromStr for CertificateFingerprint {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = "it has 64 hexadecimal digits, with colons or without";
        text.replace(':', "").parse().map(Self).map_err(|_| wrong)
    }
}

read_by_parsing! {
    CallerId: "a caller's id", { "type": "string", "pattern": "^[A-Za-z0-9._@:/-]{1,128}$" };
    PermissionPattern: "a permission pattern", { "type": "string", "pattern": "^(\\*|[A-Za-z0-9_.-]+):(\\*|[A-Za-z0-9_.-]+)$" };
    KeyHash: "the SHA-256 of a key", { "type": "string", "pattern": "^[0-9A-Fa-f]{64}$" };
    CertificateFingerprint: "the SHA-256 of a certificate", { "type": "string", "pattern": "^[0-9A-Fa-f:]{64,95}$" };
}

/// Registers the API keys as secrets.
pub(crate) fn add_key_secrets(callers: &Node, cx: &mut Context<'_>) {
    let Value::List(callers) = &callers.value else { return };
    let keys = |caller| ["api_key", "key_sha256"].map(|key| Node::get(caller, key));
    callers.iter().flat_map(keys).flatten().for_each(|key| cx.add_secret_values("secret", key));
}

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
        let groups = self.find_groups(file.groups, cx);
        let person = into_value(file.person).map(Into::into);
        let caller = Caller { groups, person, ..Caller::new(id.value, permissions) };
        self.callers.push((caller, id.span));
    }

    /// Adds the certificate of a caller. Certificates must be unique.
    fn add_caller_certificate(
        &mut self,
        id: &CallerId,
        Spanned { value: file, span, .. }: Spanned<CertificateFile>,
        cx: &mut Context<'_>,
    ) {
        let certificate = CertificateMatch {
            san: into_value(file.san),
            sha256: into_value(file.sha256).map(|it| it.0),
            groups: self.find_groups(file.groups, cx).into_iter().map(|group| group.name.clone()).collect(),
        };
        if file.present_keys.iter().all(|key| *key == "groups") {
            cx.error(
                span,
                format!("the certificate of caller `{id}` has no conditions"),
                "add `san` or `sha256`",
            );
        } else if let Some((other, _, _)) =
            self.caller_certificates.iter().find(|(_, other, _)| other.has_same_conditions(&certificate))
        {
            let message = format!("caller `{id}` has the certificate of caller `{other}`");
            cx.error(span, message, "a certificate is for one caller; give each its own");
        } else {
            self.caller_certificates.push((id.clone(), certificate, span));
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

#[cfg(test)]
mod tests;
