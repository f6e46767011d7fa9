//! Test servers for the transports, on loopback sockets.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::unfold;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming as Received};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use url::Url;

use super::RemoteOptions;
use crate::link::{Link, LinkCommand, LinkError, LinkEvent, OutgoingRequest};

pub(super) type TestResponse = hyper::Response<BoxBody<Bytes, Infallible>>;
pub(super) type TestRequest = hyper::Request<Bytes>;

/// Time limit for everything in these tests.
const BOUND: Duration = Duration::from_secs(10);

/// Server that stops with its test.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    pub(super) hits: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

impl Server {
    pub(super) async fn start<F>(answer: impl Fn(TestRequest) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = TestResponse> + Send + 'static,
    {
        Self::start_tls(answer, None).await
    }

    pub(super) async fn start_tls<F>(
        answer: impl Fn(TestRequest) -> F + Send + Sync + 'static,
        tls: Option<TlsAcceptor>,
    ) -> Self
    where
        F: Future<Output = TestResponse> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let hits = Arc::new(AtomicUsize::new(0));
        let (answer, count) = (Arc::new(answer), Arc::clone(&hits));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut serving = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                stream.set_nodelay(true).unwrap();
                let (answer, count, tls) = (Arc::clone(&answer), Arc::clone(&count), tls.clone());
                let service = service_fn(move |request: hyper::Request<Received>| {
                    let (answer, count) = (Arc::clone(&answer), Arc::clone(&count));
                    async move {
                        count.fetch_add(1, Ordering::SeqCst);
                        let (head, body) = request.into_parts();
                        let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
                        Ok::<_, Infallible>(answer(TestRequest::from_parts(head, body)).await)
                    }
                });
                serving.spawn(async move {
                    let builder = Builder::new(TokioExecutor::new());
                    match tls {
                        None => drop(builder.serve_connection(TokioIo::new(stream), service).await),
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                drop(builder.serve_connection(TokioIo::new(stream), service).await);
                            }
                        }
                    }
                });
            }
        });
        Self { address, hits, _tasks: tasks }
    }

    pub(super) fn options(&self) -> RemoteOptions {
        RemoteOptions::new(Url::parse(&format!("http://{}/mcp?key=hidden", self.address)).unwrap())
    }

    pub(super) fn hits(&self) -> usize {
        self.hits.load(Ordering::SeqCst)
    }
}

pub(super) fn whole(status: u16, kind: &str, body: impl Into<Bytes>) -> TestResponse {
    let body = Full::new(body.into()).boxed();
    hyper::Response::builder().status(status).header("content-type", kind).body(body).unwrap()
}

pub(super) fn empty(status: u16) -> TestResponse {
    hyper::Response::builder().status(status).body(Full::default().boxed()).unwrap()
}

/// Response whose body is sent in chunks. Its sender is closed when the client stops reading.
pub(super) fn chunked(kind: &str) -> (mpsc::Sender<Bytes>, TestResponse) {
    let (sender, receiver) = mpsc::channel(1);
    let stream = unfold(receiver, |mut receiver: mpsc::Receiver<Bytes>| async move {
        let piece = receiver.recv().await?;
        Some((Ok(Frame::data(piece)), receiver))
    });
    let body = BodyExt::boxed(StreamBody::new(stream));
    (sender, hyper::Response::builder().header("content-type", kind).body(body).unwrap())
}

/// Keeps a body open until the client stops reading.
pub(super) fn hold(sender: mpsc::Sender<Bytes>, then: impl FnOnce() + Send + 'static) {
    let runtime = tokio::runtime::Handle::current();
    std::thread::spawn(move || {
        runtime.block_on(sender.closed());
        then();
    });
}

/// Complete event stream.
pub(super) fn events(text: &str) -> TestResponse {
    whole(200, "text/event-stream; charset=utf-8", text.to_owned())
}

/// Id and method of a request.
pub(super) fn id_and_method(request: &TestRequest) -> (Value, String) {
    let body: Value = serde_json::from_slice(request.body()).unwrap_or_default();
    (body["id"].clone(), body["method"].as_str().unwrap_or_default().to_owned())
}

/// Result for a request.
pub(super) fn result(id: &Value) -> String {
    json!({ "jsonrpc": "2.0", "id": id, "result": { "ok": true } }).to_string()
}

pub(super) fn header<'a>(request: &'a TestRequest, name: &str) -> Option<&'a str> {
    request.headers().get(name).map(|value| value.to_str().unwrap())
}

/// Test helpers.
impl Link {
    pub(super) async fn request(&self, id: i64, method: &str, name: Option<&str>) {
        let bytes = json!({ "jsonrpc": "2.0", "id": id, "method": method }).to_string().into();
        let request = OutgoingRequest {
            id,
            method: method.into(),
            name: name.map(Into::into),
            mirror_headers: Vec::new(),
            trace: crate::trace::TraceContext::generate(),
            bytes,
        };
        self.outbox.send(LinkCommand::Request(request)).await.unwrap();
    }

    pub(super) async fn notify(&self, method: &str) {
        let bytes = json!({ "jsonrpc": "2.0", "method": method }).to_string().into();
        self.outbox.send(LinkCommand::Message(bytes)).await.unwrap();
    }

    pub(super) async fn next(&mut self) -> LinkEvent {
        timeout(BOUND, self.inbox.recv()).await.expect("something comes in time").expect("the link is open")
    }

    pub(super) async fn message(&mut self) -> Value {
        match self.next().await {
            LinkEvent::Message(bytes) | LinkEvent::StreamMessage(_, bytes) => {
                serde_json::from_slice(&bytes).unwrap()
            }
            other => panic!("{other:?} is no message"),
        }
    }

    pub(super) async fn failure(&mut self, of: i64) -> LinkError {
        match self.next().await {
            LinkEvent::Failed(id, error) if id == of => error,
            other => panic!("{other:?} is not the failure of {of}"),
        }
    }

    pub(super) async fn end(&mut self) -> LinkError {
        match self.next().await {
            LinkEvent::Closed(error) => error,
            other => panic!("{other:?} is not the end"),
        }
    }
}

/// Waits until a condition holds.
pub(super) async fn until(holds: impl Fn() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(BOUND, waiting).await.expect("it holds in time");
}
