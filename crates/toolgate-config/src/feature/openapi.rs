//! `openapi`: HTTP APIs whose operations become tools. A document in a file is parsed here, so that its problems have
//! locations; it is interpreted later, when tools are created from it.

use std::collections::BTreeMap;

use toolgate_types::api::OperationFilter;
use toolgate_types::network::Network;
use toolgate_types::{ApiDocument, ApiSpec, ConfigString, HumanDuration};

use crate::context::Context;
use crate::feature::checks::{check_url, resolve_headers};
use crate::feature::servers::OutputValidationName;
use crate::keys::{NamedMap, OneOrMany, Spanned, into_value, into_values, keys};
use crate::node::{MapEntry, Node, Value};
use crate::resolve::ConfigBuilder;

keys! {
    /// An HTTP API described by an OpenAPI 3.0 or 3.1 document. See docs/openapi.md.
    struct ApiFile as "API" {
        /// OpenAPI document in JSON or YAML: a file relative to the project folder, or an `https` or `http` URL.
        /// A URL is fetched at every start; the last copy is cached in `.toolgate/openapi`.
        document: ConfigString; required,
        /// Base URL of the API. Default: the first entry of `servers` in the document. A document fetched from a
        /// URL can only name its own host; this key can name any.
        base_url: ConfigString,
        /// Values for the variables of the document's first server entry.
        variables: NamedMap<String>,
        /// Operations that become tools. An operation must match every list given here. Default: all.
        include: OperationsFile,
        /// Operations to leave out. An operation that matches any list given here is excluded.
        exclude: OperationsFile,
        /// Credentials by name of the document's `securitySchemes`, as variables: `${PETS_TOKEN}`. For `basic`:
        /// `user:password`. Never shown.
        auth: NamedMap<ConfigString>,
        /// Headers sent with every request. Never shown.
        headers: NamedMap<ConfigString>,
        /// Timeout of one call.
        timeout: HumanDuration,
        /// Prefix of every tool name, such as `pets_`.
        prefix: String,
        /// Networks the API and its document may be in, in addition to the public internet, such as
        /// `127.0.0.0/8`. Addresses are checked on every connection.
        allow_networks: Vec<Spanned<Network>>,
        /// Results that do not match the schema of their operation: `strict` fails the call with `invalid_output`,
        /// `warn` returns the result with a warning.
        output_validation: OutputValidationName = "warn",
    }
}

keys! {
    /// Selects operations of an OpenAPI document. `*` matches any string.
    struct OperationsFile as "operations" {
        /// Match by `operationId`.
        operations: OneOrMany<String>,
        /// Match by tag.
        tags: OneOrMany<String>,
        /// Match by method, such as `GET`.
        methods: OneOrMany<String>,
        /// Match by path, such as `/pets/*`.
        paths: OneOrMany<String>,
    }
}

/// Registers credentials and headers as secrets.
pub(crate) fn add_api_secrets(apis: &Node, cx: &mut Context<'_>) {
    let Value::Map(apis) = &apis.value else { return };
    let keys = |api: &'_ MapEntry| ["auth", "headers"].map(|key| api.node.get(key).cloned());
    for secrets in apis.iter().flat_map(keys).flatten() {
        let Value::Map(values) = &secrets.value else { continue };
        values.iter().for_each(|entry| cx.add_secret_values("secret", &entry.node));
    }
}

/// Cache of fetched documents, relative to the project folder.
const CACHE_FOLDER: &str = ".toolgate/openapi";

/// HTTP methods of operations.
const METHODS: [&str; 7] = ["GET", "HEAD", "OPTIONS", "PUT", "DELETE", "POST", "PATCH"];

impl ConfigBuilder {
    /// Adds an API, or reports its problems.
    pub(crate) fn add_api(&mut self, key: &str, entry: Spanned<ApiFile>, cx: &mut Context<'_>) {
        cx.labels.push(format!("API `{key}`"));
        self.build_api(key, entry, cx);
        cx.labels.pop();
    }

