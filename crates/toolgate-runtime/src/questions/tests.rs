//! Tests for asking, answering and timing out.

use std::task::Poll;
use std::time::Duration;

use futures_util::poll;
use serde_json::json;

use toolgate_upstream::RawJson;

use super::*;

fn question(caller: &str, choices: &[&str], schema: Option<Json>) -> Arc<Question> {
    Arc::new(Question::Input(InputQuestion {
        text: "Which?".to_owned(),
        choices: choices.iter().map(|choice| (*choice).to_owned()).collect(),
        schema: schema.map(|schema| AnswerSchema::new(schema).unwrap()),
        caller: caller.parse().unwrap(),
        tool: "t".to_owned(),
        session: None,
        context: QuestionContext::default(),
    }))
}

fn queue() -> Arc<QuestionQueue> {
    QuestionQueue::new(HumanDuration::from_secs(60), true, Vec::new())
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

fn reply(value: Json) -> HumanReply {
    HumanReply { answer: Answer::Value(value), by: "ann".to_owned() }
}

/// Answers with this value after this many seconds.
struct After(u64, Option<Json>);

impl Responder for After {
    fn can_ask(&self, kind: QuestionKind) -> bool {
        kind == QuestionKind::HumanInput
    }

    fn ask(&self, _question: Arc<Question>) -> BoxFuture<'_, Result<HumanReply, NoAnswer>> {
        let Self(seconds, value) = self;
        let (time, value) = (Duration::from_secs(*seconds), value.clone());
        Box::pin(async move {
            tokio::time::sleep(time).await;
            value.map(reply).ok_or(NoAnswer::NoResponder)
        })
    }
}

#[tokio::test(start_paused = true)]
async fn accepts_only_the_first_valid_answer() {
    let queue = queue();
    let mut changes = queue.changes();
    let mut pending = Box::pin(queue.ask_until(question("bob", &["red", "blue"], None), None, soon()));
    assert!(poll!(&mut pending).is_pending());
    assert!(changes.has_changed().unwrap());
    changes.mark_unchanged();
    let id = queue.list(Some(QuestionKind::HumanInput))[0].details.id.clone();
    assert!(queue.list(Some(QuestionKind::Approval)).is_empty());
    let answer = |value: Json, who: Option<&str>| {
        let who = who.map(|who| who.parse().unwrap());
        queue.answer(&id, QuestionKind::HumanInput, reply(value), |asking| who.as_ref() == Some(asking))
    };
    assert!(matches!(answer(json!("green"), None), Err(AnswerError::InvalidAnswer(_))));
    assert!(matches!(answer(json!(["red"]), None), Err(AnswerError::InvalidAnswer(_))));
    assert_eq!(answer(json!("red"), Some("bob")), Err(AnswerError::OwnQuestion));
    assert_eq!(
        queue.answer(&id, QuestionKind::Approval, reply(json!(true)), |_| false),
        Err(AnswerError::NotOpen(id.clone())),
        "the kind of the question must match"
    );
    assert_eq!(answer(json!("red"), Some("ann")), Ok(()));
    assert_eq!(answer(json!("blue"), None), Err(AnswerError::NotOpen(id.clone())));
    assert_eq!(pending.await, Ok(reply(json!("red"))));
    assert!(changes.has_changed().unwrap());
}

#[tokio::test(start_paused = true)]
async fn withdraws_the_question_of_a_dropped_call() {
    let queue = queue();
    let mut pending = Box::pin(queue.ask_until(question("bob", &[], None), None, soon()));
    assert!(poll!(&mut pending).is_pending());
    let id = queue.list(None)[0].details.id.clone();
    drop(pending);
    assert!(queue.list(None).is_empty());
    assert_eq!(
        queue.answer(&id, QuestionKind::HumanInput, reply(json!("x")), |_| false),
        Err(AnswerError::NotOpen(id.clone()))
    );
    assert_eq!(queue.ask_until(question("bob", &[], None), None, soon()).await, Err(NoAnswer::TimedOut));
    assert!(queue.list(None).is_empty(), "timed-out questions are removed");
}

#[tokio::test(start_paused = true)]
async fn limits_open_questions() {
    let queue = queue();
    let mut questions: Vec<_> = (0..MAX_OPEN_PER_CALLER)
        .map(|_| Box::pin(queue.ask_until(question("bob", &[], None), None, soon())))
        .collect();
    for question in &mut questions {
        assert!(poll!(question).is_pending());
    }
    assert_eq!(queue.ask_until(question("bob", &[], None), None, soon()).await, Err(NoAnswer::QueueFull));
    let mut other_question = Box::pin(queue.ask_until(question("eve", &[], None), None, soon()));
    assert!(poll!(&mut other_question).is_pending(), "the limit is per caller");
    queue.close();
    assert_eq!(other_question.await, Err(NoAnswer::Closed));
    assert_eq!(queue.ask_until(question("eve", &[], None), None, soon()).await, Err(NoAnswer::Closed));
}

