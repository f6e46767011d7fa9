//! What every request goes through, whatever it asks for: its ids, whether it is meant for us, and the shape of its
//! answer.
//!
//! Calls of MCP clients are what most requests are; they go from here to [`mcp`] by a plain call. Invariant: every
//! answer carries the ids of its request, and every error has one shape.

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
use toolgate_mcp::Trace;
use toolgate_types::Caller;

use crate::accept::Whence;
use crate::admit::{self, Refusal, Standing};
use crate::answer::{self, CORRELATION_ID, TRACEPARENT};
use crate::{Door, mcp, rest};

/// The way in for the requests of one connection.
pub(crate) struct Entry {
    door: Arc<Door>,
    router: TowerToHyperService<Router>,
    pub(crate) whence: Whence,
}

impl Entry {
    pub(crate) fn new(door: Arc<Door>, router: Router, whence: Whence) -> Self {
        Self { door, router: TowerToHyperService::new(router), whence }
    }

    /// Answers a request.
    pub(crate) async fn answer(&self, request: Request<Incoming>) -> Response {
        let (parts, body) = request.into_parts();
        let trace = trace(&parts.headers);
        let addressed = self.door.gate.addressed(&parts, &self.whence);
        let answered = match self.meant_for_us(&parts) {
            Ok(()) => self.route(parts, body, &trace).await,
            Err(refusal) => Err(refusal),
        };
        let mut response = answered.unwrap_or_else(|refusal| refusal.told(&trace));
        if let Some(addressed) = addressed {
            self.door.gate.challenge(&mut response, &addressed);
        }
        answer::identified(&mut response, &trace);
        let headers = response.headers_mut();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        response
    }

    fn meant_for_us(&self, parts: &Parts) -> Result<(), Refusal> {
        // A page in a browser does not open sockets of files.
        if let Whence::Network(ends, _) = &self.whence {
            self.door.gate.pace(ends.peer)?;
            self.door.gate.place(parts, *ends)?;
        }
        if parts.headers.contains_key(header::CONTENT_ENCODING) {
            let message = "a body is not compressed here";
            return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", message));
        }
        Ok(())
    }

    async fn route(&self, mut parts: Parts, body: Incoming, trace: &Trace) -> Result<Response, Refusal> {
        if mcp::is_at(parts.uri.path()) {
            if !mcp::METHODS.contains(&parts.method) {
                return Ok(allowing(
                    rest::not_allowed(),
                    trace,
                    HeaderValue::from_static("GET, POST, DELETE"),
                ));
            }
            let guest = Guest::admitted(&self.door, &parts, &self.whence, trace).await?;
            return mcp::answer(&self.door, &guest, &parts, body).await;
        }
        parts.extensions.insert(self.whence.clone());
        parts.extensions.insert(trace.clone());
        let request = Request::from_parts(parts, Body::new(body));
        let mut response = self.router.call(request).await.unwrap_or_else(|never: Infallible| match never {});
        let Some(refusal) = response.extensions_mut().remove::<Refusal>() else { return Ok(response) };
        match response.headers_mut().remove(header::ALLOW) {
            // The router knows what can be done there.
            Some(methods) => Ok(allowing(refusal, trace, methods)),
            None => Err(refusal),
        }
    }
}

/// A refusal that says what can be done instead.
fn allowing(refusal: Refusal, trace: &Trace, methods: HeaderValue) -> Response {
    let mut response = refusal.told(trace);
    response.headers_mut().insert(header::ALLOW, methods);
    response
}

/// The ids that a request came with, or new ones.
fn trace(headers: &HeaderMap) -> Trace {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let trace = text(CORRELATION_ID).map_or_else(Trace::fresh, Trace::new);
    match text(TRACEPARENT) {
        Some(parent) => trace.within(parent),
        None => trace,
    }
}

/// Who makes a request, and what it belongs to.
pub(crate) struct Guest {
    pub(crate) caller: Arc<Caller>,
    /// How long it stays, where it stays beyond this request.
    pub(crate) standing: Standing,
    pub(crate) trace: Trace,
    /// Whether it came by the socket in the project's folder, which its owner alone can open.
    pub(crate) at_machine: bool,
    /// Which of the ids it brought itself.
    pub(crate) identified: bool,
    pub(crate) traced: bool,
}

impl Guest {
    async fn admitted(door: &Door, parts: &Parts, whence: &Whence, trace: &Trace) -> Result<Self, Refusal> {
        let (caller, standing) = match whence {
            Whence::Machine => (door.gate.owner(), Standing::Lasting),
            Whence::Network(ends, shown) => door.gate.admit(parts, *ends, shown.as_deref()).await?,
        };
        Ok(Self {
            caller,
            standing,
            trace: trace.clone(),
            at_machine: matches!(whence, Whence::Machine),
            identified: parts.headers.contains_key(&CORRELATION_ID),
            traced: parts.headers.contains_key(&TRACEPARENT),
        })
    }

    /// Whether it may manage this. Who can open the socket can write the files, too.
    pub(crate) fn demand(&self, permission: &str) -> Result<(), Refusal> {
        if self.at_machine { Ok(()) } else { admit::demand(&self.caller, permission) }
    }
}

impl FromRequestParts<Arc<Door>> for Guest {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, door: &Arc<Door>) -> Result<Self, Refusal> {
        let known = (parts.extensions.get::<Whence>(), parts.extensions.get::<Trace>());
        let (Some(whence), Some(trace)) = known else {
            return Err(Refusal::unavailable("the request came by no door"));
        };
        Self::admitted(door, parts, whence, trace).await
    }
}
