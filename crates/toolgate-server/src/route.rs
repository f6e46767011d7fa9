//! One route of the gateway: method, path, permission, body limit, handler, and its description for clients.
//!
//! Invariant: a handler runs only after the requirement of its route was checked and its body was read within the
//! limit. [`crate::handler`] does both, so handlers check only permissions that depend on the body.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::Method;
use http::request::Parts;
use percent_encoding::percent_decode_str;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;
use toolgate_json::RawJson;
use toolgate_types::profile::ProfileName;

use crate::auth::{Authenticated, HttpError};
use crate::listener::ConnectionSource;
use crate::response::Response;
use crate::{Gateway, body, routes};

/// Requirement that a request must meet before its body is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Requirement {
    /// No credential needed.
    Public,
    /// No credential needed; callers with this permission see details.
    PublicOr(&'static str),
    /// Any authenticated caller; each sees what it may see.
    AnyCaller,
    /// Any authenticated caller for its own items; callers with this permission for those of all callers, and for
    /// details.
    OwnOr(&'static str),
    /// Callers with this permission.
    Permission(&'static str),
    /// Callers with both permissions.
    Both(&'static str, &'static str),
    /// Callers with the first permission; those with the second one too see details.
    Details(&'static str, &'static str),
    /// Callers with the permissions of the tool. The pipeline checks them, because they depend on the tool.
    ToolPermissions,
    /// Callers that may use the profile in the path, or that need none if there is none in it.
    Profile,
    /// Callers that logged in to the console, by the cookie of their session. No other credential counts.
    Console,
}

/// Extent of the access that a requirement grants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Everything the route offers.
    Full,
    /// Without the details and the items of other callers that need a permission.
    Limited,
}

impl Requirement {
    pub(crate) fn is_public(self) -> bool {
        matches!(self, Self::Public | Self::PublicOr(_))
    }

    /// The permissions that every request needs.
    pub(crate) fn permissions(self) -> Vec<&'static str> {
        match self {
            Self::Permission(one) | Self::Details(one, _) => vec![one],
            Self::Both(one, other) => vec![one, other],
            _ => Vec::new(),
        }
    }

    /// Checks the requirement for a request. The only place where a route demands a permission.
    pub(crate) fn check(
        self,
        gateway: &Gateway,
        auth: &Authenticated,
        parts: &Parts,
        parameter: Option<&str>,
    ) -> Result<Access, HttpError> {
        match self {
            // Pages of the console perform operations of other routes; these demand their own permissions.
            Self::Public | Self::AnyCaller | Self::ToolPermissions | Self::Console => Ok(Access::Limited),
            Self::PublicOr(permission) | Self::OwnOr(permission) => {
                Ok(if auth.require(permission).is_ok() { Access::Full } else { Access::Limited })
            }
            Self::Permission(permission) => auth.require(permission).map(|()| Access::Full),
            Self::Both(one, other) => {
                auth.require(one).and_then(|()| auth.require(other)).map(|()| Access::Full)
            }
            Self::Details(needed, details) => {
                auth.require(needed)?;
                Ok(if auth.require(details).is_ok() { Access::Full } else { Access::Limited })
            }
            // A profile this caller may not use counts as missing.
            Self::Profile => match gateway.runtime.profiles().resolve(&auth.caller.id, parameter) {
                Ok(_) => Ok(Access::Full),
                Err(_) => Err(no_profile(parameter, parts)),
            },
        }
    }
}

/// Size limit of a request body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyLimit {
    /// The body is not read.
    NotRead,
    /// `serve.max_body` of the configuration.
    Configured,
    /// A form of the console, within `serve.max_body`.
    Form,
    /// The form of a login. Its caller is not known yet.
    LoginForm,
}

/// Largest form of a login, in bytes.
pub(crate) const MAX_LOGIN_FORM: usize = 8 << 10;

/// A request that may be handled: its caller meets the requirement, and its body is read.
pub(crate) struct AdmittedRequest {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) auth: Authenticated,
    pub(crate) access: Access,
    pub(crate) source: ConnectionSource,
    pub(crate) parts: Parts,
    /// Name and value of the path parameter, as sent.
    pub(crate) parameter: Option<(&'static str, String)>,
    /// Empty if the route does not read it.
    pub(crate) body: Bytes,
}

