//! The path of every HTTP request, from its head to its response.
//!
//! [`RequestHandler::route`] lists the stages in the order in which they run. Invariant: no part of a body is read
//! before the caller is authenticated and has the permission of the route (calls of tools are authorized later, by the
//! pipeline); every response carries the ids of its request, and every error has
//! the same shape.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName};
use http::request::Parts;
use http::{Method, Request, StatusCode};
use http_body::Body;
use toolgate_mcp::TraceContext;

use crate::auth::{Authenticated, HttpError};
use crate::listener::ConnectionSource;
use crate::response::{CORRELATION_ID, Response, TRACEPARENT};
use crate::route::{AdmittedRequest, BodyLimit, Handler, MAX_LOGIN_FORM};
use crate::routes::ROUTES;
use crate::{Gateway, body, console, mcp};

/// Handles the requests of one connection.
pub(crate) struct RequestHandler {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) source: ConnectionSource,
}

impl RequestHandler {
    pub(crate) fn new(gateway: Arc<Gateway>, source: ConnectionSource) -> Self {
        Self { gateway, source }
    }

    /// Handles a request: REST, MCP, health and metadata alike.
    pub(crate) async fn handle(&self, request: Request<impl Body<Data = Bytes> + Unpin>) -> Response {
        let (parts, body) = request.into_parts();
        let trace = trace_of(&parts.headers);
        let authenticator = &self.gateway.authenticator;
        // A 401 names the metadata of the protected resource in `WWW-Authenticate`.
        let rules = authenticator.rules();
        let source = rules.proxies.request_source(&self.source, &parts.headers);
        let challenge_target = authenticator.challenge_target(&parts, &source);
        let is_mcp = mcp::is_endpoint(&parts.uri);
        let is_page = console::is_page(&parts);
        let page_url = (parts.method == Method::GET).then(|| parts.uri.clone());
        let result = self.route(parts, body, &source, &trace).await;
        let mut response = result.unwrap_or_else(|error| {
            // MCP clients show the reason of JSON-RPC errors only. The id is not known: the body was not read.
            match () {
                () if is_mcp => mcp::render_error(error, &trace, None),
                () if is_page => console::render_error(error, page_url),
                () => error.render(&trace),
            }
        });
        if let Some(challenge_target) = challenge_target {
            authenticator.extend_challenge(&mut response, &challenge_target);
        }
        response.body_mut().set_request_ids(&trace);
        response
    }

    async fn route(
        &self,
        parts: Parts,
        body: impl Body<Data = Bytes> + Unpin,
        source: &ConnectionSource,
        trace: &TraceContext,
    ) -> Result<Response, HttpError> {
        let gateway = &self.gateway;
        // Before anything else: a flood of requests must cost as little as possible.
        self.check_address_and_host(&parts, source)?;
        check_encoding(&parts.headers)?;
        let (route, parameter) = ROUTES.find(&parts.method, &parts.uri)?;
        let mut auth = Authenticated::find(gateway, route.need, &parts, source, trace).await?;
        let mut access = match route.need.check(gateway, &auth, &parts, parameter) {
            Err(refused) if matches!(route.handler, Handler::Mcp) && route.method == Method::POST => {
                // The caller is known, so the body may be read: clients find the reason by the id of their request.
                let body = body::read_bytes(&parts.headers, body, gateway.max_body).await?;
                return Ok(mcp::refuse(refused, &parts.headers, body, gateway.max_body, trace));
            }
            checked => checked?,
        };
        // Last, so that only permitted callers can make the gateway hold a body.
        let body = match route.body_limit {
            BodyLimit::NotRead => Bytes::new(),
            BodyLimit::Configured => body::read_bytes(&parts.headers, body, gateway.max_body).await?,
            BodyLimit::Form => body::read_form(&parts.headers, body, gateway.max_body).await?,
            BodyLimit::LoginForm => body::read_form(&parts.headers, body, MAX_LOGIN_FORM).await?,
        };
        // A slow body must not preserve rights that were taken away.
        if route.body_limit != BodyLimit::NotRead
            && !route.need.is_public()
            && let Some(renewed) = auth.renewed(&gateway.authenticator)?
        {
            auth = renewed;
            access = route.need.check(gateway, &auth, &parts, parameter)?;
        }
        match &route.handler {
            Handler::Mcp => mcp::handle(gateway, &auth, &parts, parameter, body).await,
            Handler::Function(handle) => {
                let (gateway, source) = (Arc::clone(gateway), source.clone());
                let parameter = route.parameter().zip(parameter.map(str::to_owned));
                handle(AdmittedRequest { gateway, auth, access, source, parts, parameter, body }).await
            }
        }
    }

    /// Checks the quota of the client address, and that the request is for this gateway and not from a page of another
    /// origin. Browsers cannot open Unix sockets, so this is for the network only.
    fn check_address_and_host(&self, parts: &Parts, source: &ConnectionSource) -> Result<(), HttpError> {
        let ConnectionSource::Network(ends, _) = source else { return Ok(()) };
        self.gateway.authenticator.check_address_quota(ends.client)?;
        self.gateway.authenticator.check_host(parts, *ends)
    }
}

fn check_encoding(headers: &HeaderMap) -> Result<(), HttpError> {
    if !headers.contains_key(header::CONTENT_ENCODING) {
        return Ok(());
    }
    let message = "compressed request bodies are not supported";
    Err(HttpError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", message))
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

#[cfg(test)]
pub(crate) mod tests;
