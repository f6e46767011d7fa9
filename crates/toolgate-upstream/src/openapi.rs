//! Tools that an OpenAPI document describes: each operation of an HTTP API is one.
//!
//! `document` reads what a document says, `encode` makes a request of arguments, `send` is the way there. Only what
//! was decided on and checked goes that way:
//!
//! ```compile_fail
//! # async fn f(operation: &toolgate_upstream::openapi::Operation, trace: &toolgate_upstream::Trace) {
//! let arguments = toolgate_types::json::Raw::of(&"{}");
//! operation.invoke(&arguments, trace).await;
//! # }
//! ```
//!
//! Invariant: no argument decides where a request goes, and no credential goes anywhere but there.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use reqwest::header::{ACCEPT, CONTENT_TYPE, COOKIE, HeaderMap, HeaderValue};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use toolgate_mcp::scan::Limits;
use toolgate_mcp::{Raw, Trace};
use toolgate_policy::Input;
use toolgate_types::clean::clean;
use toolgate_types::tool::Category;
use toolgate_types::{ApiDocument, ApiSpec};
use url::Url;

use crate::offer::{Offer, tool};

mod base;
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

pub use document::{Contents, DocumentError, read};
pub use fetch::FetchError;
pub use send::SendError;

use encode::Unsendable;
use operation::Shape;
use security::{Credentials, Spot};
use send::{Sender, header};

/// Characters of an API's own words in an error.
const LONGEST_QUOTE: usize = 500;
/// What is asked for.
const WANTED: HeaderValue = HeaderValue::from_static("application/json, */*;q=0.5");
/// Notes that are told one by one.
const MOST_NOTES: usize = 50;

/// Turns the text of a document, YAML or JSON, into JSON. File formats are the business of whoever reads files.
pub type ReadText = fn(&str) -> Result<Box<RawValue>, String>;

/// An API, with what its document offers.
#[derive(Debug)]
pub struct Api {
    spec: ApiSpec,
    limits: Limits,
    read_text: ReadText,
    found: RwLock<Found>,
}

/// What came of reading a document.
#[derive(Debug, Clone, Default)]
pub struct Found {
    /// Its tools, as those of a server; nothing where there is no document.
    pub offer: Option<Offer>,
    /// The operations behind them, in the same order.
    pub operations: Vec<Arc<Operation>>,
    /// Why there is nothing.
    pub problem: Option<String>,
}

/// Why an API has no tools.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// Its document cannot be had.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// Its document is of no use.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// Its document is neither JSON nor YAML.
    #[error("it cannot be read: {0}")]
    Text(String),
    /// There can be no connections at all.
    #[error("no connection can be made: {0}")]
    Client(#[source] reqwest::Error),
}

/// Why a call of an operation gave nothing.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// The arguments cannot be sent. Nothing was.
    #[error(transparent)]
    Unsendable(#[from] Unsendable),
    /// A header of the configuration cannot be sent. Nothing was.
    #[error("the header or credential `{0}` of its configuration cannot be sent")]
    Header(String),
    /// There was no answer.
    #[error(transparent)]
    Send(#[from] SendError),
    /// The API says that it did not work.
    #[error("it answered {status}{reason}{said}", reason = spaced(.reason), said = told(.said))]
    Status {
        /// The status.
        status: u16,
        /// What it is called.
        reason: &'static str,
        /// The beginning of what it said.
        said: String,
        /// When it may be asked again.
        retry_after: Option<Duration>,
    },
    /// It answered with what is no result.
    #[error("{0}")]
    Unreadable(String),
}

fn spaced(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(" {reason}") }
}

fn told(said: &str) -> String {
    if said.is_empty() { String::new() } else { format!(": {said}") }
}

impl Api {
    /// An API of which nothing is known yet. An answer has no more bytes and levels than `limits` says.
    pub fn new(spec: ApiSpec, limits: Limits, read_text: ReadText) -> Self {
        Self { spec, limits, read_text, found: RwLock::default() }
    }

    /// What the operator says of it.
    pub fn spec(&self) -> &ApiSpec {
        &self.spec
    }

