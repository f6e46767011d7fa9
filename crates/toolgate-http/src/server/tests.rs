//! Connections in memory: requests as bytes, responses as bytes.

#![expect(clippy::disallowed_methods, reason = "the tests wait for the tasks they spawn")]

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

use super::*;

const OPTIONS: ServerOptions = ServerOptions {
    max_head_bytes: 1 << 10,
    first_head_timeout: Duration::from_secs(5),
    head_timeout: Duration::from_secs(10),
};

/// A body of parts; without a length if there are several.
struct Parts(Vec<&'static str>);

impl ResponseBody for Parts {}

impl Body for Parts {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let part = if self.0.is_empty() { None } else { Some(self.0.remove(0)) };
        Poll::Ready(part.map(|part| Ok(Frame::data(Bytes::from_static(part.as_bytes())))))
    }

    fn size_hint(&self) -> http_body::SizeHint {
        match self.0.as_slice() {
            [] => http_body::SizeHint::with_exact(0),
            [one] => http_body::SizeHint::with_exact(one.len() as u64),
            _ => http_body::SizeHint::default(),
        }
    }
}

/// Answers `/echo` with the length of the body, `/stream` with chunks, `/unread` without reading the body.
fn handle(request: Request<RequestBody<DuplexStream>>) -> Handling<Parts> {
    Box::pin(async move {
        let path = request.uri().path().to_owned();
        let mut body = request.into_body();
        let mut length = 0;
        if path != "/unread" {
            while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
                match frame {
                    Ok(frame) => length += frame.into_data().map_or(0, |data| data.len()),
                    Err(_) => {
                        let mut bad = Response::new(Parts(vec!["bad"]));
                        *bad.status_mut() = StatusCode::BAD_REQUEST;
                        return bad;
                    }
                }
            }
        }
        match path.as_str() {
            "/stream" => Response::new(Parts(vec!["one", "", "two"])),
            "/never" => std::future::pending().await,
            "/none" => {
                let mut none = Response::new(Parts(vec![]));
                *none.status_mut() = StatusCode::NO_CONTENT;
                none
            }
            _ => Response::new(Parts(vec![match length {
                0 => "0 bytes",
                5 => "5 bytes",
                _ => "more bytes",
            }])),
        }
    })
}

/// Sends bytes in parts of a size and returns all that the server sends until it closes.
async fn exchange(sent: &str, part: usize) -> String {
    let (mut near, far) = duplex(32);
    let serving = serve(far, OPTIONS, handle, std::future::pending());
    let client = async {
        let (mut read, mut write) = tokio::io::split(&mut near);
        let writing = async {
            for part in sent.as_bytes().chunks(part) {
                if write.write_all(part).await.is_err() {
                    break;
                }
            }
            let _ = write.shutdown().await;
        };
        let mut received = Vec::new();
        let reading = read.read_to_end(&mut received);
        let (_, read) = tokio::join!(writing, reading);
        read.unwrap();
        String::from_utf8(received).unwrap()
    };
    let (_, received) = tokio::join!(serving, client);
    received
}

/// Status lines and bodies of all responses.
async fn statuses(sent: &str, part: usize) -> String {
    let received = exchange(sent, part).await;
    let lines = received.lines().filter(|line| !line.contains(": ") || line.starts_with("ambiguous"));
    lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" | ")
}

#[tokio::test]
async fn requests_are_answered_in_order() {
    let sent = "\r\nPOST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nhelloGET /stream HTTP/1.1\r\n\r\n\
        POST /echo HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n3\r\ncde\r\n0\r\n\r\n\
        GET /none HTTP/1.1\r\n\r\nHEAD /echo HTTP/1.1\r\n\r\n\
        POST /unread HTTP/1.1\r\ncontent-length: 5\r\n\r\nhelloGET /echo HTTP/1.1\r\nconnection: close\r\n\r\nGET /";
    for part in [1, 7, 1_000] {
        let received = statuses(sent, part).await;
        let expected = "HTTP/1.1 200 OK | 5 bytesHTTP/1.1 200 OK | 3 | one | 3 | two | 0 | HTTP/1.1 200 OK | 5 bytesHTTP/1.1 204 No Content | \
            HTTP/1.1 200 OK | HTTP/1.1 200 OK | 0 bytesHTTP/1.1 200 OK | 0 bytes";
        assert_eq!(received, expected, "in parts of {part}");
    }
}

#[tokio::test]
async fn ambiguous_requests_end_the_connection() {
    for bad in [
        "GET / HTTP/1.1\nhost: x\n\n",
        "GET / HTTP/1.1\r\nhost: x\n\r\n",
        "POST / HTTP/1.1\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello",
    ] {
        let good = "GET /echo HTTP/1.1\r\n\r\n";
        for part in [1, 1_000] {
            let received = statuses(&format!("{good}{bad}{good}"), part).await;
            assert_eq!(
                received,
                "HTTP/1.1 200 OK | 0 bytesHTTP/1.1 400 Bad Request | ambiguous framing: end each line with CR LF, and send one valid Content-Length",
                "{bad:?}"
            );
        }
    }
    let long = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(2_000));
    assert!(statuses(&long, 100).await.starts_with("HTTP/1.1 431 "));
    assert!(statuses("GET / HTTP/3.0\r\n\r\n", 100).await.starts_with("HTTP/1.1 505 "));
    assert!(statuses("nonsense\r\n\r\n", 100).await.starts_with("HTTP/1.1 400 "));
    let chunk = "POST /echo HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhelloXX0\r\n\r\nGET /echo HTTP/1.1\r\n\r\n";
    assert_eq!(statuses(chunk, 100).await, "HTTP/1.1 400 Bad Request | bad");
}

