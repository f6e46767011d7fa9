//! The server over the network: streamable HTTP at `/mcp`, or HTTP+SSE at `/sse`, on loopback.
//!
//! The accept loop is written by hand, since what comes with a framework leaves Nagle's algorithm on: an
//! answer in two pieces then waits for 40 ms, and a suite of hundreds of requests for minutes.

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

use crate::chain::{self, Chain};
use crate::server::Fixture;
use crate::{Era, legacy, sse};

pub(crate) type Body = UnsyncBoxBody<Bytes, Infallible>;

/// What is served on a port.
pub(crate) enum Door {
    Mcp { era: Era, service: StreamableHttpService<Fixture, LocalSessionManager> },
    Sse(sse::Sessions),
    Chain { service: Box<StreamableHttpService<Chain, LocalSessionManager>>, _other: chain::Other },
}

impl Door {
    pub(crate) fn mcp(era: Era) -> Self {
        let fixture = Fixture::new(era);
        let origins = ["http://localhost:*", "http://127.0.0.1:*", "http://[::1]:*"];
        let config = StreamableHttpServerConfig::default().with_allowed_origins(origins);
        let service = StreamableHttpService::new(move || Ok(fixture.another()), Arc::default(), config);
        Self::Mcp { era, service }
    }

    pub(crate) fn sse() -> Self {
        Self::Sse(sse::Sessions::new(Fixture::new(Era::Legacy)))
    }

    pub(crate) async fn chain(url: &str) -> Result<Self, Box<dyn std::error::Error>> {
        let (other, chain) = chain::connect(url).await?;
        let config = StreamableHttpServerConfig::default();
        let service = StreamableHttpService::new(move || Ok(chain.clone()), Arc::default(), config);
        Ok(Self::Chain { service: Box::new(service), _other: other })
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        match self {
            Self::Mcp { era, service } if request.uri().path() == "/mcp" => {
                let version = request.headers().get("mcp-protocol-version");
                let version = version.and_then(|version| version.to_str().ok());
                if let (Era::Legacy, Some(refusal)) = (era, legacy::refusal(version)) {
                    return json(StatusCode::BAD_REQUEST, &refusal);
                }
                let Ok(response) = TowerToHyperService::new(service.clone()).call(request).await;
                response.map(BodyExt::boxed_unsync)
            }
            Self::Chain { service, .. } if request.uri().path() == "/mcp" => {
                let Ok(response) = TowerToHyperService::new((**service).clone()).call(request).await;
                response.map(BodyExt::boxed_unsync)
            }
            Self::Sse(sessions) => sessions.answer(request).await,
            Self::Mcp { .. } | Self::Chain { .. } => empty(StatusCode::NOT_FOUND),
        }
    }
}

/// Prints the port, and serves for ever.
pub(crate) async fn serve(port: &str, door: Door) -> Result<(), Box<dyn std::error::Error>> {
    let listener = TcpListener::bind(("127.0.0.1", port.parse()?)).await?;
    writeln!(std::io::stdout(), "{}", listener.local_addr()?.port())?;
    let door = Arc::new(door);
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let door = Arc::clone(&door);
        connections.spawn(async move {
            let answer = service_fn(move |request| {
                let door = Arc::clone(&door);
                async move { Ok::<_, Infallible>(door.answer(request).await) }
            });
            // How a connection ends is the client's business.
            let _ = Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), answer).await;
        });
        while connections.try_join_next().is_some() {}
    }
}

pub(crate) fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Full::default().boxed_unsync());
    *response.status_mut() = status;
    response
}

fn json(status: StatusCode, value: &Value) -> Response<Body> {
    let mut response = Response::new(Full::from(value.to_string()).boxed_unsync());
    *response.status_mut() = status;
    let kind = hyper::header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}
