//! Serves over the network, on loopback: Streamable HTTP at `/mcp`, or HTTP+SSE at `/sse`.
//!
//! Has its own accept loop, since that of the framework leaves Nagle's algorithm on: a response in two segments then
//! takes 40 ms, and a suite of hundreds of requests takes minutes.

use std::convert::Infallible;
use std::io::Write;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use hyper::service::{Service, service_fn};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::chain::{self, ChainHandler};
use crate::server::FixtureServer;
use crate::{ProtocolEra, legacy, sse};

pub(crate) type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Service on a port.
pub(crate) enum HttpEndpoint {
    Mcp {
        era: ProtocolEra,
        service: StreamableHttpService<FixtureServer, LocalSessionManager>,
    },
    Sse(sse::SseSessions),
    Chain {
        service: Box<StreamableHttpService<ChainHandler, LocalSessionManager>>,
        _other: chain::UpstreamClient,
    },
}

impl HttpEndpoint {
    pub(crate) fn mcp(era: ProtocolEra) -> Self {
        let fixture = FixtureServer::new(era);
        let origins = ["http://localhost:*", "http://127.0.0.1:*", "http://[::1]:*"];
        let config = StreamableHttpServerConfig::default().with_allowed_origins(origins);
        let service = StreamableHttpService::new(move || Ok(fixture.new_session()), Arc::default(), config);
        Self::Mcp { era, service }
    }

    pub(crate) fn sse() -> Self {
        Self::Sse(sse::SseSessions::new(FixtureServer::new(ProtocolEra::Legacy)))
    }

    pub(crate) async fn chain(url: &str) -> Result<Self, Box<dyn std::error::Error>> {
        let (other, chain) = chain::connect(url).await?;
        // The fastest configuration: no sessions, and responses without an event stream.
        let config =
            StreamableHttpServerConfig::default().with_legacy_session_mode(false).with_json_response(true);
        let service = StreamableHttpService::new(move || Ok(chain.clone()), Arc::default(), config);
        Ok(Self::Chain { service: Box::new(service), _other: other })
    }

    async fn respond(&self, request: Request<Incoming>) -> Response<Body> {
        match self {
            Self::Mcp { era, service } if request.uri().path() == "/mcp" => {
                let version = request.headers().get("mcp-protocol-version");
                let version = version.and_then(|version| version.to_str().ok());
                if let (ProtocolEra::Legacy, Some(refusal)) = (era, legacy::version_error(version)) {
                    return json_response(StatusCode::BAD_REQUEST, &refusal);
                }
                let Ok(response) = TowerToHyperService::new(service.clone()).call(request).await;
                response.map(BodyExt::boxed_unsync)
            }
            Self::Chain { service, .. } if request.uri().path() == "/mcp" => {
                let Ok(response) = TowerToHyperService::new((**service).clone()).call(request).await;
                response.map(BodyExt::boxed_unsync)
            }
            Self::Sse(sessions) => sessions.respond(request).await,
            Self::Mcp { .. } | Self::Chain { .. } => empty_response(StatusCode::NOT_FOUND),
        }
    }
}

/// Prints the port and serves forever.
pub(crate) async fn serve(port: &str, endpoint: HttpEndpoint) -> Result<(), Box<dyn std::error::Error>> {
    let listener = TcpListener::bind(("127.0.0.1", port.parse()?)).await?;
    writeln!(std::io::stdout(), "{}", listener.local_addr()?.port())?;
    let endpoint = Arc::new(endpoint);
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let endpoint = Arc::clone(&endpoint);
        connections.spawn(async move {
            let service = service_fn(move |request| {
                let endpoint = Arc::clone(&endpoint);
                async move { Ok::<_, Infallible>(endpoint.respond(request).await) }
            });
            // Ignore errors: the client may close the connection at any time.
            let _ = Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
        });
        while connections.try_join_next().is_some() {}
    }
}

pub(crate) fn empty_response(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Full::default().boxed_unsync());
    *response.status_mut() = status;
    response
}

fn json_response(status: StatusCode, value: &Value) -> Response<Body> {
    let mut response = Response::new(Full::from(value.to_string()).boxed_unsync());
    *response.status_mut() = status;
    let kind = hyper::header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}
