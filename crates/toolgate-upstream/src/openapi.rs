//! Tools from an OpenAPI document: each operation of an HTTP API is one.
//!
//! `document` reads the document, `encode` builds a request from arguments, `send` sends it. `invoke` takes only an
//! `Input`, the proof that the policy and the schema were checked:
//!
//! ```compile_fail
//! # async fn f(operation: &toolgate_upstream::openapi::ApiOperation, trace: &toolgate_upstream::TraceContext) {
//! let arguments = toolgate_json::RawJson::from_value(&"{}");
//! operation.invoke(&arguments, trace).await;
//! # }
//! ```
//!
//! Invariant: arguments never decide which host a request goes to, and credentials go nowhere else.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use reqwest::header::{ACCEPT, CONTENT_TYPE, COOKIE, HeaderMap, HeaderValue};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use toolgate_mcp::scan::ScanLimits;
use toolgate_mcp::{RawJson, TraceContext};
use toolgate_policy::Input;
use toolgate_redact::sanitize::sanitize;
use toolgate_types::tool::Category;
use toolgate_types::{ApiDocument, ApiSpec};
use url::Url;

use crate::offer::{ServerOffer, parse_tool};

mod base_url;
mod body;
mod document;
mod encode;
mod fetch;
mod operation;
mod reply;
mod schema;
mod security;
mod send;
#[cfg(test)]
mod tests;

pub use document::{DocumentContents, DocumentError, read_document};
pub use fetch::FetchError;
pub use send::SendError;

use encode::EncodeError;
use operation::RequestTemplate;
use security::{CredentialLocation, Credentials};
use send::{HttpSender, header};

/// Characters of an API's error body in an error message.
const MAX_QUOTE_CHARS: usize = 500;
/// The `Accept` header, unless an argument or the configuration sets one.
const DEFAULT_ACCEPT: HeaderValue = HeaderValue::from_static("application/json, */*;q=0.5");
/// Notes logged one by one.
const MAX_NOTES: usize = 50;

/// Converts a document, YAML or JSON, to JSON. Passed in, because file formats belong to `toolgate-config`.
pub type TextParser = fn(&str) -> Result<Box<RawValue>, String>;

/// An HTTP API, with the tools of its document.
#[derive(Debug)]
pub struct HttpApi {
    spec: ApiSpec,
    limits: ScanLimits,
    read_text: TextParser,
    loaded: RwLock<LoadedApi>,
}

/// The result of reading a document.
#[derive(Debug, Clone, Default)]
pub struct LoadedApi {
    /// The tools, in the same form as those of a server; `None` without a document.
    pub offer: Option<ServerOffer>,
    /// The operations of the tools, in the same order.
    pub operations: Vec<Arc<ApiOperation>>,
    /// The reason the last attempt to load failed.
    pub problem: Option<String>,
}

/// A document that cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The document cannot be fetched.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// The document cannot be used.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// The document is neither JSON nor YAML.
    #[error("it is neither JSON nor YAML: {0}")]
    Text(String),
    /// The HTTP client cannot be created.
    #[error("cannot create the HTTP client: {0}")]
    Client(#[source] reqwest::Error),
}

/// A failed call of an operation.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// The arguments cannot be encoded. Nothing was sent.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// A header from the configuration cannot be encoded. Nothing was sent.
    #[error("its configured header or credential `{0}` contains characters that no header allows")]
    Header(String),
    /// No response arrived.
    #[error(transparent)]
    Send(#[from] SendError),
    /// The API responded with an error status.
    #[error("it answered {status}{reason}{excerpt}", reason = with_space(.reason), excerpt = with_colon(.excerpt))]
    Status {
        status: u16,
        /// The reason phrase of the status.
        reason: &'static str,
        /// The beginning of the body.
        excerpt: String,
        /// The time to wait before a retry.
        retry_after: Option<Duration>,
    },
    /// The response cannot be converted to a result.
    #[error("{0}")]
    Unreadable(String),
}

