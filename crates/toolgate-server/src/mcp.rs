//! MCP over HTTP: `/mcp` (Streamable HTTP), `/sse` (the transport of the first revision), and `/ws` (WebSocket).

pub(crate) mod sse;
pub(crate) mod stdio;
pub(crate) mod ws;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, StatusCode, Uri};
use parking_lot::Mutex;
use serde_json::json;
use tokio::task::JoinSet;
use toolgate_mcp::scan::ScanLimits;
use toolgate_mcp::server::{
    GetRequest, HttpExchange, HttpReply, LinkRequest, McpEndpoint, PostRequest, ReplyBody, RequestHead,
    SessionKeys, TraceSource, respond_batch,
};
use toolgate_mcp::{Link, RawJson, Revision, RpcError, TraceContext};
use toolgate_runtime::Runtime;
use toolgate_types::ErrorCode;

use crate::auth::{Authenticated, HttpError, LinkClient};
use crate::lifecycle::{CLOSE_GRACE, Lifecycle};
use crate::mcp_service::{McpCaller, McpService};
use crate::response::{Response, ResponseBody};
use crate::route::profile_name;
use crate::streams::StreamLimits;
use crate::{Gateway, body};
use sse::SseSessions;

/// JSON-RPC error code of a request over a rate limit.
const RATE_LIMITED: i64 = -32029;
/// Longest delay before the next message of a client over its quota is read. Its disconnect is noticed after that.
const MAX_READ_DELAY: Duration = Duration::from_secs(1);

const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");

/// MCP sessions on upgraded connections, open at the same time.
const MAX_UPGRADED: usize = 4_096;

/// The MCP endpoint, and the sessions that outlive the request that opened them.
pub(crate) struct McpFrontEnd {
    /// Decodes requests and encodes responses.
    endpoint: Arc<McpEndpoint>,
    /// Answers the decoded requests.
    pub(crate) service: McpService,
    pub(crate) message_limits: ScanLimits,
    pub(crate) sse_sessions: SseSessions,
    /// Tasks of sessions on upgraded connections: WebSockets, and joined `toolgate stdio`.
    upgraded: Mutex<JoinSet<()>>,
    lifecycle: Arc<Lifecycle>,
}

impl McpFrontEnd {
    pub(crate) fn new(
        runtime: &Arc<Runtime>,
        lifecycle: &Arc<Lifecycle>,
        max_body: usize,
        session_keys: &SessionKeys,
    ) -> Self {
        let message_limits = ScanLimits { size: max_body, depth: body::MAX_DEPTH };
        Self {
            endpoint: McpEndpoint::new(message_limits, session_keys),
            service: McpService::new(runtime, lifecycle),
            message_limits,
            sse_sessions: SseSessions::default(),
            upgraded: Mutex::default(),
            lifecycle: Arc::clone(lifecycle),
        }
    }

    pub(crate) fn set_session_keys(&self, keys: &SessionKeys) {
        self.endpoint.set_session_keys(keys);
    }

    async fn post(
        &self,
        mcp_caller: &McpCaller,
        head: &RequestHead<'_>,
        body: &Bytes,
        streams: &StreamLimits,
    ) -> Result<HttpReply, HttpError> {
        let (endpoint, service, id) = (&self.endpoint, &self.service, mcp_caller.id());
        Ok(match endpoint.decode_post(id, head, body) {
            PostRequest::Reply(reply) => reply,
            PostRequest::Initialize(request) => {
                self.lifecycle.wait_until_open().await;
                endpoint.initialize(&request, service.info(mcp_caller, request.revision()))
            }
            PostRequest::Listen(request) => {
                let permit = streams.acquire(&mcp_caller.caller.id)?;
                let source = service.clone().change_source(
                    mcp_caller.clone(),
                    request.uris().to_vec(),
                    request.trace.clone(),
                );
                // Boxed, so that tool calls do not carry the room for it.
                permit.hold(request.reply(Box::pin(source).await))
            }
            PostRequest::ToolCall(call) => {
                let mirrors = service.mirrors(mcp_caller, call.tool());
                match endpoint.check_mirrors(id, head, call, &mirrors) {
                    Ok(exchange) => self.respond(mcp_caller, exchange).await,
                    Err(reply) => reply,
                }
            }
            PostRequest::Exchange(exchange) => self.respond(mcp_caller, exchange).await,
            PostRequest::Batch(mut batch) => {
                batch.iter_mut().for_each(|exchange| service.answer(mcp_caller, exchange));
                respond_batch(batch).await
            }
        })
    }

    async fn respond(&self, mcp_caller: &McpCaller, mut exchange: HttpExchange) -> HttpReply {
        self.service.answer(mcp_caller, &mut exchange.exchange);
        self.endpoint.respond(exchange).await
    }

