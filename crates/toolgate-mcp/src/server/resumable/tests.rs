//! Reconnecting clients, clients that do not reconnect, and limits.

use futures_util::{FutureExt as _, StreamExt as _};

use super::*;
use crate::RawJson;
use crate::message::RequestId;
use crate::server::client::ClientMessage;
use crate::server::client_queue::{MessageSender, message_queue};
use crate::server::exchange::{AnswerStep, QuestionDelivery, RunningRequest};
use crate::server::incoming::SessionState;

/// Running request of a server that the test controls.
struct TestRequest {
    sender: MessageSender,
    finish: Option<tokio::sync::oneshot::Sender<()>>,
    /// Dead once the request is dropped.
    runs: std::sync::Weak<()>,
}

fn owner(caller: &str, session: &str) -> StreamOwner {
    StreamOwner { caller: caller.into(), session: session.into() }
}

fn start(streams: &Arc<ResumableStreams>, owner: &StreamOwner) -> (TestRequest, BoxStream<'static, Bytes>) {
    let (sender, messages) = message_queue(16);
    let (finish, answered) = tokio::sync::oneshot::channel();
    let running = Arc::new(());
    let runs = Arc::downgrade(&running);
    let answer = Box::pin(async move {
        let _running = running;
        let _ = answered.await;
        Ok(RawJson::from_trusted("{}".to_owned()))
    });
    let exchange = RequestExchange::running(
        RequestId::Number(1),
        Revision::V2025_11_25,
        QuestionDelivery::OnStream(SessionState::Connection(Arc::default())),
        RunningRequest { answer, step: AnswerStep::None, messages },
    );
    let events = streams.start(owner.clone(), None, exchange, std::future::pending(), ());
    (TestRequest { sender, finish: Some(finish), runs }, events)
}

impl TestRequest {
    async fn send(&self, text: &str) {
        let params = Some(RawJson::from_value(&serde_json::json!({ "text": text })));
        let method = "notifications/progress".into();
        let message = ClientMessage::Notification(Message::Notification { method, params });
        assert!(self.sender.send(message).await, "the exchange reads messages");
    }
}

/// Id and data of the next event.
async fn next(events: &mut BoxStream<'static, Bytes>) -> Option<(String, String)> {
    let event = String::from_utf8(events.next().await?.to_vec()).expect("UTF-8");
    let id = event.lines().find_map(|line| line.strip_prefix("id: ")).unwrap_or_default().to_owned();
    Some((id, event.lines().find_map(|line| line.strip_prefix("data: ")).unwrap_or_default().to_owned()))
}

fn resume(streams: &ResumableStreams, owner: &StreamOwner, last: &str) -> BoxStream<'static, Bytes> {
    match streams.resume(owner, last) {
        Some(ResumeOutcome::Events(events)) => events,
        Some(ResumeOutcome::Finished) => panic!("the stream has ended"),
        None => panic!("unknown stream"),
    }
}

#[tokio::test(start_paused = true)]
async fn resumed_stream_has_all_events() {
    let (streams, ann) = (Arc::new(ResumableStreams::default()), owner("ann", "1"));
    let (mut request, mut events) = start(&streams, &ann);
    let (first_id, nothing) = next(&mut events).await.unwrap();
    assert_eq!(nothing, "");
    request.send("one").await;
    let (one, data) = next(&mut events).await.unwrap();
    assert!(data.contains("one"), "{data}");
    drop(events);
    request.send("two").await;
    drop(request.finish.take());
    // Resumed from the start, then from the middle: one stream, one reader after the other.
    let mut all = resume(&streams, &ann, &first_id);
    assert_eq!(next(&mut all).await.unwrap().0, one);
    let mut rest = resume(&streams, &ann, &one);
    assert!(next(&mut all).await.is_none(), "another reader took over");
    assert!(next(&mut rest).await.unwrap().1.contains("two"));
    let (end, answer) = next(&mut rest).await.unwrap();
    assert!(answer.contains("\"result\":{}"), "{answer}");
    assert!(next(&mut rest).await.is_none());
    drop(rest);
    assert!(
        matches!(streams.resume(&ann, &end), Some(ResumeOutcome::Finished)),
        "no events after the last one"
    );
    for (who, last) in [
        (owner("bob", "1"), one.clone()),
        (owner("ann", "2"), one.clone()),
        (ann.clone(), format!("x{one}")),
        (ann.clone(), format!("{one}9")),
        (ann.clone(), String::new()),
    ] {
        assert!(streams.resume(&who, &last).is_none(), "{who:?} {last}");
    }
    assert!(streams.resume(&ann, &one).is_some());
    sleep(RESUME_TIMEOUT * 2).await;
    assert!(streams.resume(&ann, &one).is_none(), "it has expired");
    assert_eq!(streams.bytes.load(Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn request_without_reader_is_cancelled() {
    let (streams, ann) = (Arc::new(ResumableStreams::default()), owner("ann", "1"));
    let (request, mut events) = start(&streams, &ann);
    let (first_id, _) = next(&mut events).await.unwrap();
    drop(events);
    sleep(RESUME_TIMEOUT - Duration::from_secs(1)).await;
    assert!(request.runs.upgrade().is_some(), "the client can still reconnect");
    let mut events = resume(&streams, &ann, &first_id);
    assert!(timeout(RESUME_TIMEOUT * 3, next(&mut events)).await.is_ok(), "a keep-alive comment");
    assert!(request.runs.upgrade().is_some(), "it has a reader");
    drop(events);
    sleep(RESUME_TIMEOUT + Duration::from_secs(1)).await;
    assert!(request.runs.upgrade().is_none(), "no client reconnected");
    // Ending a session ends its requests.
    let (request, mut events) = start(&streams, &ann);
    next(&mut events).await.unwrap();
    streams.end("2");
    assert!(next(&mut events).now_or_never().is_none() && request.runs.upgrade().is_some());
    streams.end("1");
    assert!(next(&mut events).await.is_none());
    until_gone(&request).await;
}

async fn until_gone(request: &TestRequest) {
    while request.runs.upgrade().is_some() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn streams_and_buffers_are_bounded() {
    let (streams, ann) = (Arc::new(ResumableStreams::default()), owner("ann", "1"));
    let registered: Vec<_> = (0..MAX_STREAMS_PER_CALLER).map(|_| start(&streams, &ann)).collect();
    let (request, mut events) = start(&streams, &ann);
    let (first_id, _) = next(&mut events).await.unwrap();
    assert!(streams.resume(&ann, &first_id).is_none(), "limit of streams per caller");
    drop(events);
    until_gone(&request).await;
    drop(registered);

    // Without a reader the buffer is limited; a reader gets all events, and few are kept.
    let (mut request, mut events) = start(&streams, &owner("bob", "1"));
    let (mut last, _) = next(&mut events).await.unwrap();
    let large = "x".repeat(100 << 10);
    for _ in 0..30 {
        request.send(&large).await;
        last = next(&mut events).await.unwrap().0;
    }
    drop(events);
    for _ in 0..10 {
        request.send(&large).await;
    }
    tokio::task::yield_now().await;
    let bytes = streams.bytes.load(Ordering::Relaxed);
    assert!(bytes < MAX_BUFFERED_BYTES + (256 << 10), "{bytes}");
    drop(request.finish.take());
    let rest = resume(&streams, &owner("bob", "1"), &last);
    let rest: Vec<_> = rest.collect().await;
    assert_eq!(rest.len(), 11, "buffered events are delivered to the reader");
    assert!(rest[10].windows(8).any(|part| part == b"\"result\""));
}