    fn build_api(&mut self, key: &str, entry: Spanned<ApiFile>, cx: &mut Context<'_>) {
        let (file, span) = (entry.value, entry.key_span);
        let written = file.value_spans();
        let name = match key.parse() {
            Ok(name) => name,
            Err(error) => {
                return cx.error(span, format!("`{key}` is not a name for an API"), format!("{error}"));
            }
        };
        let auth = resolve_credentials(file.auth, cx);
        let document = file.document.and_then(|at| load_document(at, cx));
        let base_url = match file.base_url {
            Some(url) if !cx.awaits_input(&url.value) => {
                let good = check_url(&url, &["https", "http"], cx).is_some() && check_base_url(&url, cx);
                good.then_some(url.value)
            }
            other => into_value(other),
        };
        let include = resolve_filter(file.include, cx);
        let exclude = resolve_filter(file.exclude, cx);
        let prefix = file.prefix.map(|at| check_prefix(at, cx)).unwrap_or_default();
        let variables = file.variables.into_iter().flat_map(|at| at.value.0);
        let api = ApiSpec {
            name,
            document: match document {
                Some(document) => document,
                None => return,
            },
            base_url,
            variables: variables.map(|(name, at)| (name, at.value)).collect(),
            include,
            exclude,
            auth,
            headers: resolve_headers(file.headers, cx),
            timeout: into_value(file.timeout),
            prefix,
            allow_networks: into_values(file.allow_networks).unwrap_or_default(),
            strict_output: into_value(file.output_validation) == Some(OutputValidationName::Strict),
            cache: cx.project.join(CACHE_FOLDER),
        };
        self.record_origins(&format!("apis.{}", api.name), written);
        self.apis.push((api, span));
    }
}

/// Reads the document from a file, or checks its URL.
fn load_document(written: Spanned<ConfigString>, cx: &mut Context<'_>) -> Option<ApiDocument> {
    let text = written.value.expose();
    if text.contains("://") {
        return (cx.awaits_input(&written.value) || check_url(&written, &["https", "http"], cx).is_some())
            .then_some(ApiDocument::Url(written.value));
    }
    let path = cx.project.join(text);
    if !cx.has_file(&path) {
        let what = if path.is_dir() { "is a folder" } else { "does not exist" };
        let message = format!("the document `{}` {what}{}", written.value.redacted(), cx.location_suffix());
        cx.error(written.span, message, "name a file relative to the project folder, or a URL");
        return None;
    }
    let node = crate::load::parse(&path, cx)?;
    if node.get("openapi").is_none() {
        let message =
            format!("`{}` is not an OpenAPI document{}", written.value.redacted(), cx.location_suffix());
        let hint = match node.get("swagger") {
            Some(_) => "Swagger 2.0 is not supported; convert the document to OpenAPI 3",
            None => "it has `openapi: 3.0.…` or `openapi: 3.1.…` at its top",
        };
        cx.error(written.span, message, hint);
        return None;
    }
    Some(ApiDocument::File { path: written.value.redacted().to_owned(), json: node.to_json().get().into() })
}

/// Checks that paths can be appended to the base URL.
fn check_base_url(url: &Spanned<ConfigString>, cx: &mut Context<'_>) -> bool {
    let parsed = url::Url::parse(url.value.expose());
    let plain = parsed.is_ok_and(|url| {
        url.query().is_none()
            && url.fragment().is_none()
            && url.username().is_empty()
            && url.password().is_none()
    });
    if !plain {
        let message = format!("`base_url` holds more than a host and a path{}", cx.location_suffix());
        cx.error(url.span, message, "put credentials in `auth` or `headers`, and the rest in arguments");
    }
    plain
}

/// Resolves the credentials of security schemes and registers them as secrets.
fn resolve_credentials(
    written: Option<Spanned<NamedMap<ConfigString>>>,
    cx: &mut Context<'_>,
) -> BTreeMap<String, ConfigString> {
    let mut auth = BTreeMap::new();
    for (name, at) in written.into_iter().flat_map(|at| at.value.0) {
        cx.hide(at.value.expose());
        if let Some((_, password)) = at.value.expose().split_once(':') {
            cx.hide(password);
        }
        if at.value.expose().is_empty() || at.value.expose().chars().any(char::is_control) {
            let message = format!("the credential `{name}` is empty or not one line{}", cx.location_suffix());
            cx.error(at.span, message, "`${NAME}` takes it from the environment");
            continue;
        }
        auth.insert(name, ConfigString::hidden(at.value.expose()));
    }
    auth
}

fn resolve_filter(written: Option<Spanned<OperationsFile>>, cx: &mut Context<'_>) -> OperationFilter {
    let Some(file) = into_value(written) else { return OperationFilter::default() };
    let words = |written: Option<Spanned<OneOrMany<String>>>| -> Vec<String> {
        written.into_iter().flat_map(|at| at.value.0).map(|at| at.value).collect()
    };
    for method in file.methods.iter().flat_map(|at| &at.value.0) {
        let word = method.value.to_ascii_uppercase();
        if !word.contains('*') && !METHODS.contains(&word.as_str()) {
            let message = format!("`{}` is not a method{}", method.value, cx.location_suffix());
            cx.error(method.span, message, crate::keys::join_quoted(&METHODS, "or"));
        }
    }
    OperationFilter {
        operations: words(file.operations),
        tags: words(file.tags),
        methods: words(file.methods).into_iter().map(|method| method.to_ascii_uppercase()).collect(),
        paths: words(file.paths),
    }
}