    /// Serves one client over a link until it disconnects or the gateway closes. Either way, running calls get a short
    /// time to finish, and all responses are sent before the link is closed. Requests over the quota are rejected. Each
    /// request is answered with the rights of its moment: those of the client's credential, or of the named caller.
    pub(crate) async fn serve_link(&self, mcp_caller: McpCaller, link: Link, client: Option<LinkClient>) {
        let service = &self.service;
        let is_configured = service.is_configured(&mcp_caller);
        let mut session = self.endpoint.open_link(mcp_caller.id(), link);
        let mut closing = pin!(self.lifecycle.closing());
        loop {
            let request = tokio::select! {
                // Requests that were received before the gateway closes are answered.
                biased;
                request = session.next() => request,
                () = &mut closing => return session.end_within(CLOSE_GRACE).await,
            };
            let Some(request) = request else { break };
            let taken = client.as_ref().map_or(Ok(()), |client| client.take(session.is_in_batch()));
            if let Err(wait) = taken {
                if matches!(request, LinkRequest::Handled) {
                    // The client waits for no response, so the only way to slow it down is to read later.
                    tokio::time::sleep(wait.min(MAX_READ_DELAY)).await;
                } else {
                    session.refuse(request, over_quota(wait)).await;
                }
                continue;
            }
            let current = match &client {
                Some(client) => {
                    client.current_state().map(|state| mcp_caller.clone().with_access(state.access()))
                }
                None => service.with_current_rights(&mcp_caller, is_configured),
            };
            // The credential was revoked, or the caller was removed.
            let Some(mcp_caller) = current else { break };
            match request {
                LinkRequest::Handled => {}
                LinkRequest::Initialize(request) => {
                    // The capabilities depend on the servers.
                    tokio::select! {
                        () = self.lifecycle.wait_until_open() => {}
                        () = &mut closing => return session.end_within(CLOSE_GRACE).await,
                    }
                    let info = service.info(&mcp_caller, request.revision());
                    session.initialize(request, info, service.changes(&mcp_caller)).await;
                }
                LinkRequest::Listen(request) => {
                    let source = service.clone().change_source(
                        mcp_caller.clone(),
                        request.uris().to_vec(),
                        request.trace.clone(),
                    );
                    session.listen(request, source);
                }
                LinkRequest::Exchange(mut exchange) => {
                    service.answer(&mcp_caller, &mut exchange);
                    session.respond(exchange);
                }
            }
        }
        let ended = session.id().map(str::to_owned);
        session.end().await;
        if let Some(ended) = ended {
            service.end_session(&mcp_caller, &ended);
        }
    }

    /// Runs a session on an upgraded connection in the background until it ends.
    fn spawn_session(&self, session: impl Future<Output = ()> + Send + 'static) -> Result<(), HttpError> {
        let mut tasks = self.upgraded.lock();
        while tasks.try_join_next().is_some() {}
        if tasks.len() >= MAX_UPGRADED {
            return Err(HttpError::unavailable("too many sessions are open"));
        }
        let lifecycle = Arc::clone(&self.lifecycle);
        tasks.spawn(async move {
            let _connection = lifecycle.track_connection();
            session.await;
        });
        Ok(())
    }
}

/// Returns true for the paths of Streamable HTTP.
pub(crate) fn is_endpoint(uri: &Uri) -> bool {
    uri.path().strip_prefix("/mcp").is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Renders an error as a JSON-RPC error. `id` is the id of the request as JSON, if it is known.
pub(crate) fn render_error(error: HttpError, trace: &TraceContext, id: Option<&RawJson>) -> Response {
    let code = match error.status.as_u16() {
        429 => RATE_LIMITED,
        400..=499 => -32600,
        _ => -32603,
    };
    let mut data = json!({
        "code": error.code, "class": error.class(), "retryable": error.is_retryable(),
        "correlationId": trace.correlation_id(),
    });
    if let Some(hint) = &error.hint {
        data["hint"] = hint.as_str().into();
    }
    if let Some(wait) = error.retry_after {
        data["retryAfterMs"] = json!(wait.as_millis());
    }
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":{},"error":{}}}"#,
        id.map_or("null", RawJson::as_str),
        json!({ "code": code, "message": error.message, "data": data }),
    );
    // Status and headers stay those of the HTTP error.
    let (mut parts, _) = error.render(trace).into_parts();
    parts.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(parts, ResponseBody::from(body))
}

/// Answers a POST that the caller may not make, with the id of its request. Clients of the revisions with a handshake get
/// status 200, as for every JSON-RPC error: they take 404 for a lost session, and do not look at the body.
pub(crate) fn refuse(
    error: HttpError,
    headers: &HeaderMap,
    body: Bytes,
    max_body: usize,
    trace: &TraceContext,
) -> Response {
    #[derive(serde::Deserialize)]
    struct RequestId<'a> {
        #[serde(borrow, default)]
        id: Option<&'a serde_json::value::RawValue>,
    }
    let body = body::scan(body, max_body).ok();
    let id = body.as_ref().and_then(|body| {
        let id = body.parse_borrowed::<RequestId<'_>>().ok()?.id.filter(|id| id.get() != "null")?;
        Some(body.slice(id.get()))
    });
    let is_newest = headers.get(PROTOCOL_VERSION).is_some_and(|version| version == Revision::NEWEST.name());
    let mut response = render_error(error, trace, id.as_ref());
    if id.is_some() && !is_newest {
        *response.status_mut() = StatusCode::OK;
    }
    response
}