    /// What is known of it now.
    pub fn found(&self) -> Found {
        self.found.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads its document, from the network where it is there. What is wrong with single operations is told in the
    /// log; what was known before stays where nothing can be read now.
    ///
    /// # Errors
    /// When nothing of it can be used.
    pub async fn load(&self) -> Result<(), LoadError> {
        let outcome = self.look().await;
        let mut found = self.found.write().unwrap_or_else(PoisonError::into_inner);
        match outcome {
            Ok(new) => {
                *found = new;
                Ok(())
            }
            Err(error) => {
                found.problem = Some(error.to_string());
                Err(error)
            }
        }
    }

    async fn look(&self) -> Result<Found, LoadError> {
        let sender = Sender::new(&self.spec.allow_networks).map_err(LoadError::Client)?;
        let (json, origin) = match &self.spec.document {
            ApiDocument::File { json, .. } => (Arc::clone(json), None),
            ApiDocument::Url(url) => {
                let text = fetch::text(&self.spec, &sender, url).await?;
                let json = (self.read_text)(&text).map_err(LoadError::Text)?;
                (json.get().into(), Url::parse(url.expose()).ok())
            }
        };
        let root: Value = serde_json::from_str(&json).map_err(|error| LoadError::Text(error.to_string()))?;
        let contents = read(&root, &self.spec, origin.as_ref())?;
        let name = &self.spec.name;
        for note in contents.notes.iter().take(MOST_NOTES) {
            tracing::warn!("API '{name}' ({}): {}", self.spec.document.place(), clean(note));
        }
        if contents.notes.len() > MOST_NOTES {
            let more = contents.notes.len() - MOST_NOTES;
            tracing::warn!("API '{name}' ({}): and {more} more of these", self.spec.document.place());
        }
        Ok(self.made(contents, &Arc::new(sender)))
    }

    fn made(&self, contents: Contents, sender: &Arc<Sender>) -> Found {
        let Contents { version, operations, base, .. } = contents;
        let (mut tools, mut made) = (Vec::new(), Vec::new());
        for mut described in operations {
            let mut offered = tool(Raw::of(&described.definition));
            // Every client of MCP reads a schema of objects; of another, the whole list of tools is lost on some.
            if described.definition.pointer("/outputSchema/type").and_then(Value::as_str) != Some("object")
                && let Some(definition) = described.definition.as_object_mut()
            {
                definition.remove("outputSchema");
                offered.definition = Raw::of(definition);
            }
            made.push(Arc::new(Operation {
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
        let version = clean(&version).into_owned();
        let offer = Offer { version, tools: tools.into(), ..Offer::default() };
        Found { offer: Some(offer), operations: made, problem: None }
    }
}

/// An operation that can be called.
#[derive(Debug)]
pub struct Operation {
    shape: Shape,
    base: Url,
    credentials: Credentials,
    headers: Vec<(String, toolgate_types::Text)>,
    sender: Arc<Sender>,
    limits: Limits,
    /// What a result that is neither text nor picture is called.
    uri: String,
}

impl Operation {
    /// What kind of tool it is.
    pub fn category(&self) -> Category {
        if document::is_safe(self.shape.method) { Category::Query } else { Category::Mutation }
    }

    /// Whether calling it twice is as good as calling it once.
    pub fn is_idempotent(&self) -> bool {
        document::is_idempotent(self.shape.method)
    }

    /// Calls it with what was decided on, and gives the answer in the form of a server's reply.
    ///
    /// # Errors
    /// When there is no answer, or none that is a success.
    pub async fn invoke(&self, input: &Input, trace: &Trace) -> Result<Raw, ApiError> {
        let arguments = input.arguments();
        let values: Map<String, Value> = arguments.parse().unwrap_or_default();
        let members = arguments.members();
        let written = |name: &str| members.iter().find(|(member, _)| member == name).map(|(_, raw)| *raw);
        let encode::Request { mut url, headers, cookies, body } =
            self.shape.request(&self.base, &values, &written)?;
        let (kind, body) = body.unzip();
        let headers = self.headers(headers, cookies, kind, trace)?;
        for (_, name, value) in self.credentials.0.iter().filter(|(spot, ..)| *spot == Spot::Query) {
            url.query_pairs_mut().append_pair(name, value.expose());
        }
        let answer = self.sender.send(self.shape.method, url, headers, body, self.limits.size).await?;
        if !(200..300).contains(&answer.status) {
            return Err(ApiError::Status {
                status: answer.status,
                reason: answer.reason,
                said: quoted(&answer.bytes),
                retry_after: answer.retry_after,
            });
        }
        reply::of(&answer.kind, answer.bytes, self.limits, &self.uri).map_err(ApiError::Unreadable)
    }

    /// All headers: those of arguments first, so that none takes the place of another.
    fn headers(
        &self,
        arguments: Vec<(String, String)>,
        mut cookies: Vec<(String, String)>,
        kind: Option<String>,
        trace: &Trace,
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
                Spot::Header => set(name, value.expose(), true)?,
                Spot::Cookie => cookies.push((name.clone(), encode::escaped(value.expose()))),
                Spot::Query => {}
            }
        }
        for (name, value) in &self.headers {
            set(name, value.expose(), true)?;
        }
        if !cookies.is_empty() {
            let pairs: Vec<_> = cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
            set(COOKIE.as_str(), &pairs.join("; "), true)?;
        }
        headers.entry(ACCEPT).or_insert(WANTED);
        Ok(headers)
    }
}

/// The beginning of what an API said, on one line.
fn quoted(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(4 * LONGEST_QUOTE)]);
    let cleaned = clean(&text);
    let words: Vec<&str> = cleaned.split_whitespace().collect();
    let line = words.join(" ");
    match line.char_indices().nth(LONGEST_QUOTE) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}