fn check_prefix(written: Spanned<String>, cx: &mut Context<'_>) -> String {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    if !written.value.chars().all(good) || written.value.len() > 64 {
        let message =
            format!("`{}` is not a valid prefix for tool names{}", written.value, cx.location_suffix());
        cx.error(written.span, message, "letters, digits, `_`, `.` and `-`, at most 64 of them");
    }
    written.value
}

#[cfg(test)]
mod tests {
    use crate::LoadOutcome;
    use crate::test_support::{config, loaded, messages};

    const DOCUMENT: &str = "openapi: 3.1.0\ninfo: {title: t, version: '1'}\npaths: {}\n";

    fn api(name: &str, keys: &str) -> LoadOutcome {
        let text = format!("openapi: {{{name}: {{{keys}}}}}");
        let files = [
            ("toolgate.yaml", text.as_str()),
            ("api.yaml", DOCUMENT),
            ("old.yaml", "swagger: '2.0'\n"),
            ("other.yaml", "a: b\n"),
        ];
        loaded(&files, &[])
    }

    #[test]
    fn values_and_defaults() {
        let keys = "document: api.yaml, base_url: 'https://h/v1', variables: {region: eu}, timeout: 16s, prefix: pets_, \
                    include: {methods: [get], tags: pets}, exclude: {operations: 'put*', paths: [/admin*]}, \
                    auth: {token: secret-token}, headers: {X-Team: t}, allow_networks: [10.2.0.0/16], \
                    output_validation: strict";
        insta::assert_snapshot!(config(&api("pets", keys))["apis"][0], @r#"{"name":"pets","document":"api.yaml","base_url":"https://h/v1","variables":{"region":"eu"},"include":{"tags":["pets"],"methods":["GET"]},"exclude":{"operations":["put*"],"paths":["/admin*"]},"auth":{"token":"***"},"headers":{"X-Team":"***"},"timeout":"16s","prefix":"pets_","allow_networks":["10.2.0.0/16"],"output_validation":"strict"}"#);
        insta::assert_snapshot!(config(&api("pets", "document: 'https://h/api.json'"))["apis"][0], @r#"{"name":"pets","document":"https://h/api.json","output_validation":"warn"}"#);
        assert!(config(&loaded(&[("toolgate.yaml", "name: x")], &[])).get("apis").is_none());
    }

    #[test]
    fn reports_mistakes() {
        let mistakes = [
            api("''", "document: api.yaml"),
            api("pets", ""),
            api("pets", "document: gone.yaml"),
            api("pets", "document: old.yaml"),
            api("pets", "document: other.yaml"),
            api("pets", "document: 'ftp://h/api.json'"),
            api("pets", "document: api.yaml, base_url: 'https://h/v1?key=x'"),
            api("pets", "document: api.yaml, include: {methods: [FETCH]}"),
            api("pets", "document: api.yaml, prefix: 'a b'"),
            api("pets", "document: api.yaml, auth: {token: ''}"),
            api("pets", "document: api.yaml, allow_networks: [everything]"),
        ];
        insta::assert_snapshot!(mistakes.iter().map(messages).collect::<Vec<_>>().join("\n"), @"
        error toolgate.yaml:1:11 `` is not a name for an API (a name has 1 to 64 characters)
        error toolgate.yaml:1:17 missing key `document` in API `pets` (add `document`: a string)
        error toolgate.yaml:1:28 the document `gone.yaml` does not exist in API `pets` (name a file relative to the project folder, or a URL)
        error toolgate.yaml:1:28 `old.yaml` is not an OpenAPI document in API `pets` (Swagger 2.0 is not supported; convert the document to OpenAPI 3)
        error toolgate.yaml:1:28 `other.yaml` is not an OpenAPI document in API `pets` (it has `openapi: 3.0.…` or `openapi: 3.1.…` at its top)
        error toolgate.yaml:1:28 `ftp://h/api.json` does not start with `https://` or `http://` in API `pets` (write a complete URL, such as `https://localhost:8080/mcp`)
        error toolgate.yaml:1:48 `base_url` holds more than a host and a path in API `pets` (put credentials in `auth` or `headers`, and the rest in arguments)
        error toolgate.yaml:1:58 `FETCH` is not a method in API `pets` (`GET`, `HEAD`, `OPTIONS`, `PUT`, `DELETE`, `POST` or `PATCH`)
        error toolgate.yaml:1:46 `a b` is not a valid prefix for tool names in API `pets` (letters, digits, `_`, `.` and `-`, at most 64 of them)
        error toolgate.yaml:1:52 the credential `token` is empty or not one line in API `pets` (`${NAME}` takes it from the environment)
        error toolgate.yaml:1:55 `everything` is not a network in API `pets` (a network is an IP address and a prefix length, such as `10.0.0.0/8` or `fd00::/8`)
        ");
    }
}
