//! Whoever comes back, whoever does not, and what is kept meanwhile.

use futures_util::{FutureExt as _, StreamExt as _};
use tokio::sync::mpsc;

use super::*;
use crate::Raw;
use crate::message::Id;
use crate::serve::begin::Keeping;
use crate::serve::client::Said;
use crate::serve::exchange::{Asking, Running};

/// A request whose server says what it is told to, and answers when it is dropped.
struct Called {
    says: mpsc::Sender<Said>,
    answers: Option<tokio::sync::oneshot::Sender<()>>,
    /// Closed when the request is.
    runs: std::sync::Weak<()>,
}

fn owner(guest: &str, session: &str) -> Owner {
    Owner { guest: guest.into(), session: session.into() }
}

fn begin(streams: &Arc<Streams>, owner: &Owner) -> (Called, BoxStream<'static, Bytes>) {
    let (says, said) = mpsc::channel(16);
    let (answers, answered) = tokio::sync::oneshot::channel();
    let running = Arc::new(());
    let runs = Arc::downgrade(&running);
    let answer = Box::pin(async move {
        let _running = running;
        let _ = answered.await;
        Ok(Raw::trusted("{}".to_owned()))
    });
    let exchange = Exchange::new(
        Id::Number(1),
        Revision::V2025_11_25,
        Asking::Live(Keeping::Own(Arc::default())),
        Running { answer, said },
    );
    let events = streams.begin(owner.clone(), None, exchange, std::future::pending(), ());
    (Called { says, answers: Some(answers), runs }, events)
}

impl Called {
    async fn say(&self, text: &str) {
        let params = Some(Raw::of(&serde_json::json!({ "said": text })));
        let method = "notifications/progress".into();
        let said = Said::Notification(Message::Notification { method, params });
        self.says.send(said).await.unwrap_or_else(|_| panic!("somebody listens"));
    }
}

/// The id of an event, and what it says.
async fn next(events: &mut BoxStream<'static, Bytes>) -> Option<(String, String)> {
    let event = String::from_utf8(events.next().await?.to_vec()).expect("UTF-8");
    let id = event.lines().find_map(|line| line.strip_prefix("id: ")).unwrap_or_default().to_owned();
    Some((id, event.lines().find_map(|line| line.strip_prefix("data: ")).unwrap_or_default().to_owned()))
}

fn resume(streams: &Streams, owner: &Owner, last: &str) -> BoxStream<'static, Bytes> {
    match streams.resume(owner, last) {
        Some(Rest::Events(events)) => events,
        Some(Rest::Nothing) => panic!("there is no more"),
        None => panic!("there is no such stream"),
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_comes_back_misses_nothing() {
    let (streams, ann) = (Arc::new(Streams::default()), owner("ann", "1"));
    let (mut called, mut events) = begin(&streams, &ann);
    let (primed, nothing) = next(&mut events).await.unwrap();
    assert_eq!(nothing, "");
    called.say("one").await;
    let (one, said) = next(&mut events).await.unwrap();
    assert!(said.contains("one"), "{said}");
    drop(events);
    called.say("two").await;
    drop(called.answers.take());
    // Once from the beginning, once from where it was: the same stream, one reader after the other.
    let mut all = resume(&streams, &ann, &primed);
    assert_eq!(next(&mut all).await.unwrap().0, one);
    let mut rest = resume(&streams, &ann, &one);
    assert!(next(&mut all).await.is_none(), "somebody else reads");
    assert!(next(&mut rest).await.unwrap().1.contains("two"));
    let (end, answer) = next(&mut rest).await.unwrap();
    assert!(answer.contains("\"result\":{}"), "{answer}");
    assert!(next(&mut rest).await.is_none());
    drop(rest);
    assert!(matches!(streams.resume(&ann, &end), Some(Rest::Nothing)), "behind the end there is nothing");
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
    sleep(WAITS * 2).await;
    assert!(streams.resume(&ann, &one).is_none(), "it was kept for long enough");
    assert_eq!(streams.bytes.load(Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_nobody_comes_back_to_is_cancelled() {
    let (streams, ann) = (Arc::new(Streams::default()), owner("ann", "1"));
    let (called, mut events) = begin(&streams, &ann);
    let (primed, _) = next(&mut events).await.unwrap();
    drop(events);
    sleep(WAITS - Duration::from_secs(1)).await;
    assert!(called.runs.upgrade().is_some(), "there is time to come back");
    let mut events = resume(&streams, &ann, &primed);
    assert!(timeout(WAITS * 3, next(&mut events)).await.is_ok(), "a sign of life");
    assert!(called.runs.upgrade().is_some(), "somebody reads");
    drop(events);
    sleep(WAITS + Duration::from_secs(1)).await;
    assert!(called.runs.upgrade().is_none(), "nobody came");
    // Whoever ends its session ends what runs in it.
    let (called, mut events) = begin(&streams, &ann);
    next(&mut events).await.unwrap();
    streams.end("2");
    assert!(next(&mut events).now_or_never().is_none() && called.runs.upgrade().is_some());
    streams.end("1");
    assert!(next(&mut events).await.is_none());
    until_gone(&called).await;
}

async fn until_gone(called: &Called) {
    while called.runs.upgrade().is_some() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_kept_is_bounded() {
    let (streams, ann) = (Arc::new(Streams::default()), owner("ann", "1"));
    let kept: Vec<_> = (0..MOST_EACH).map(|_| begin(&streams, &ann)).collect();
    let (called, mut events) = begin(&streams, &ann);
    let (primed, _) = next(&mut events).await.unwrap();
    assert!(streams.resume(&ann, &primed).is_none(), "no more of one guest are kept");
    drop(events);
    until_gone(&called).await;
    drop(kept);

    // One that is away is written so much for, and no more; whoever reads gets all, and little is kept.
    let (mut called, mut events) = begin(&streams, &owner("bob", "1"));
    let (mut last, _) = next(&mut events).await.unwrap();
    let large = "x".repeat(100 << 10);
    for _ in 0..30 {
        called.say(&large).await;
        last = next(&mut events).await.unwrap().0;
    }
    drop(events);
    for _ in 0..10 {
        called.say(&large).await;
    }
    tokio::task::yield_now().await;
    let bytes = streams.bytes.load(Ordering::Relaxed);
    assert!(bytes < MOST_BYTES + (256 << 10), "{bytes}");
    drop(called.answers.take());
    let rest = resume(&streams, &owner("bob", "1"), &last);
    let rest: Vec<_> = rest.collect().await;
    assert_eq!(rest.len(), 11, "what waited comes when somebody reads");
    assert!(rest[10].windows(8).any(|part| part == b"\"result\""));
}