fn over_quota(wait: Duration) -> RpcError {
    let seconds = wait.as_secs_f64().ceil() as u64;
    let data = json!({ "code": ErrorCode::RateLimited.label(), "retryAfter": seconds });
    let message = format!("too many requests by this caller or address; retry in {seconds} s");
    RpcError { code: RATE_LIMITED, message, data: Some(RawJson::from_value(&data)) }
}

/// Handles a request of Streamable HTTP.
pub(crate) async fn handle(
    gateway: &Arc<Gateway>,
    auth: &Authenticated,
    parts: &Parts,
    profile: Option<&str>,
    body: Bytes,
) -> Result<Response, HttpError> {
    let headers = &parts.headers;
    let mcp_caller = if gateway.authenticator.is_limited_by_scopes(&auth.caller, &auth.lifetime) {
        McpCaller::limited_by_scopes(&auth.caller)
    } else {
        McpCaller::new(&auth.caller)
    };
    let mcp_caller = mcp_caller.with_profile(profile_name(profile, parts)?).with_access(auth.access());
    let request_head = request_head(auth, headers);
    let reply = match parts.method {
        Method::GET => {
            let permit = gateway.streams.acquire(&auth.caller.id)?;
            permit.hold(match gateway.mcp.endpoint.decode_get(mcp_caller.id(), &request_head) {
                GetRequest::Reply(reply) => reply,
                GetRequest::Changes(request) => request.reply(gateway.mcp.service.changes(&mcp_caller)),
            })
        }
        Method::DELETE => {
            let (reply, ended) = gateway.mcp.endpoint.delete(mcp_caller.id(), &request_head);
            if let Some(session) = ended {
                gateway.runtime.end_session(&auth.caller.id, &session);
            }
            reply
        }
        _ => {
            gateway.authenticator.count_batch(&auth.caller.id, auth.address, &body)?;
            gateway.mcp.post(&mcp_caller, &request_head, &body, &gateway.streams).await?
        }
    };
    // Only for a single response: of a batch, other calls have run, and a stream has started.
    match mcp_caller.missing_permissions() {
        Some(missing) if is_single_response(&reply) && gateway.authenticator.has_scope_for(missing) => {
            Err(HttpError::missing_permissions(missing))
        }
        _ => Ok(respond(gateway, auth, reply)),
    }
}

/// Returns true if the reply is a single JSON response, not a batch or a stream.
fn is_single_response(reply: &HttpReply) -> bool {
    matches!(&reply.body, ReplyBody::Json(parts) if parts.first().starts_with(b"{"))
}

fn request_head<'a>(auth: &Authenticated, headers: &'a HeaderMap) -> RequestHead<'a> {
    let trace = auth.trace.clone();
    // Without ids in the headers, those in `_meta` may be used.
    let trace = if auth.has_correlation_id || auth.has_traceparent {
        TraceSource::To(trace)
    } else {
        TraceSource::Fallback(trace)
    };
    RequestHead { headers, trace }
}

fn respond(gateway: &Arc<Gateway>, auth: &Authenticated, reply: HttpReply) -> Response {
    let (is_stream, body) = match reply.body {
        ReplyBody::Empty => (false, ResponseBody::default()),
        ReplyBody::Json(parts) => (false, ResponseBody::json_parts(parts)),
        ReplyBody::Events(events) => (true, stream_body(gateway, auth, events)),
    };
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    if is_stream {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    }
    if reply.status == 405 {
        headers.insert(header::ALLOW, HeaderValue::from_static("POST"));
    }
    if let Some(session) = reply.session.and_then(|session| HeaderValue::from_str(&session).ok()) {
        headers.insert(SESSION_ID, session);
    }
    response
}

/// Turns events into a response body. The stream ends with the gateway, and with the credential that opened it.
fn stream_body(
    gateway: &Arc<Gateway>,
    auth: &Authenticated,
    events: impl Stream<Item = Bytes> + Send + 'static,
) -> ResponseBody {
    let closing = Arc::clone(&gateway.lifecycle);
    expiring_body(gateway, auth, events.take_until(Box::pin(async move { closing.closing().await })))
}

/// The same for events that end by themselves when the gateway closes.
fn expiring_body(
    gateway: &Arc<Gateway>,
    auth: &Authenticated,
    events: impl Stream<Item = Bytes> + Send + 'static,
) -> ResponseBody {
    let (gateway, lifetime) = (Arc::clone(gateway), auth.lifetime.clone());
    let expiry = async move { gateway.authenticator.wait_for_expiry(lifetime).await };
    ResponseBody::from_stream(events.take_until(Box::pin(expiry)).map(Ok))
}
