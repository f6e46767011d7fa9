//! WebSocket against a scripted server.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::net::TcpListener;
use tokio_tungstenite::tungstenite::handshake::server::{
    ErrorResponse, Request as Asked, Response as Answer,
};
use tokio_tungstenite::{accept_async, accept_hdr_async};
use toolgate_types::Secret;

use super::*;

const LIMITS: ScanLimits = ScanLimits { size: 1 << 20, depth: 64 };

/// Server that reacts to keywords in messages; with or without the subprotocol.
struct Server {
    url: String,
    pings: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

impl Server {
    async fn start(subprotocol: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("ws://127.0.0.1:{}/ws?key=hidden", listener.local_addr().unwrap().port());
        let pings = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&pings);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            loop {
                let (tcp, _) = listener.accept().await.unwrap();
                let socket =
                    if subprotocol { accept_hdr_async(tcp, agree).await } else { accept_async(tcp).await };
                // A client that requires the subprotocol disconnects and retries without it.
                if let Ok(socket) = socket {
                    serve(socket, &count).await;
                }
            }
        });
        Self { url, pings, _tasks: tasks }
    }

    async fn link(&self, ping: Duration) -> Result<Link, OpenError> {
        let headers = vec![("x-key".to_owned(), Secret::new("k"))];
        let options = RemoteOptions::new(Url::parse(&self.url).unwrap());
        open(RemoteOptions { headers, ..options }, ping, LIMITS).await
    }
}

#[expect(clippy::result_large_err, reason = "the signature is that of the callback")]
fn agree(request: &Asked, mut answer: Answer) -> Result<Answer, ErrorResponse> {
    assert_eq!(request.headers()["x-key"], "k");
    assert_eq!(request.headers()["sec-websocket-protocol"], "mcp");
    answer.headers_mut().insert("sec-websocket-protocol", HeaderValue::from_static("mcp"));
    Ok(answer)
}

async fn serve(mut socket: WebSocketStream<TcpStream>, pings: &AtomicUsize) {
    while let Some(Ok(message)) = socket.next().await {
        let Message::Text(text) = message else {
            pings.fetch_add(usize::from(message.is_ping()), Ordering::SeqCst);
            continue;
        };
        let text = text.as_str();
        let outcome = if text.contains("large") {
            socket.send(Message::text("x".repeat(64 << 20))).await
        } else if text.contains("leave") {
            let frame = CloseFrame { code: CloseCode::Policy, reason: "too busy".into() };
            socket.close(Some(frame)).await
        } else if text.contains("noise") {
            socket.send(Message::text("hello")).await
        } else if text.contains("vanish") {
            return;
        } else if text.contains("hang") {
            std::future::pending().await
        } else {
            let _ = socket.send(Message::Ping(Bytes::new())).await;
            socket.send(Message::binary(text.to_owned())).await
        };
        if outcome.is_err() {
            return;
        }
    }
}

#[tokio::test]
async fn messages_round_trip() {
    for subprotocol in [true, false] {
        let server = Server::start(subprotocol).await;
        let mut link = server.link(PING_INTERVAL).await.unwrap();
        for id in 1..=50 {
            link.request(id, "echo", None).await;
        }
        for id in 1..=50 {
            assert_eq!(link.message().await["id"], id);
        }
        link.notify("noise").await;
        assert!(matches!(link.next().await, LinkEvent::Noise(start) if start == "hello"));
        link.outbox.send(LinkCommand::Close).await.unwrap();
        assert!(matches!(link.end().await, LinkError::Closed));
    }
}

#[tokio::test]
async fn oversized_message_closes_the_link() {
    let server = Server::start(true).await;
    let mut link = server.link(PING_INTERVAL).await.unwrap();
    link.notify("large").await;
    assert!(matches!(link.end().await, LinkError::TooLarge(1_048_576)));
}

#[tokio::test]
async fn server_closes_the_connection() {
    let server = Server::start(true).await;
    let mut link = server.link(PING_INTERVAL).await.unwrap();
    link.notify("leave").await;
    assert_eq!(link.end().await.to_string(), "the server closed the connection with code 1008: too busy");
    let mut link = server.link(PING_INTERVAL).await.unwrap();
    link.notify("vanish").await;
    assert!(matches!(link.end().await, LinkError::Closed));
}

#[tokio::test]
async fn missing_pongs_close_the_connection() {
    let server = Server::start(true).await;
    let mut link = server.link(Duration::from_millis(50)).await.unwrap();
    super::super::testing::until(|| server.pings.load(Ordering::SeqCst) >= 5).await;
    link.notify("hang").await;
    assert!(matches!(link.end().await, LinkError::IdleTimeout));
}

#[tokio::test]
async fn rejects_other_servers() {
    use super::super::testing::{Server, empty, whole};
    let refused = async |answer: fn() -> super::super::testing::TestResponse| {
        let server = Server::start(move |_| std::future::ready(answer())).await;
        let url = Url::parse(&format!("ws://ann:pass@{}/ws?key=hidden", server.address)).unwrap();
        open(RemoteOptions::new(url), PING_INTERVAL, LIMITS).await.unwrap_err()
    };
    let challenged = refused(|| {
        let mut answer = whole(401, "text/plain", "who are you");
        answer.headers_mut().insert("www-authenticate", HeaderValue::from_static("Bearer"));
        answer
    });
    let OpenError::Link(LinkError::Status { status: 401, challenge: Some(challenge), .. }) = challenged.await
    else {
        panic!("expected a challenge")
    };
    assert_eq!(challenge, "Bearer");
    let redirected = refused(|| {
        let mut answer = empty(307);
        answer.headers_mut().insert("location", HeaderValue::from_static("http://127.0.0.1:1/"));
        answer
    });
    assert!(matches!(redirected.await, OpenError::Link(LinkError::Redirect(_))));
    let options = RemoteOptions::new(Url::parse("ws://127.0.0.1:1/ws?key=hidden").unwrap());
    let error = open(options, PING_INTERVAL, LIMITS).await.unwrap_err().to_string();
    assert!(error.starts_with("cannot connect to `ws://127.0.0.1:1/ws`: "), "{error}");
    let options = RemoteOptions::new(Url::parse("http://127.0.0.1:1/ws").unwrap());
    assert!(matches!(open(options, PING_INTERVAL, LIMITS).await, Err(OpenError::UnsupportedUrl { .. })));
}