fn with_space(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(" {reason}") }
}

fn with_colon(excerpt: &str) -> String {
    if excerpt.is_empty() { String::new() } else { format!(": {excerpt}") }
}

impl HttpApi {
    /// Creates an API that is not loaded yet. Responses are bounded by `limits`.
    pub fn new(spec: ApiSpec, limits: ScanLimits, read_text: TextParser) -> Self {
        Self { spec, limits, read_text, loaded: RwLock::default() }
    }

    pub fn spec(&self) -> &ApiSpec {
        &self.spec
    }

    /// The tools that are known now.
    pub fn loaded(&self) -> LoadedApi {
        self.loaded.read().clone()
    }

    /// Reads the document, from the network if it has a URL. Logs problems with single operations. If the document
    /// cannot be read, the tools known before stay.
    ///
    /// # Errors
    /// If no part of the document can be used.
    pub async fn load(&self) -> Result<(), LoadError> {
        let outcome = self.read().await;
        let mut loaded = self.loaded.write();
        match outcome {
            Ok(new) => {
                *loaded = new;
                Ok(())
            }
            Err(error) => {
                loaded.problem = Some(error.to_string());
                Err(error)
            }
        }
    }

    async fn read(&self) -> Result<LoadedApi, LoadError> {
        let sender = HttpSender::new(&self.spec.allow_networks).map_err(LoadError::Client)?;
        let (json, origin) = match &self.spec.document {
            ApiDocument::File { json, .. } => (Arc::clone(json), None),
            ApiDocument::Url(url) => {
                let text = fetch::load_text(&self.spec, &sender, url).await?;
                let json = (self.read_text)(&text).map_err(LoadError::Text)?;
                (json.get().into(), Url::parse(url.expose()).ok())
            }
        };
        let root: Value = serde_json::from_str(&json).map_err(|error| LoadError::Text(error.to_string()))?;
        let contents = read_document(&root, &self.spec, origin.as_ref())?;
        let name = &self.spec.name;
        for note in contents.notes.iter().take(MAX_NOTES) {
            tracing::warn!("API '{name}' ({}): {}", self.spec.document.location(), sanitize(note));
        }
        if contents.notes.len() > MAX_NOTES {
            let more = contents.notes.len() - MAX_NOTES;
            tracing::warn!("API '{name}' ({}): and {more} more notes", self.spec.document.location());
        }
        Ok(self.build(contents, &Arc::new(sender)))
    }

    fn build(&self, contents: DocumentContents, sender: &Arc<HttpSender>) -> LoadedApi {
        let DocumentContents { version, operations, base, .. } = contents;
        let (mut tools, mut built) = (Vec::new(), Vec::new());
        for mut described in operations {
            let mut offered = parse_tool(RawJson::from_value(&described.definition));
            // Every MCP client accepts an object schema; with another schema some lose the whole tool list.
            if described.definition.pointer("/outputSchema/type").and_then(Value::as_str) != Some("object")
                && let Some(definition) = described.definition.as_object_mut()
            {
                definition.remove("outputSchema");
                offered.definition = RawJson::from_value(definition);
            }
            built.push(Arc::new(ApiOperation {
                uri: format!("api:{}/{}", self.spec.name, offered.name),
                shape: described.shape,
                credentials: described.credentials,
                headers: self.spec.headers.clone().into_iter().collect(),
                base: base.clone(),
                sender: Arc::clone(sender),
                limits: self.limits,
            }));
            tools.push(offered);
        }
        let version = sanitize(&version).into_owned();
        let offer =
            ServerOffer { version, tools: tools.into(), has_listed_tools: true, ..ServerOffer::default() };
        LoadedApi { offer: Some(offer), operations: built, problem: None }
    }
}