#[tokio::test]
async fn a_client_is_told_to_continue() {
    let received =
        statuses("POST /echo HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 5\r\n\r\nhello", 64).await;
    assert_eq!(received, "HTTP/1.1 100 Continue | HTTP/1.1 200 OK | 5 bytes");
    let received =
        exchange("POST /unread HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 5\r\n\r\n", 100).await;
    assert!(received.starts_with("HTTP/1.1 200 OK") && received.contains("connection: close"), "{received}");
}

#[tokio::test]
async fn old_clients_get_a_body_until_the_end() {
    let received = exchange("GET /stream HTTP/1.0\r\n\r\n", 100).await;
    assert!(received.ends_with("\r\n\r\nonetwo") && received.contains("connection: close"), "{received}");
    let received = exchange("GET /echo HTTP/1.0\r\nconnection: keep-alive\r\n\r\n", 100).await;
    assert!(received.contains("connection: keep-alive"), "{received}");
}

#[tokio::test(start_paused = true)]
async fn slow_heads_time_out() {
    let start = Instant::now();
    let (mut near, far) = duplex(64);
    let serving = serve(far, OPTIONS, handle, std::future::pending());
    let client = async {
        for byte in b"GET / HTTP/1.1\r\nhost: x" {
            let _ = near.write_all(&[*byte]).await;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    let (served, ()) = tokio::join!(serving, client);
    assert!(matches!(served, Err(ServerError::TimedOut)), "{served:?}");
    assert!(start.elapsed() >= OPTIONS.first_head_timeout);
    // After a response, the time for the next head begins anew.
    let (mut near, far) = duplex(64);
    let serving = tokio::spawn(serve(far, OPTIONS, handle, std::future::pending()));
    let start = Instant::now();
    near.write_all(b"GET /none HTTP/1.1\r\n\r\n").await.unwrap();
    let mut rest = Vec::new();
    near.read_to_end(&mut rest).await.unwrap();
    assert!(matches!(serving.await.unwrap(), Err(ServerError::TimedOut)));
    assert_eq!(start.elapsed().as_secs(), OPTIONS.head_timeout.as_secs());
}

/// The future of a request is dropped when its client disconnects.
#[tokio::test]
async fn a_disconnect_drops_the_handler() {
    static RUNNING: AtomicUsize = AtomicUsize::new(0);
    struct Guard;
    impl Drop for Guard {
        fn drop(&mut self) {
            RUNNING.fetch_sub(1, Ordering::SeqCst);
        }
    }
    let (mut near, far) = duplex(64);
    let hang = |_| -> Handling<Parts> {
        RUNNING.fetch_add(1, Ordering::SeqCst);
        let guard = Guard;
        Box::pin(async move {
            let _guard = guard;
            std::future::pending().await
        })
    };
    let serving = tokio::spawn(serve(far, OPTIONS, hang, std::future::pending()));
    near.write_all(b"GET /never HTTP/1.1\r\n\r\n").await.unwrap();
    while RUNNING.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    drop(near);
    assert!(matches!(serving.await.unwrap(), Err(ServerError::Disconnected)));
    assert_eq!(RUNNING.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn closing_waits_for_the_running_request() {
    let (mut near, far) = duplex(64);
    let (close, closing) = oneshot::channel::<()>();
    let (go, gate) = oneshot::channel::<()>();
    let gate = Arc::new(Mutex::new(Some(gate)));
    let wait = move |_| -> Handling<Parts> {
        let gate = gate.lock().take();
        Box::pin(async move {
            let _ = gate.expect("one request").await;
            Response::new(Parts(vec!["done"]))
        })
    };
    let serving = tokio::spawn(serve(far, OPTIONS, wait, async {
        let _ = closing.await;
    }));
    near.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    tokio::task::yield_now().await;
    close.send(()).unwrap();
    tokio::task::yield_now().await;
    go.send(()).unwrap();
    let mut received = String::new();
    near.read_to_string(&mut received).await.unwrap();
    assert!(received.ends_with("done") && received.contains("connection: close"), "{received}");
    drop(near);
    serving.await.unwrap().unwrap();
    // An idle connection is closed at once.
    let (mut near, far) = duplex(64);
    serve(far, OPTIONS, handle, async {}).await.unwrap();
    assert_eq!(near.read_to_string(&mut received).await.unwrap(), 0);
}

#[tokio::test]
async fn a_connection_can_leave_http() {
    let (mut near, far) = duplex(256);
    let upgrade = |mut request: Request<RequestBody<DuplexStream>>| -> Handling<Parts> {
        let upgrade = request.extensions_mut().remove::<OnUpgrade>().expect("it asks for an upgrade");
        tokio::spawn(async move {
            let mut stream = upgrade.stream().await.expect("it is switched");
            let mut word = [0; 5];
            stream.read_exact(&mut word).await.unwrap();
            stream.write_all(&word).await.unwrap();
        });
        Box::pin(async {
            let mut response = Response::new(Parts(vec![]));
            *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
            response
        })
    };
    let client = async {
        // The first bytes of the other protocol come with the head.
        near.write_all(b"GET / HTTP/1.1\r\nupgrade: x\r\n\r\nhel").await.unwrap();
        near.write_all(b"lo").await.unwrap();
        let mut received = String::new();
        near.read_to_string(&mut received).await.unwrap();
        received
    };
    let (served, received) = tokio::join!(serve(far, OPTIONS, upgrade, std::future::pending()), client);
    served.unwrap();
    assert!(received.starts_with("HTTP/1.1 101 ") && received.ends_with("\r\n\r\nhello"), "{received}");
}
