//! Who asks, who answers, and who comes too late.

use std::task::Poll;
use std::time::Duration;

use futures_util::poll;
use serde_json::json;

use super::*;

fn asking(caller: &str, choices: &[&str], schema: Option<Json>) -> Asking {
    Asking {
        kind: Kind::HumanInput,
        text: "Which?".to_owned(),
        choices: choices.iter().map(|choice| (*choice).to_owned()).collect(),
        schema,
        arguments: None,
        caller: caller.parse().unwrap(),
        tool: "t".to_owned(),
        session: None,
    }
}

fn desk() -> Arc<Desk> {
    Desk::new(HumanDuration::from_secs(60), true, Vec::new())
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

fn says(value: Json) -> Reply {
    Reply { answer: Answer::Given(value), by: "ann".to_owned() }
}

/// A way that says this, after so many seconds.
struct After(u64, Option<Json>);

impl Way for After {
    fn ask(&self, _question: Arc<Question>) -> BoxFuture<'static, Option<Reply>> {
        let Self(seconds, said) = self;
        let (time, said) = (Duration::from_secs(*seconds), said.clone());
        Box::pin(async move {
            tokio::time::sleep(time).await;
            said.map(says)
        })
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_answer_that_fits_counts_and_there_is_no_second() {
    let desk = desk();
    let mut changes = desk.changes();
    let mut asked = Box::pin(desk.ask(asking("bob", &["red", "blue"], None), None, soon()));
    assert!(poll!(&mut asked).is_pending());
    assert!(changes.has_changed().unwrap());
    changes.mark_unchanged();
    let id = desk.list(Some(Kind::HumanInput))[0].posted.id.clone();
    assert!(desk.list(Some(Kind::Approval)).is_empty());
    let answer = |value: Json, who: Option<&str>| {
        let who = who.map(|who| who.parse().unwrap());
        desk.answer(&id, Kind::HumanInput, says(value), who.as_ref())
    };
    assert!(matches!(answer(json!("green"), None), Err(AnswerError::Misfit(_))));
    assert!(matches!(answer(json!(["red"]), None), Err(AnswerError::Misfit(_))));
    assert_eq!(answer(json!("red"), Some("bob")), Err(AnswerError::Own));
    assert_eq!(
        desk.answer(&id, Kind::Approval, says(json!(true)), None),
        Err(AnswerError::Absent(id.clone())),
        "what is asked at one place is not answered at the other"
    );
    assert_eq!(answer(json!("red"), Some("ann")), Ok(()));
    assert_eq!(answer(json!("blue"), None), Err(AnswerError::Absent(id.clone())));
    assert_eq!(asked.await, Ok(says(json!("red"))));
    assert!(changes.has_changed().unwrap());
}

#[tokio::test(start_paused = true)]
async fn whoever_leaves_takes_its_question_along() {
    let desk = desk();
    let mut asked = Box::pin(desk.ask(asking("bob", &[], None), None, soon()));
    assert!(poll!(&mut asked).is_pending());
    let id = desk.list(None)[0].posted.id.clone();
    drop(asked);
    assert!(desk.list(None).is_empty());
    assert_eq!(
        desk.answer(&id, Kind::HumanInput, says(json!("x")), None),
        Err(AnswerError::Absent(id.clone()))
    );
    assert_eq!(desk.ask(asking("bob", &[], None), None, soon()).await, Err(Unanswered::Late));
    assert!(desk.list(None).is_empty(), "what nobody answered is gone, too");
}

#[tokio::test(start_paused = true)]
async fn no_more_than_may_wait() {
    let desk = desk();
    let mut held: Vec<_> =
        (0..MOST_OF_ONE).map(|_| Box::pin(desk.ask(asking("bob", &[], None), None, soon()))).collect();
    for one in &mut held {
        assert!(poll!(one).is_pending());
    }
    assert_eq!(desk.ask(asking("bob", &[], None), None, soon()).await, Err(Unanswered::Full));
    let mut other = Box::pin(desk.ask(asking("eve", &[], None), None, soon()));
    assert!(poll!(&mut other).is_pending(), "another caller is heard");
    desk.close();
    assert_eq!(other.await, Err(Unanswered::Closed));
    assert_eq!(desk.ask(asking("eve", &[], None), None, soon()).await, Err(Unanswered::Closed));
}

#[tokio::test(start_paused = true)]
async fn ways_race_and_one_that_leads_nowhere_is_passed_by() {
    let with = |visited, ways: Vec<After>| {
        let ways = ways.into_iter().map(|way| Arc::new(way) as Arc<dyn Way>).collect();
        Desk::new(HumanDuration::from_secs(60), visited, ways)
    };
    let two = with(false, vec![After(2, Some(json!("late"))), After(1, Some(json!("early")))]);
    assert_eq!(two.ask(asking("bob", &[], None), None, soon()).await, Ok(says(json!("early"))));
    let misfit = with(false, vec![After(1, Some(json!(7))), After(2, Some(json!("fits")))]);
    assert_eq!(misfit.ask(asking("bob", &[], None), None, soon()).await, Ok(says(json!("fits"))));
    let nowhere = with(false, vec![After(1, None)]);
    assert_eq!(nowhere.ask(asking("bob", &[], None), None, soon()).await, Err(Unanswered::Nobody));
    let nobody = with(false, Vec::new());
    assert_eq!(nobody.ask(asking("bob", &[], None), None, soon()).await, Err(Unanswered::Nobody));
    let visited = with(true, vec![After(1, None)]);
    let mut asked = Box::pin(visited.ask(asking("bob", &[], None), None, soon()));
    assert_eq!(poll!(&mut asked), Poll::Pending);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(poll!(&mut asked), Poll::Pending, "people may still come to the desk");
}

#[tokio::test(start_paused = true)]
async fn an_answer_fits_its_schema() {
    let desk = desk();
    let schema = json!({ "type": "object", "required": ["n"], "properties": { "n": { "type": "integer" } } });
    let mut asked = Box::pin(desk.ask(asking("bob", &[], Some(schema)), None, soon()));
    assert!(poll!(&mut asked).is_pending());
    let question = desk.list(None).remove(0);
    for (value, fits) in [(json!({ "n": 1 }), true), (json!({ "n": "1" }), false), (json!("1"), false)] {
        assert_eq!(question.check(&Answer::Given(value.clone())).is_ok(), fits, "{value}");
    }
    assert!(question.check(&Answer::Declined(None)).is_ok());
    let large = json!({ "n": 1, "x": "x".repeat(LONGEST_ANSWER) });
    assert!(question.check(&Answer::Given(large)).is_err());
    let bad = asking("bob", &[], Some(json!({ "type": "nothing" })));
    assert!(matches!(desk.ask(bad, None, soon()).await, Err(Unanswered::Schema(_))));
}
