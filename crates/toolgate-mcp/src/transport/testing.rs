//! Servers of our own for the tests of the transports, over real loopback sockets.

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
use crate::link::{Incoming, Link, LinkError, Outgoing, Request};

pub(super) type Answer = hyper::Response<BoxBody<Bytes, Infallible>>;
pub(super) type Asked = hyper::Request<Bytes>;

/// Everything in these tests happens within this time, or the test fails.
const BOUND: Duration = Duration::from_secs(10);

/// A server that ends with its test.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    pub(super) hits: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

impl Server {
    pub(super) async fn start<F>(answer: impl Fn(Asked) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Answer> + Send + 'static,
    {
        Self::start_tls(answer, None).await
    }

    pub(super) async fn start_tls<F>(
        answer: impl Fn(Asked) -> F + Send + Sync + 'static,
        tls: Option<TlsAcceptor>,
    ) -> Self
    where
        F: Future<Output = Answer> + Send + 'static,
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
                        Ok::<_, Infallible>(answer(Asked::from_parts(head, body)).await)
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

/// A whole body.
pub(super) fn whole(status: u16, kind: &str, body: impl Into<Bytes>) -> Answer {
    let body = Full::new(body.into()).boxed();
    hyper::Response::builder().status(status).header("content-type", kind).body(body).unwrap()
}

pub(super) fn empty(status: u16) -> Answer {
    hyper::Response::builder().status(status).body(Full::default().boxed()).unwrap()
}

/// A body that is sent piece by piece. Its sender sees when nobody reads it any more.
pub(super) fn pieces(kind: &str) -> (mpsc::Sender<Bytes>, Answer) {
    let (sender, receiver) = mpsc::channel(1);
    let stream = unfold(receiver, |mut receiver: mpsc::Receiver<Bytes>| async move {
        let piece = receiver.recv().await?;
        Some((Ok(Frame::data(piece)), receiver))
    });
    let body = BodyExt::boxed(StreamBody::new(stream));
    (sender, hyper::Response::builder().header("content-type", kind).body(body).unwrap())
}

/// Keeps a body open until nobody reads it any more.
pub(super) fn hold(sender: mpsc::Sender<Bytes>, then: impl FnOnce() + Send + 'static) {
    let runtime = tokio::runtime::Handle::current();
    std::thread::spawn(move || {
        runtime.block_on(sender.closed());
        then();
    });
}

/// A stream of events that is all there.
pub(super) fn events(text: &str) -> Answer {
    whole(200, "text/event-stream; charset=utf-8", text.to_owned())
}

/// The id of a request, and its method.
pub(super) fn asked(request: &Asked) -> (Value, String) {
    let body: Value = serde_json::from_slice(request.body()).unwrap_or_default();
    (body["id"].clone(), body["method"].as_str().unwrap_or_default().to_owned())
}

/// The usual answer.
pub(super) fn result(id: &Value) -> String {
    json!({ "jsonrpc": "2.0", "id": id, "result": { "ok": true } }).to_string()
}

pub(super) fn header<'a>(request: &'a Asked, name: &str) -> Option<&'a str> {
    request.headers().get(name).map(|value| value.to_str().unwrap())
}

/// What is done with a link in tests.
impl Link {
    pub(super) async fn ask(&self, id: i64, method: &str, name: Option<&str>) {
        let bytes = json!({ "jsonrpc": "2.0", "id": id, "method": method }).to_string().into();
        let request = Request {
            id,
            method: method.into(),
            name: name.map(Into::into),
            mirrored: Vec::new(),
            trace: crate::trace::Trace::fresh(),
            bytes,
        };
        self.outbox.send(Outgoing::Request(request)).await.unwrap();
    }

    pub(super) async fn tell(&self, method: &str) {
        let bytes = json!({ "jsonrpc": "2.0", "method": method }).to_string().into();
        self.outbox.send(Outgoing::Other(bytes)).await.unwrap();
    }

    pub(super) async fn next(&mut self) -> Incoming {
        timeout(BOUND, self.inbox.recv()).await.expect("something comes in time").expect("the link is open")
    }

    /// The next message.
    pub(super) async fn message(&mut self) -> Value {
        match self.next().await {
            Incoming::Message(bytes) | Incoming::During(_, bytes) => serde_json::from_slice(&bytes).unwrap(),
            other => panic!("{other:?} is no message"),
        }
    }

    /// The next failure.
    pub(super) async fn failure(&mut self, of: i64) -> LinkError {
        match self.next().await {
            Incoming::Failed(id, error) if id == of => error,
            other => panic!("{other:?} is not the failure of {of}"),
        }
    }

    /// The end.
    pub(super) async fn end(&mut self) -> LinkError {
        match self.next().await {
            Incoming::Closed(error) => error,
            other => panic!("{other:?} is not the end"),
        }
    }
}

/// Waits until something holds.
pub(super) async fn until(holds: impl Fn() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(BOUND, waiting).await.expect("it holds in time");
}
