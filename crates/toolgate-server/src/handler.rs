//! Entry point of every HTTP request: request ids, host check, routing, and the shape of responses.
//!
//! Most requests are MCP calls, so they bypass the router and go straight to [`mcp`]. Invariant: every response carries
//! the ids of its request, and every error has the same shape.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::response::Response;
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::service::Service as _;
use hyper::{Request, StatusCode};
use hyper_util::service::TowerToHyperService;
use toolgate_mcp::TraceContext;
use toolgate_types::Caller;

use crate::auth::{self, CredentialLifetime, HttpError};
use crate::listener::ConnectionSource;
use crate::response::{self, CORRELATION_ID, TRACEPARENT};
use crate::{Gateway, mcp, rest};

/// Handles the requests of one connection.
pub(crate) struct RequestHandler {
    gateway: Arc<Gateway>,
    router: TowerToHyperService<Router>,
    pub(crate) source: ConnectionSource,
}

impl RequestHandler {
    pub(crate) fn new(gateway: Arc<Gateway>, router: Router, source: ConnectionSource) -> Self {
        Self { gateway, router: TowerToHyperService::new(router), source }
    }

    pub(crate) async fn handle(&self, request: Request<Incoming>) -> Response {
        let (parts, body) = request.into_parts();
        let trace = trace_of(&parts.headers);
        let challenge_target = self.gateway.authenticator.challenge_target(&parts, &self.source);
        let result = match self.check_request(&parts) {
            Ok(()) => self.route(parts, body, &trace).await,
            Err(error) => Err(error),
        };
        let mut response = result.unwrap_or_else(|error| error.render(&trace));
        if let Some(challenge_target) = challenge_target {
            self.gateway.authenticator.extend_challenge(&mut response, &challenge_target);
        }
        response::set_request_ids(&mut response, &trace);
        let headers = response.headers_mut();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        response
    }

    fn check_request(&self, parts: &Parts) -> Result<(), HttpError> {
        // Browsers cannot open Unix sockets, so the host check is for the network only.
        if let ConnectionSource::Network(ends, _) = &self.source {
            self.gateway.authenticator.check_address_quota(ends.peer)?;
            self.gateway.authenticator.check_host(parts, *ends)?;
        }
        if parts.headers.contains_key(header::CONTENT_ENCODING) {
            let message = "compressed request bodies are not supported";
            return Err(HttpError::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "unsupported_media_type",
                message,
            ));
        }
        Ok(())
    }

    async fn route(
        &self,
        mut parts: Parts,
        body: Incoming,
        trace: &TraceContext,
    ) -> Result<Response, HttpError> {
        if mcp::is_mcp_path(parts.uri.path()) {
            if !mcp::METHODS.contains(&parts.method) {
                return Ok(with_allowed_methods(
                    rest::method_not_allowed(&parts.method, &parts.uri),
                    trace,
                    HeaderValue::from_static("GET, POST, DELETE"),
                ));
            }
            let auth = Authenticated::authenticate(&self.gateway, &parts, &self.source, trace).await?;
            return mcp::handle(&self.gateway, &auth, &parts, body).await;
        }
        parts.extensions.insert(self.source.clone());
        parts.extensions.insert(trace.clone());
        let request = Request::from_parts(parts, Body::new(body));
        let mut response = self.router.call(request).await.unwrap_or_else(|never: Infallible| match never {});
        let Some(error) = response.extensions_mut().remove::<HttpError>() else { return Ok(response) };
        match response.headers_mut().remove(header::ALLOW) {
            // The router knows the allowed methods.
            Some(methods) => Ok(with_allowed_methods(error, trace, methods)),
            None => Err(error),
        }
    }
}

/// Renders a 405 with the allowed methods, in the message and in the header.
fn with_allowed_methods(mut error: HttpError, trace: &TraceContext, methods: HeaderValue) -> Response {
    let allowed: Vec<_> = methods.to_str().unwrap_or_default().split(',').map(str::trim).collect();
    error.message.push_str(&format!(" (allowed: {})", allowed.join(", ")));
    let mut response = error.render(trace);
    response.headers_mut().insert(header::ALLOW, methods);
    response
}

/// Reads the correlation id and trace context from the headers, or creates new ones.
fn trace_of(headers: &HeaderMap) -> TraceContext {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let trace = text(CORRELATION_ID).map_or_else(TraceContext::generate, TraceContext::new);
    match text(TRACEPARENT) {
        Some(parent) => trace.with_parent(parent),
        None => trace,
    }
}

/// The authenticated caller of a request, with its trace context.
pub(crate) struct Authenticated {
    pub(crate) caller: Arc<Caller>,
    /// Lifetime of the credential. Limits streams that outlive the request.
    pub(crate) lifetime: CredentialLifetime,
    pub(crate) trace: TraceContext,
    /// True for the Unix socket in the project directory, which only its owner can open.
    pub(crate) via_socket: bool,
    /// True if the client sent a correlation id.
    pub(crate) has_correlation_id: bool,
    pub(crate) has_traceparent: bool,
}

impl Authenticated {
    async fn authenticate(
        gateway: &Gateway,
        parts: &Parts,
        source: &ConnectionSource,
        trace: &TraceContext,
    ) -> Result<Self, HttpError> {
        let (caller, lifetime) = match source {
            ConnectionSource::LocalSocket => (gateway.authenticator.owner(), CredentialLifetime::Permanent),
            ConnectionSource::Network(ends, certificate) => {
                gateway.authenticator.authenticate(parts, *ends, certificate.as_deref()).await?
            }
        };
        Ok(Self {
            caller,
            lifetime,
            trace: trace.clone(),
            via_socket: matches!(source, ConnectionSource::LocalSocket),
            has_correlation_id: parts.headers.contains_key(&CORRELATION_ID),
            has_traceparent: parts.headers.contains_key(&TRACEPARENT),
        })
    }

    /// Checks a management permission. The socket owner always passes, because it can edit the files anyway.
    pub(crate) fn require(&self, permission: &str) -> Result<(), HttpError> {
        if self.via_socket { Ok(()) } else { auth::require_permission(&self.caller, permission) }
    }
}

impl FromRequestParts<Arc<Gateway>> for Authenticated {
    type Rejection = HttpError;

    async fn from_request_parts(parts: &mut Parts, gateway: &Arc<Gateway>) -> Result<Self, HttpError> {
        let extensions = (parts.extensions.get::<ConnectionSource>(), parts.extensions.get::<TraceContext>());
        let (Some(source), Some(trace)) = extensions else {
            return Err(HttpError::unavailable("the request has no connection source"));
        };
        Self::authenticate(gateway, parts, source, trace).await
    }
}
