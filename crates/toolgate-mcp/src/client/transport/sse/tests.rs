//! HTTP+SSE against well-behaved and misbehaving servers.

use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Mutex;
use toolgate_types::Secret;

use super::super::testing::{
    Server, TestRequest, chunked, empty, events, header, hold, id_and_method, result, whole,
};
use super::*;
use crate::link::LinkCommand;

/// Server that responds on the one stream and announces the given endpoint.
async fn server(endpoint: &'static str) -> Server {
    let stream: Arc<Mutex<Option<mpsc::Sender<Bytes>>>> = Arc::default();
    Server::start(move |request: TestRequest| {
        let stream = Arc::clone(&stream);
        async move {
            assert_eq!(header(&request, "x-key"), Some("k"));
            if request.method() == Method::GET {
                let (sender, answer) = chunked("text/event-stream");
                let start = format!(": hello\n\nevent: endpoint\ndata: {endpoint}\n\n");
                sender.send(start.into()).await.unwrap();
                *stream.lock().await = Some(sender);
                return answer;
            }
            assert_eq!(request.uri().path(), "/messages");
            let (id, method) = id_and_method(&request);
            let mut stream = stream.lock().await;
            match method.as_str() {
                "refuse" => return whole(503, "text/plain", "not now"),
                "large" => drop(stream.as_ref().unwrap().send(vec![b'x'; 2 << 20].into()).await),
                "end" => *stream = None,
                _ => {
                    let answer = format!("event: message\r\ndata: {}\r\n\r\n", result(&id));
                    stream.as_ref().unwrap().send(answer.into()).await.unwrap();
                }
            }
            empty(202)
        }
    })
    .await
}

async fn link(server: &Server) -> Result<Link, OpenError> {
    let headers = vec![("x-key".to_owned(), Secret::new("k"))];
    let options = RemoteOptions { headers, connect_timeout: Duration::from_secs(2), ..server.options() };
    open(options, ScanLimits { size: 1 << 20, depth: 64 }).await
}

#[tokio::test]
async fn messages_round_trip() {
    let server = server("/messages?session=1").await;
    let mut link = link(&server).await.unwrap();
    for id in 1..=20 {
        link.request(id, "ping", None).await;
        assert_eq!(link.message().await["id"], id);
    }
    link.request(21, "refuse", None).await;
    assert_eq!(link.failure(21).await.to_string(), "the server answered 503: not now");
    link.request(22, "ping", None).await;
    assert_eq!(link.message().await["id"], 22);
    link.outbox.send(LinkCommand::Close).await.unwrap();
    assert!(matches!(link.end().await, LinkError::Closed));
}

#[tokio::test]
async fn end_of_the_stream_closes_the_link() {
    let server = server("/messages").await;
    let mut link = link(&server).await.unwrap();
    link.request(1, "end", None).await;
    assert!(matches!(link.end().await, LinkError::Closed));
}

#[tokio::test]
async fn oversized_event_closes_the_link() {
    let server = Server::start(async |request: TestRequest| {
        if request.method() == Method::GET {
            let data = "x".repeat(2 << 20);
            return events(&format!("event: endpoint\ndata: /m\n\ndata: {data}\n\n"));
        }
        empty(202)
    })
    .await;
    let mut link = link(&server).await.unwrap();
    assert!(matches!(link.end().await, LinkError::TooLarge(1_048_576)));
}

#[tokio::test]
async fn endpoint_of_another_origin_is_rejected() {
    let second = Server::start(async |_| empty(202)).await;
    let elsewhere = format!("event: endpoint\ndata: http://{}/m?secret=1\n\n", second.address);
    let server = Server::start(move |_| std::future::ready(events(&elsewhere))).await;
    let error = link(&server).await.unwrap_err().to_string();
    assert!(error.ends_with("/m`, which has a different origin"), "{error}");
    assert_eq!(second.hits(), 0);
}

#[tokio::test]
async fn rejects_other_servers() {
    let refused = async |answer: fn() -> super::super::testing::TestResponse| {
        let server = Server::start(move |_| std::future::ready(answer())).await;
        let error = link(&server).await.unwrap_err().to_string();
        error.replace(&server.address.to_string(), "HERE")
    };
    assert_eq!(
        refused(|| whole(404, "text/plain", "nothing here")).await,
        "the server answered 404: nothing here"
    );
    let kind = "`http://HERE/mcp` answers with `text/html` instead of an event stream";
    assert_eq!(refused(|| whole(200, "text/html", "x")).await, kind);
    assert_eq!(refused(|| events("data: x\n\n")).await, "the server closed the connection");
    assert_eq!(
        refused(|| events("event: endpoint\ndata: http://[\n\n")).await,
        "the server announced an invalid endpoint URL"
    );
    let silent = refused(|| {
        let (sender, answer) = chunked("text/event-stream");
        hold(sender, || ());
        answer
    });
    assert_eq!(silent.await, "the server sent nothing for too long");
}
