//! `credentials`: the key that encrypts stored credentials.

use std::path::PathBuf;

use serde::Serialize;
use toolgate_types::{ConfigString, Secret};

use crate::context::Context;
use crate::feature::checks::resolve_file;
use crate::keys::{Spanned, into_values, keys};
use crate::node::Node;
use crate::resolve::ConfigBuilder;

keys! {
    /// Encryption of the credentials that callers store for servers. One of the keys is used; by default, the key is a
    /// file in your state folder (`~/.local/state/toolgate/keys`), created with the first credential.
    struct CredentialsFile as "credentials" {
        /// Key from a variable, such as `${CREDENTIALS_KEY}`: 32 bytes in base64 or hexadecimal.
        key: ConfigString,
        /// File with the key, relative to the project folder.
        key_file: ConfigString,
        /// Program that prints the key, with its arguments. It runs at every start and has 30 seconds.
        key_command: Vec<Spanned<ConfigString>>,
    }
}

/// Place of the key that encrypts credentials.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CredentialKey {
    /// A file in the state folder of the user.
    #[default]
    Default,
    /// The key itself.
    Key(Secret),
    KeyFile(PathBuf),
    KeyCommand(Vec<ConfigString>),
}

impl CredentialKey {
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::Default
    }
}

/// Registers the key as a secret.
pub(crate) fn add_store_key_secret(credentials: &Node, cx: &mut Context<'_>) {
    if let Some(key) = credentials.get("key") {
        cx.add_secret_values("secret", key);
    }
}

impl ConfigBuilder {
    pub(crate) fn set_credentials(&mut self, file: Spanned<CredentialsFile>, cx: &mut Context<'_>) {
        let Spanned { value: file, key_span, .. } = file;
        self.record_origins("credentials", file.value_spans());
        if file.present_keys.len() > 1 {
            let message = format!("more than one key{}", cx.location_suffix());
            cx.error(key_span, message, "keep one of `key`, `key_file` and `key_command`");
            return;
        }
        if let Some(key) = file.key {
            cx.hide(key.value.expose());
            self.credential_key = CredentialKey::Key(Secret::new(key.value.expose()));
        } else if let Some(path) = &file.key_file {
            if let Some(path) = resolve_file("key_file", path, cx) {
                self.credential_key = CredentialKey::KeyFile(path);
            }
        } else if let Some(command) = into_values(file.key_command) {
            if command.is_empty() {
                cx.error(
                    key_span,
                    format!("`key_command` is empty{}", cx.location_suffix()),
                    "name the program",
                );
                return;
            }
            self.credential_key = CredentialKey::KeyCommand(command);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::LoadOutcome;
    use crate::test_support::{config, loaded, messages};

    fn project(text: &str) -> LoadOutcome {
        loaded(&[("toolgate.yaml", text), ("store.key", "")], &[("STORE_KEY", "a-secret-key")])
    }

    #[test]
    fn values_and_mistakes() {
        let key = |text: &str| config(&project(text)).get("credentials").map(ToString::to_string);
        assert_eq!(key("name: x"), None);
        assert_eq!(key("credentials: {key: '${STORE_KEY}'}").as_deref(), Some(r#"{"key":"***"}"#));
        assert!(key("credentials: {key_file: store.key}").unwrap().contains("store.key"));
        let command = key("credentials: {key_command: [pass, show, toolgate]}");
        assert_eq!(command.as_deref(), Some(r#"{"key_command":["pass","show","toolgate"]}"#));
        for (text, message) in [
            ("{key: a-secret-key, key_file: gone.key}", "more than one key"),
            ("{key_file: gone.key}", "there is no file `gone.key` for `key_file`"),
            ("{key_command: []}", "`key_command` is empty"),
        ] {
            let found = messages(&project(&format!("credentials: {text}")));
            assert!(found.contains(message) && !found.contains("a-secret-key"), "{text}: {found}");
        }
    }
}