#[tokio::test(start_paused = true)]
async fn first_responder_with_a_valid_answer_wins() {
    let with = |accepts_remote_answers, responders: Vec<After>| {
        let responders =
            responders.into_iter().map(|responder| Arc::new(responder) as Arc<dyn Responder>).collect();
        QuestionQueue::new(HumanDuration::from_secs(60), accepts_remote_answers, responders)
    };
    let two = with(false, vec![After(2, Some(json!("late"))), After(1, Some(json!("early")))]);
    assert_eq!(two.ask_until(question("bob", &[], None), None, soon()).await, Ok(reply(json!("early"))));
    let invalid_first = with(false, vec![After(1, Some(json!(7))), After(2, Some(json!("fits")))]);
    assert_eq!(
        invalid_first.ask_until(question("bob", &[], None), None, soon()).await,
        Ok(reply(json!("fits")))
    );
    let unreachable = with(false, vec![After(1, None)]);
    assert_eq!(
        unreachable.ask_until(question("bob", &[], None), None, soon()).await,
        Err(NoAnswer::NoResponder)
    );
    let no_responders = with(false, Vec::new());
    assert_eq!(
        no_responders.ask_until(question("bob", &[], None), None, soon()).await,
        Err(NoAnswer::NoResponder)
    );
    let remote = with(true, vec![After(1, None)]);
    let mut pending = Box::pin(remote.ask_until(question("bob", &[], None), None, soon()));
    assert_eq!(poll!(&mut pending), Poll::Pending);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(poll!(&mut pending), Poll::Pending, "an answer may still come through a front end");
}

#[tokio::test(start_paused = true)]
async fn checks_answers_against_the_schema() {
    let queue = queue();
    let schema = json!({ "type": "object", "required": ["n"], "properties": { "n": { "type": "integer" } } });
    let mut pending = Box::pin(queue.ask_until(question("bob", &[], Some(schema)), None, soon()));
    assert!(poll!(&mut pending).is_pending());
    let question = Arc::clone(&queue.list(None)[0].question);
    for (value, fits) in [(json!({ "n": 1 }), true), (json!({ "n": "1" }), false), (json!("1"), false)] {
        assert_eq!(question.check(&Answer::Value(value.clone())).is_ok(), fits, "{value}");
    }
    assert!(question.check(&Answer::Declined(None)).is_ok());
    let large = json!({ "n": 1, "x": "x".repeat(64 << 10) });
    assert!(question.check(&Answer::Value(large)).is_err());
    assert!(AnswerSchema::new(json!({ "type": "nothing" })).is_err());
}

#[tokio::test(start_paused = true)]
async fn the_queue_is_a_responder_itself() {
    let approval = |arguments: &Json| {
        let (text, caller, tool) = ("Sure?".to_owned(), "bob".parse().unwrap(), "t".to_owned());
        let arguments = ShownArguments::new(&RawJson::from_value(arguments)).unwrap();
        let context = QuestionContext::default();
        Arc::new(Question::Approval(ApprovalQuestion {
            text,
            arguments,
            caller,
            tool,
            session: None,
            context,
        }))
    };
    let login = || {
        let url = "https://a".parse().unwrap();
        Arc::new(Question::Login(LoginPage { server: "s".to_owned(), url, other_host: None }))
    };
    let remote = queue();
    let can_ask = |queue: &QuestionQueue| {
        [QuestionKind::Approval, QuestionKind::HumanInput, QuestionKind::Elicitation, QuestionKind::Login]
            .map(|kind| queue.can_ask(kind))
    };
    assert_eq!(can_ask(&remote), [true, true, false, false]);
    assert_eq!(remote.ask(login()).await, Err(NoAnswer::NoResponder));
    let mut pending = remote.ask(approval(&json!({ "x": 7 })));
    assert!(poll!(&mut pending).is_pending());
    let open = remote.list(Some(QuestionKind::Approval)).remove(0);
    assert_eq!(
        (open.details.arguments.as_deref(), open.details.arguments_bytes),
        (Some(r#"{"x":7}"#), Some(7))
    );
    let invalid = remote.answer(&open.details.id, QuestionKind::Approval, reply(json!("yes")), |_| false);
    assert!(matches!(invalid, Err(AnswerError::InvalidAnswer(_))));
    remote.answer(&open.details.id, QuestionKind::Approval, reply(json!(false)), |_| false).unwrap();
    assert_eq!(pending.await, Ok(reply(json!(false))));
    assert_eq!(remote.ask(approval(&json!({}))).await, Err(NoAnswer::TimedOut));
    let local = QuestionQueue::new(HumanDuration::from_secs(60), false, vec![Arc::new(After(1, None))]);
    assert_eq!(can_ask(&local), [false, true, false, false]);
    assert_eq!(local.ask(approval(&json!({}))).await, Err(NoAnswer::NoResponder));
    assert!(local.list(None).is_empty());
}
