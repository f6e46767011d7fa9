//! Entries of `openapi` become APIs. The document of a file is read here, so that what is wrong with it has a place;
//! what it means is for whoever makes tools of it.

use std::collections::BTreeMap;

use toolgate_types::api::OperationFilter;
use toolgate_types::{ApiDocument, ApiSpec, Text};

use crate::context::Context;
use crate::file::{ApiFile, OperationsFile, OutputValidationName};
use crate::keys::{At, Named, OneOrMany};
use crate::settle::server::{check_url, headers};
use crate::settle::{Draft, value, values};

/// Where documents that were fetched are kept, seen from the project folder.
const CACHE: &str = ".toolgate/openapi";
/// Methods that an operation can have.
const METHODS: [&str; 7] = ["GET", "HEAD", "OPTIONS", "PUT", "DELETE", "POST", "PATCH"];

impl Draft {
    /// Takes one API over, or tells what is wrong with it.
    pub(crate) fn api(&mut self, key: &str, entry: At<ApiFile>, cx: &mut Context<'_>) {
        cx.labels.push(format!("API `{key}`"));
        self.api_within(key, entry, cx);
        cx.labels.pop();
    }

    fn api_within(&mut self, key: &str, entry: At<ApiFile>, cx: &mut Context<'_>) {
        let (file, span) = (entry.value, entry.key_span);
        let written = file.written();
        let name = match key.parse() {
            Ok(name) => name,
            Err(error) => {
                return cx.error(span, format!("`{key}` is not a name for an API"), format!("{error}"));
            }
        };
        let auth = credentials(file.auth, cx);
        let document = file.document.and_then(|at| document(at, cx));
        let base_url = match file.base_url {
            Some(url) if !cx.waits(&url.value) => {
                let good = check_url(&url, &["https", "http"], cx).is_some() && is_plain(&url, cx);
                good.then_some(url.value)
            }
            other => value(other),
        };
        let include = filter(file.include, cx);
        let exclude = filter(file.exclude, cx);
        let prefix = file.prefix.map(|at| prefix(at, cx)).unwrap_or_default();
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
            headers: headers(file.headers, cx),
            timeout: value(file.timeout),
            prefix,
            allow_networks: values(file.allow_networks).unwrap_or_default(),
            strict_output: value(file.output_validation) == Some(OutputValidationName::Strict),
            cache: cx.project.join(CACHE),
        };
        self.origins(&format!("apis.{}", api.name), written);
        self.apis.push((api, span));
    }
}

/// A file, which is read, or an address.
fn document(written: At<Text>, cx: &mut Context<'_>) -> Option<ApiDocument> {
    let text = written.value.expose();
    if text.contains("://") {
        return (cx.waits(&written.value) || check_url(&written, &["https", "http"], cx).is_some())
            .then_some(ApiDocument::Url(written.value));
    }
    let path = cx.project.join(text);
    if !cx.has_file(&path) {
        let what = if path.is_dir() { "is a folder" } else { "does not exist" };
        let message = format!("the document `{}` {what}{}", written.value.shown(), cx.whereabouts());
        cx.error(written.span, message, "name a file, seen from the project folder, or an address");
        return None;
    }
    let node = crate::load::parse(&path, cx)?;
    if node.get("openapi").is_none() {
        let message = format!("`{}` is not an OpenAPI document{}", written.value.shown(), cx.whereabouts());
        let hint = match node.get("swagger") {
            Some(_) => "Swagger 2.0 is not understood; converters to OpenAPI 3 are easy to find",
            None => "it has `openapi: 3.0.…` or `openapi: 3.1.…` at its top",
        };
        cx.error(written.span, message, hint);
        return None;
    }
    Some(ApiDocument::File { path: written.value.shown().to_owned(), json: node.to_json().get().into() })
}

/// An address that paths can be put behind.
fn is_plain(url: &At<Text>, cx: &mut Context<'_>) -> bool {
    let parsed = url::Url::parse(url.value.expose());
    let plain = parsed.is_ok_and(|url| {
        url.query().is_none()
            && url.fragment().is_none()
            && url.username().is_empty()
            && url.password().is_none()
    });
    if !plain {
        let message = format!("`base_url` holds more than a host and a path{}", cx.whereabouts());
        cx.error(url.span, message, "credentials go to `auth` or `headers`, the rest to arguments");
    }
    plain
}

/// Values of security schemes, of which nothing is shown.
fn credentials(written: Option<At<Named<Text>>>, cx: &mut Context<'_>) -> BTreeMap<String, Text> {
    let mut auth = BTreeMap::new();
    for (name, at) in written.into_iter().flat_map(|at| at.value.0) {
        cx.hide(at.value.expose());
        if let Some((_, password)) = at.value.expose().split_once(':') {
            cx.hide(password);
        }
        if at.value.expose().is_empty() || at.value.expose().chars().any(char::is_control) {
            let message = format!("the credential `{name}` is empty or not one line{}", cx.whereabouts());
            cx.error(at.span, message, "`${NAME}` takes it from the environment");
            continue;
        }
        auth.insert(name, Text::hidden(at.value.expose()));
    }
    auth
}

fn filter(written: Option<At<OperationsFile>>, cx: &mut Context<'_>) -> OperationFilter {
    let Some(file) = value(written) else { return OperationFilter::default() };
    let words = |written: Option<At<OneOrMany<String>>>| -> Vec<String> {
        written.into_iter().flat_map(|at| at.value.0).map(|at| at.value).collect()
    };
    for method in file.methods.iter().flat_map(|at| &at.value.0) {
        let word = method.value.to_ascii_uppercase();
        if !word.contains('*') && !METHODS.contains(&word.as_str()) {
            let message = format!("`{}` is not a method{}", method.value, cx.whereabouts());
            cx.error(method.span, message, crate::keys::listed(&METHODS, "or"));
        }
    }
    OperationFilter {
        operations: words(file.operations),
        tags: words(file.tags),
        methods: words(file.methods).into_iter().map(|method| method.to_ascii_uppercase()).collect(),
        paths: words(file.paths),
    }
}

fn prefix(written: At<String>, cx: &mut Context<'_>) -> String {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    if !written.value.chars().all(good) || written.value.len() > 64 {
        let message = format!("`{}` cannot stand before a tool's name{}", written.value, cx.whereabouts());
        cx.error(written.span, message, "letters, digits, `_`, `.` and `-`, at most 64 of them");
    }
    written.value
}
