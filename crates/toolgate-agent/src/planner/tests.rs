//! Tests of the planner: what was said goes in, the next step comes out.

use serde_json::json;
use toolgate_types::json::Raw;

use super::*;

fn tools() -> Vec<ToolSpec> {
    let tool = |name: &str, description: &str, schema: Json| ToolSpec {
        name: name.to_owned(),
        description: description.to_owned(),
        schema: Raw::of(&schema),
    };
    vec![
        tool(
            "get_forecast",
            "The weather forecast for a city on a day",
            json!({
                "type": "object",
                "properties": {
                    "city": { "type": "string", "description": "The city" },
                    "date": { "type": "string", "format": "date" },
                    "days": { "type": "integer" },
                },
                "required": ["city", "date"],
            }),
        ),
        tool(
            "read_file",
            "Read the contents of a file from the disk",
            json!({ "type": "object", "properties": { "path": { "type": "string" } }, "required": ["path"] }),
        ),
        tool(
            "edit_file",
            "Make edits to a text file, line by line",
            json!({
                "type": "object",
                "properties": { "path": { "type": "string" }, "edits": { "type": "array", "items": { "type": "object" } } },
                "required": ["path", "edits"],
            }),
        ),
        tool(ASKS, "Asks a person a question and waits for the answer.", json!({ "type": "object" })),
    ]
}

/// A conversation with the planner: it gets an answer for each step.
struct Talk {
    planner: Planner,
    request: Request,
}

impl Talk {
    fn new(words: &str) -> Self {
        let today = Date { year: 2026, month: 1, day: 31 };
        let request = Request { tools: tools(), messages: vec![Message::user(words)], ..Request::default() };
        Self { planner: Planner::new(move || Some(today)), request }
    }

    fn without_person(mut self) -> Self {
        self.request.tools.retain(|tool| tool.name != ASKS);
        self
    }

    /// The next step, in a line.
    fn next(&mut self) -> String {
        let reply = self.planner.plan(&self.request);
        let Reply { text, calls, stop, .. } = &reply;
        let Some(call) = calls.first() else {
            assert_eq!(*stop, Stop::Done);
            return format!("says: {text}");
        };
        assert_eq!((calls.len(), stop), (1, &Stop::Calls));
        let Given::Object(arguments) = &call.arguments else { panic!("{call:?}") };
        let told = format!("{} {}", call.name, Json::from(arguments.clone()));
        self.request.messages.push(Message::Assistant { text: String::new(), calls: calls.clone() });
        told
    }

    /// What the tool that was called gave.
    fn gives(&mut self, text: &str, failed: bool) {
        let Some(Message::Assistant { calls, .. }) = self.request.messages.last() else {
            panic!("nothing was called")
        };
        let parts = vec![Part::Text { text: text.to_owned() }];
        let output = ToolOutput { id: calls[0].id.clone(), name: calls[0].name.clone(), parts, failed };
        self.request.messages.push(Message::Tools { results: vec![output] });
    }
}

#[test]
fn a_tool_is_called_and_its_result_is_told() {
    let mut talk = Talk::new("what is the weather forecast for Oslo tomorrow?");
    assert_eq!(talk.next(), r#"get_forecast {"city":"Oslo","date":"2026-02-01"}"#);
    talk.gives("Snow.", false);
    assert_eq!(talk.next(), "says: Snow.");
}

#[test]
fn what_is_missing_is_asked_for() {
    let mut talk = Talk::new("show me the weather forecast for Oslo");
    assert_eq!(
        talk.next(),
        r#"request_human_input {"question":"For `get_forecast` I need `date`.","schema":{"type":"object","required":["date"],"properties":{"date":{"type":"string"}}}}"#
    );
    talk.gives(r#"{"date":"2026-03-01"}"#, false);
    assert_eq!(talk.next(), r#"get_forecast {"city":"Oslo","date":"2026-03-01"}"#);
    talk.gives("no such day", true);
    assert_eq!(talk.next(), "says: `get_forecast` failed: no such day");
}

#[test]
fn who_does_not_answer_gets_nothing_called() {
    let mut talk = Talk::new("show me the weather forecast");
    assert!(talk.next().starts_with("request_human_input "));
    talk.gives("the person does not want to answer", false);
    assert_eq!(talk.next(), "says: `get_forecast` was not called: the person does not want to answer");
}

#[test]
fn where_nobody_can_be_asked_it_is_said() {
    let mut talk = Talk::new("read a file from the disk").without_person();
    assert_eq!(talk.next(), "says: For `read_file` I need `path`.");
}

#[test]
fn talk_is_answered_as_such() {
    let mut talk = Talk::new("write a poem about the sea");
    assert!(talk.next().starts_with("says: This needs no tool"));
    let mut nothing = Talk::new("send 20 euros to Ben");
    nothing.request.tools.clear();
    assert_eq!(nothing.next(), "says: None of the tools fits this.");
}

#[test]
fn what_fits_no_tool_is_asked_about() {
    let words = "remind me at six to call Ann";
    let mut talk = Talk::new(words);
    let asked = talk.next();
    let expected =
        format!(r#"request_human_input {{"question":"I am not sure which tool \"{words}\" is for: "#);
    assert!(asked.starts_with(&expected), "{asked}");
    talk.gives(r#"{"tool":"none of them"}"#, false);
    assert_eq!(talk.next(), "says: No tool was chosen, so none was called.");
    let mut talk = Talk::new(words);
    talk.next();
    talk.gives(r#"{"tool":"get_forecast"}"#, false);
    let asked = talk.next();
    assert!(
        asked.starts_with(r#"request_human_input {"question":"For `get_forecast` I need `date`."#),
        "{asked}"
    );
    talk.gives(r#"{"date":"2026-02-02"}"#, false);
    assert_eq!(talk.next(), r#"get_forecast {"city":"Ann","date":"2026-02-02"}"#);
}

#[test]
fn what_is_no_sentence_is_left_to_the_person() {
    let mut talk = Talk::new("make edits to the text file ./a.txt");
    assert!(
        talk.next().starts_with("says: `edit_file` fits, but `edits` of it"),
        "{:?}",
        talk.request.messages
    );
}

#[test]
fn the_last_thing_said_counts() {
    let mut talk = Talk::new("what is the weather forecast for Oslo tomorrow?");
    talk.next();
    talk.gives("Snow.", false);
    talk.request.messages.push(Message::user("read the file ./a.txt"));
    assert_eq!(talk.next(), r#"read_file {"path":"./a.txt"}"#);
    let ids = talk.request.messages.iter().filter_map(|message| match message {
        Message::Assistant { calls, .. } => calls.first().map(|call| call.id.clone()),
        _ => None,
    });
    assert_eq!(ids.collect::<Vec<_>>(), ["plan-1", "plan-2"]);
}

#[tokio::test]
async fn it_is_a_model_and_is_heard() {
    let talk = Talk::new("read the file ./a.txt");
    let mut heard = Vec::new();
    let reply = talk.planner.reply(&talk.request, &mut |one| heard.push(one)).await.unwrap();
    assert_eq!(heard, [Heard::Call("read_file".to_owned())]);
    assert_eq!(reply.calls[0].name, "read_file");
}