impl AdmittedRequest {
    /// Decodes the path parameter.
    pub(crate) fn parameter(&self) -> Result<String, HttpError> {
        let (name, value) = self.parameter.as_ref().expect("the path of the route has a parameter");
        percent_decode_str(value)
            .decode_utf8()
            .map(Cow::into_owned)
            .map_err(|_| HttpError::invalid(format!("Invalid URL: Invalid UTF-8 in `{name}`")))
    }

    /// Reads the profile from the path parameter.
    pub(crate) fn profile(&self) -> Result<Option<ProfileName>, HttpError> {
        profile_name(self.parameter.as_ref().map(|(_, value)| value.as_str()), &self.parts)
    }

    /// Parses the query. Unknown parameters are rejected.
    pub(crate) fn query<T: DeserializeOwned>(&self) -> Result<T, HttpError> {
        let query = self.parts.uri.query().unwrap_or_default();
        serde_urlencoded::from_str(query)
            .map_err(|error| HttpError::invalid(format!("invalid query: {error}")))
    }

    /// Scans the body as JSON.
    pub(crate) fn raw_json(&self) -> Result<RawJson, HttpError> {
        body::scan(self.body.clone(), self.gateway.max_body)
    }

    /// Parses the body as JSON.
    pub(crate) fn json<T: DeserializeOwned>(&self) -> Result<T, HttpError> {
        let raw = self.raw_json()?;
        // A list of the members in order would be accepted, too.
        if raw.as_str().trim_start().starts_with('[') {
            return Err(HttpError::invalid("the body must be a JSON object, not an array"));
        }
        serde_json::from_str(raw.as_str()).map_err(|error| HttpError::invalid(error.to_string()))
    }
}

/// Parses the name of a profile in the path. An invalid name counts as a missing profile.
pub(crate) fn profile_name(parameter: Option<&str>, parts: &Parts) -> Result<Option<ProfileName>, HttpError> {
    parameter.map(|name| name.parse().map_err(|_| no_profile(parameter, parts))).transpose()
}

/// 404: there is no such profile, or the caller may not use it.
fn no_profile(parameter: Option<&str>, parts: &Parts) -> HttpError {
    let Some(name) = parameter else { return routes::no_endpoint(&parts.method, &parts.uri) };
    let name: String = name.chars().take(64).collect();
    HttpError::not_found(format!("there is no profile `{name}` for this caller"))
        .hint("`GET /v1/profiles` lists the profiles; `profiles` of toolgate.yaml defines them")
}

type HandlerFn = dyn Fn(AdmittedRequest) -> BoxFuture<'static, Result<Response, HttpError>> + Send + Sync;

/// Handler of a route.
pub(crate) enum Handler {
    /// Streamable HTTP. Not behind a pointer, because most requests are MCP calls: their future is not boxed again.
    Mcp,
    /// Any other route.
    Function(Box<HandlerFn>),
}

impl fmt::Debug for Handler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mcp => "Mcp",
            Self::Function(_) => "Function",
        })
    }
}

/// Content of a successful response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResponseContent {
    /// JSON, by the name of its schema.
    Json(&'static str),
    /// Another content type.
    Text(&'static str),
    /// Server-sent events.
    Events,
    Empty,
}

/// A query parameter: name, type, description.
pub(crate) type Parameter = (&'static str, &'static str, &'static str);

/// A row of the route table.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    pub(crate) need: Requirement,
    pub(crate) body_limit: BodyLimit,
    pub(crate) handler: Handler,
    /// Description for clients. MCP and OAuth metadata have none, because they have specifications of their own.
    pub(crate) operation: Option<ApiOperation>,
}

/// Schema of a request body.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BodySchema {
    pub(crate) name: &'static str,
    /// Generates the schema from the type that reads the body. `None` if `schemas.json` has it, because the body is an
    /// entry of a configuration file.
    pub(crate) generate: Option<fn() -> Json>,
}

/// Generates the schema of a type.
pub(crate) fn schema_of<T: JsonSchema>() -> Json {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    // The name of a type of ours means nothing to clients.
    schema.remove("title");
    schema.to_value()
}