/// An operation that can be called.
#[derive(Debug)]
pub struct ApiOperation {
    shape: RequestTemplate,
    base: Url,
    credentials: Credentials,
    headers: Vec<(String, toolgate_types::ConfigString)>,
    sender: Arc<HttpSender>,
    limits: ScanLimits,
    /// The URI of results that are neither text nor images.
    uri: String,
}

impl ApiOperation {
    pub fn category(&self) -> Category {
        if document::is_safe(self.shape.method) { Category::Query } else { Category::Mutation }
    }

    /// Returns true if calling it twice has the same effect as calling it once.
    pub fn is_idempotent(&self) -> bool {
        document::is_idempotent(self.shape.method)
    }

    /// Calls the operation, and returns the response as an MCP tool result.
    ///
    /// # Errors
    /// If there is no response, or its status is not a success.
    pub async fn invoke(&self, input: &Input, trace: &TraceContext) -> Result<RawJson, ApiError> {
        let arguments = input.arguments();
        let values: Map<String, Value> = arguments.parse().unwrap_or_default();
        let members = arguments.members();
        let written = |name: &str| members.iter().find(|(member, _)| member == name).map(|(_, raw)| *raw);
        let encode::EncodedRequest { mut url, headers, cookies, body } =
            self.shape.request(&self.base, &values, &written)?;
        let (kind, body) = body.unzip();
        let headers = self.headers(headers, cookies, kind, trace)?;
        for (_, name, value) in
            self.credentials.0.iter().filter(|(spot, ..)| *spot == CredentialLocation::Query)
        {
            url.query_pairs_mut().append_pair(name, value.expose());
        }
        let answer = self.sender.send(self.shape.method, url, headers, body, self.limits.size).await?;
        if !(200..300).contains(&answer.status) {
            return Err(ApiError::Status {
                status: answer.status,
                reason: answer.reason,
                excerpt: excerpt(&answer.bytes),
                retry_after: answer.retry_after,
            });
        }
        reply::from_response(&answer.kind, answer.bytes, self.limits, &self.uri).map_err(ApiError::Unreadable)
    }

    /// Builds all headers. Arguments come first, so that they cannot replace credentials or configured headers.
    fn headers(
        &self,
        arguments: Vec<(String, String)>,
        mut cookies: Vec<(String, String)>,
        kind: Option<String>,
        trace: &TraceContext,
    ) -> Result<HeaderMap, ApiError> {
        let mut headers = HeaderMap::new();
        let mut set = |name: &str, value: &str, secret: bool| {
            let (name, value) =
                header(name, value, secret).ok_or_else(|| ApiError::Header(name.to_owned()))?;
            headers.insert(name, value);
            Ok::<_, ApiError>(())
        };
        for (name, value) in &arguments {
            set(name, value, false)?;
        }
        if let Some(kind) = kind {
            set(CONTENT_TYPE.as_str(), &kind, false)?;
        }
        set("traceparent", trace.traceparent(), false)?;
        set("x-correlation-id", trace.correlation_id(), false)?;
        for (spot, name, value) in &self.credentials.0 {
            match spot {
                CredentialLocation::Header => set(name, value.expose(), true)?,
                CredentialLocation::Cookie => {
                    cookies.push((name.clone(), encode::percent_encode(value.expose())))
                }
                CredentialLocation::Query => {}
            }
        }
        for (name, value) in &self.headers {
            set(name, value.expose(), true)?;
        }
        if !cookies.is_empty() {
            let pairs: Vec<_> = cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
            set(COOKIE.as_str(), &pairs.join("; "), true)?;
        }
        headers.entry(ACCEPT).or_insert(DEFAULT_ACCEPT);
        Ok(headers)
    }
}

/// The beginning of a response body, on one line.
fn excerpt(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(4 * MAX_QUOTE_CHARS)]);
    let cleaned = sanitize(&text);
    let words: Vec<&str> = cleaned.split_whitespace().collect();
    let line = words.join(" ");
    match line.char_indices().nth(MAX_QUOTE_CHARS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}
