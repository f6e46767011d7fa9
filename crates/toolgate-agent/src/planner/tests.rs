//! Tests of the planner: a conversation goes in, the next step comes out.

use serde_json::json;
use toolgate_json::RawJson;

use super::*;

fn tools() -> Vec<ToolSpec> {
    let tool = |name: &str, description: &str, schema: Json| ToolSpec {
        name: name.to_owned(),
        description: description.to_owned(),
        schema: RawJson::from_value(&schema),
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
        tool(ASK_TOOL, "Asks a person a question and waits for the answer.", json!({ "type": "object" })),
    ]
}

/// A conversation with the planner.
struct Talk {
    planner: Planner,
    request: ModelRequest,
}

impl Talk {
    fn new(words: &str) -> Self {
        let today = CalendarDate { year: 2026, month: 1, day: 31 };
        let request =
            ModelRequest { tools: tools(), messages: vec![Message::user(words)], ..ModelRequest::default() };
        Self { planner: Planner::new(move || Some(today)), request }
    }

    fn without_person(mut self) -> Self {
        self.request.tools.retain(|tool| tool.name != ASK_TOOL);
        self
    }

    /// Returns the next step as one line.
    fn next(&mut self) -> String {
        let reply = self.planner.plan(&self.request);
        let ModelReply { text, calls, stop, .. } = &reply;
        let Some(call) = calls.first() else {
            assert!(matches!(stop, StopReason::Done | StopReason::Unfinished), "{stop:?}");
            return format!("says: {text}");
        };
        assert_eq!((calls.len(), stop), (1, &StopReason::Calls));
        let CallArguments::Object(arguments) = &call.arguments else { panic!("{call:?}") };
        let step = format!("{} {}", call.name, Json::from(arguments.clone()));
        self.request.messages.push(Message::Assistant { text: String::new(), calls: calls.clone() });
        step
    }

    /// Adds the result of the last call.
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
fn calls_tool_and_reports_result() {
    let mut talk = Talk::new("what is the weather forecast for Oslo tomorrow?");
    assert_eq!(talk.next(), r#"get_forecast {"city":"Oslo","date":"2026-02-01"}"#);
    talk.gives("Snow.", false);
    assert_eq!(talk.next(), "says: Snow.");
}

#[test]
fn asks_for_missing_arguments() {
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
fn calls_nothing_without_an_answer() {
    let mut talk = Talk::new("show me the weather forecast");
    assert!(talk.next().starts_with("request_human_input "));
    talk.gives("the person does not want to answer", false);
    assert_eq!(talk.next(), "says: `get_forecast` was not called: the person does not want to answer");
}

#[test]
fn says_question_if_it_cannot_ask() {
    let mut talk = Talk::new("read a file from the disk").without_person();
    assert_eq!(talk.next(), "says: For `read_file` I need `path`.");
}

#[test]
fn answers_small_talk_without_a_tool() {
    let mut talk = Talk::new("write a poem about the sea");
    assert!(talk.next().starts_with("says: This request needs no tool"));
    let mut nothing = Talk::new("send 20 euros to Ben");
    nothing.request.tools.clear();
    assert_eq!(nothing.next(), "says: No tool matches this request.");
}

#[test]
fn asks_for_the_tool_if_unsure() {
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
fn leaves_complex_arguments_to_the_user() {
    let mut talk = Talk::new("make edits to the text file ./a.txt");
    assert!(
        talk.next().starts_with("says: `edit_file` matches, but its argument `edits`"),
        "{:?}",
        talk.request.messages
    );
}

#[test]
fn uses_only_the_last_request() {
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
async fn streams_its_reply_as_a_model() {
    let talk = Talk::new("read the file ./a.txt");
    let mut events = Vec::new();
    let reply = talk.planner.reply(&talk.request, &mut |one| events.push(one)).await.unwrap();
    assert_eq!(events, [StreamEvent::Call("read_file".to_owned())]);
    assert_eq!(reply.calls[0].name, "read_file");
}