/// Description of a route in the OpenAPI document.
#[derive(Debug, Clone)]
pub(crate) struct ApiOperation {
    /// The `operationId` of OpenAPI.
    pub(crate) id: &'static str,
    pub(crate) summary: &'static str,
    pub(crate) query: &'static [Parameter],
    pub(crate) body: Option<BodySchema>,
    pub(crate) status: u16,
    pub(crate) content: ResponseContent,
    /// Error statuses, besides those that apply to every operation.
    pub(crate) errors: &'static [u16],
    /// True if it supports `If-Match`.
    pub(crate) conditional: bool,
}

/// Future of a handler.
pub(crate) trait RouteFuture: Future<Output = Result<Response, HttpError>> + Send + 'static {}

impl<F: Future<Output = Result<Response, HttpError>> + Send + 'static> RouteFuture for F {}

impl Route {
    /// Creates a route that reads no body and is not part of the OpenAPI document.
    pub(crate) fn new<F: RouteFuture>(
        method: Method,
        path: &'static str,
        need: Requirement,
        handle: fn(AdmittedRequest) -> F,
    ) -> Self {
        let handler = Handler::Function(Box::new(move |request| Box::pin(handle(request))));
        Self { method, path, need, body_limit: BodyLimit::NotRead, handler, operation: None }
    }

    /// Creates a route of Streamable HTTP.
    pub(crate) fn mcp(method: Method, path: &'static str) -> Self {
        let body_limit = if method == Method::POST { BodyLimit::Configured } else { BodyLimit::NotRead };
        let (need, handler) = (Requirement::Profile, Handler::Mcp);
        Self { method, path, need, body_limit, handler, operation: None }
    }

    pub(crate) fn reads(mut self, limit: BodyLimit) -> Self {
        self.body_limit = limit;
        self
    }

    pub(crate) fn reads_body(mut self) -> Self {
        self.body_limit = BodyLimit::Configured;
        self
    }

    /// Adds the route to the OpenAPI document, by its `operationId`.
    pub(crate) fn describe(mut self, id: &'static str, summary: &'static str) -> Self {
        self.operation = Some(ApiOperation {
            id,
            summary,
            query: &[],
            body: None,
            status: 200,
            content: ResponseContent::Empty,
            errors: &[],
            conditional: false,
        });
        self
    }

    fn with(mut self, change: impl FnOnce(&mut ApiOperation)) -> Self {
        change(self.operation.as_mut().expect("the route was described first"));
        self
    }

    pub(crate) fn query(self, query: &'static [Parameter]) -> Self {
        self.with(|operation| operation.query = query)
    }

    /// Reads a body with a schema of `schemas.json`.
    pub(crate) fn takes(self, name: &'static str) -> Self {
        self.takes_schema(name, None)
    }

    /// Reads a body of this type.
    pub(crate) fn takes_type<T: JsonSchema>(self, name: &'static str) -> Self {
        self.takes_schema(name, Some(schema_of::<T>))
    }

    /// Reads a body with a generated schema.
    pub(crate) fn takes_schema(self, name: &'static str, generate: Option<fn() -> Json>) -> Self {
        self.reads_body().with(|operation| operation.body = Some(BodySchema { name, generate }))
    }

    pub(crate) fn gives(self, status: u16, content: ResponseContent) -> Self {
        self.with(|operation| (operation.status, operation.content) = (status, content))
    }

    pub(crate) fn or(self, errors: &'static [u16]) -> Self {
        self.with(|operation| operation.errors = errors)
    }

    /// Supports `If-Match`.
    pub(crate) fn conditional(self) -> Self {
        self.with(|operation| operation.conditional = true)
    }

    /// Name of the path parameter. No path has more than one.
    pub(crate) fn parameter(&self) -> Option<&'static str> {
        self.path.split('/').find_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
    }

    /// All statuses of error responses, for the OpenAPI document.
    pub(crate) fn error_statuses(&self, operation: &ApiOperation) -> Vec<u16> {
        // Wrong host; compressed body.
        let mut all = vec![403, 415];
        all.extend(operation.errors);
        if !self.need.is_public() {
            // Invalid query; missing or wrong credential; too many requests.
            all.extend([400, 401, 429]);
        }
        if self.body_limit == BodyLimit::Configured {
            all.extend([400, 408, 413]);
        }
        if self.parameter().is_some() {
            all.extend([400, 404]);
        }
        if operation.conditional {
            all.extend([409, 412, 422, 503]);
        }
        all.sort_unstable();
        all.dedup();
        all
    }
}
