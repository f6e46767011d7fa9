//! The three model APIs: requests, replies and failures.

use serde_json::{Value as Json, json};
use toolgate_agent::model::{
    CallArguments, Message, Model as _, ModelError, ModelErrorKind, ModelReply, ModelRequest, Part,
    RemoteModel, ReplyLimits, StopReason, StreamEvent, ToolCall, ToolOutput, ToolSpec,
};
use toolgate_json::RawJson;
use toolgate_types::HumanDuration;
use toolgate_types::agent::ModelProvider::{self, Anthropic, Azure, Gemini, Ollama, Openai};

use crate::kit::{KEY, ScriptedModel};

const ALL: [ModelProvider; 3] = [Openai, Anthropic, Gemini];

fn tool(name: &str) -> ToolSpec {
    let schema =
        json!({ "type": "object", "properties": { "message": { "type": "string" } }, "$schema": "x" });
    ToolSpec {
        name: name.to_owned(),
        description: format!("Does {name}."),
        schema: RawJson::from_value(&schema),
    }
}

fn hello() -> ModelRequest {
    ModelRequest {
        instructions: "Be brief.".to_owned(),
        messages: vec![Message::user("hello")],
        tools: vec![tool("echo"), tool("files.read")],
        ..ModelRequest::default()
    }
}

struct Exchange {
    outcome: Result<ModelReply, ModelError>,
    events: Vec<StreamEvent>,
    requests: Vec<Json>,
}

async fn ask(turns: Json, provider: ModelProvider, stream: bool, request: &ModelRequest) -> Exchange {
    let server = ScriptedModel::start(&turns);
    let model = RemoteModel::new(server.spec(provider, stream)).expect("there is a way to it");
    let mut events = Vec::new();
    let outcome = model.reply(request, &mut |one| events.push(one)).await;
    if let Err(error) = &outcome {
        assert!(!format!("{error} {error:?}").contains(KEY), "{error:?}");
    }
    Exchange { outcome, events, requests: server.requests() }
}

fn streamed_text(events: &[StreamEvent]) -> String {
    events
        .iter()
        .filter_map(|one| if let StreamEvent::Text(text) = one { Some(text.as_str()) } else { None })
        .collect()
}

#[tokio::test]
async fn returns_text_and_parallel_calls() {
    let turn = json!({ "text": "Let me look. Grüße!", "usage": { "input": 1000, "output": 100, "cached": 400 },
        "calls": [
            { "id": "c1", "name": "echo", "arguments": { "message": "one \u{1F980}" } },
            { "id": "c2", "name": "files_read_601e4e", "arguments": {} },
        ] });
    for provider in ALL {
        for stream in [true, false] {
            let exchange = ask(json!([turn]), provider, stream, &hello()).await;
            let reply = exchange.outcome.expect("it answers");
            let case = format!("{provider:?} {stream}");
            assert_eq!(reply.text, "Let me look. Grüße!", "{case}");
            assert_eq!(streamed_text(&exchange.events), reply.text, "{case}");
            assert_eq!(reply.stop, StopReason::Calls, "{case}");
            let calls: Vec<_> =
                reply.calls.iter().map(|call| (call.name.as_str(), &call.arguments)).collect();
            let object = |value: Json| CallArguments::Object(value.as_object().cloned().unwrap());
            let (one, none) = (object(json!({ "message": "one \u{1F980}" })), object(json!({})));
            assert_eq!(calls, [("echo", &one), ("files.read", &none)], "{case}: catalog names come back");
            if provider != Gemini {
                assert_eq!(reply.calls.iter().map(|call| call.id.as_str()).collect::<Vec<_>>(), ["c1", "c2"]);
            }
            let usage = reply.usage;
            assert_eq!(
                (usage.input_tokens, usage.cached_tokens, usage.output_tokens),
                (1000, 400, 100),
                "{case}"
            );
            let prices = toolgate_types::agent::TokenPrices { input: 3.0, cached_input: 0.3, output: 15.0 };
            assert!((usage.cost(prices) - 0.003_42).abs() < 1e-9, "{case}: {}", usage.cost(prices));
        }
    }
}

#[tokio::test]
async fn requests_follow_the_api_of_each_provider() {
    let picture = || Part::Image { mime: "image/png".to_owned(), data: "iVBORw0KGgo=".to_owned() };
    let sound = Part::Audio { mime: "audio/wav".to_owned(), data: "UklGRg==".to_owned() };
    let object = json!({ "message": "hi" }).as_object().cloned().unwrap();
    let call = |id: &str, arguments| ToolCall {
        id: id.to_owned(),
        name: "files.read".to_owned(),
        arguments,
        signature: Some("c2VhbA==".to_owned()),
    };
    let words = |text: &str| Part::Text { text: text.to_owned() };
    let output = |id: &str, parts, failed| ToolOutput {
        id: id.to_owned(),
        name: "files.read".to_owned(),
        parts,
        failed,
    };
    let request = ModelRequest {
        messages: vec![
            Message::User { parts: vec![words("what is this?"), picture(), sound] },
            Message::Assistant {
                text: String::new(),
                calls: vec![
                    call("c1", CallArguments::Object(object)),
                    call("c2", CallArguments::Unusable("no".to_owned())),
                ],
            },
            Message::Tools {
                results: vec![
                    output("c1", vec![words("a picture"), picture()], false),
                    output("c2", vec![words("no JSON")], true),
                ],
            },
        ],
        ..hello()
    };
    let mut bodies = Vec::new();
    for provider in [Openai, Ollama, Azure, Anthropic, Gemini] {
        let exchange = ask(json!([{ "text": "A crab." }]), provider, true, &request).await;
        assert_eq!(exchange.outcome.expect("it answers").text, "A crab.");
        let [requests] = exchange.requests.as_slice() else { panic!("one request: {:?}", exchange.requests) };
        let key = ["authorization", "api-key", "x-api-key", "x-goog-api-key"];
        let key = key.map(|name| requests["headers"][name].as_str().map(|value| (name, value)));
        let [key] = key.into_iter().flatten().collect::<Vec<_>>()[..] else {
            panic!("{}", requests["headers"])
        };
        bodies.push(json!({ "path": requests["path"], "key": key, "body": requests["body"] }));
    }
    let text = serde_json::to_string_pretty(&bodies[0]).unwrap();
    insta::assert_snapshot!(text, @r#"
    {
      "path": "/v1/chat/completions",
      "key": [
        "authorization",
        "Bearer sk-a-key-that-nobody-may-see"
      ],
      "body": {
        "model": "scripted",
        "messages": [
          {
            "role": "system",
            "content": "Be brief."
          },
          {
            "role": "user",
            "content": [
              {
                "type": "text",
                "text": "what is this?"
              },
              {
                "type": "image_url",
                "image_url": {
                  "url": "data:image/png;base64,iVBORw0KGgo="
                }
              },
              {
                "type": "input_audio",
                "input_audio": {
                  "data": "UklGRg==",
                  "format": "wav"
                }
              }
            ]
          },
          {
            "role": "assistant",
            "content": "",
            "tool_calls": [
              {
                "id": "c1",
                "type": "function",
                "function": {
                  "name": "files_read_601e4e",
                  "arguments": "{\"message\":\"hi\"}"
                }
              },
              {
                "id": "c2",
                "type": "function",
                "function": {
                  "name": "files_read_601e4e",
                  "arguments": "{}"
                }
              }
            ]
          },
          {
            "role": "tool",
            "tool_call_id": "c1",
            "content": "a picture\n[image/png, in the next message]"
          },
          {
            "role": "tool",
            "tool_call_id": "c2",
            "content": "no JSON"
          },
          {
            "role": "user",
            "content": [
              {
                "type": "text",
                "text": "From the tool files.read:"
              },
              {
                "type": "image_url",
                "image_url": {
                  "url": "data:image/png;base64,iVBORw0KGgo="
                }
              }
            ]
          }
        ],
        "max_tokens": 1000,
        "temperature": 0.5,
        "tools": [
          {
            "type": "function",
            "function": {
              "name": "echo",
              "description": "Does echo.",
              "parameters": {
                "type": "object",
                "properties": {
                  "message": {
                    "type": "string"
                  }
                },
                "additionalProperties": false
              }
            }
          },
          {
            "type": "function",
            "function": {
              "name": "files_read_601e4e",
              "description": "Does files.read.",
              "parameters": {
                "type": "object",
                "properties": {
                  "message": {
                    "type": "string"
                  }
                },
                "additionalProperties": false
              }
            }
          }
        ],
        "stream": true,
        "stream_options": {
          "include_usage": true
        }
      }
    }
    "#);
    let text = serde_json::to_string_pretty(&bodies[3..]).unwrap();
    insta::assert_snapshot!(text, @r#"
    [
      {
        "path": "/v1/messages",
        "key": [
          "x-api-key",
          "sk-a-key-that-nobody-may-see"
        ],
        "body": {
          "model": "scripted",
          "max_tokens": 1000,
          "messages": [
            {
              "role": "user",
              "content": [
                {
                  "type": "text",
                  "text": "what is this?"
                },
                {
                  "type": "image",
                  "source": {
                    "type": "base64",
                    "media_type": "image/png",
                    "data": "iVBORw0KGgo="
                  }
                },
                {
                  "type": "text",
                  "text": "[audio/wav, not supported by this model]"
                }
              ]
            },
            {
              "role": "assistant",
              "content": [
                {
                  "type": "tool_use",
                  "id": "c1",
                  "name": "files_read_601e4e",
                  "input": {
                    "message": "hi"
                  }
                },
                {
                  "type": "tool_use",
                  "id": "c2",
                  "name": "files_read_601e4e",
                  "input": {}
                }
              ]
            },
            {
              "role": "user",
              "content": [
                {
                  "type": "tool_result",
                  "tool_use_id": "c1",
                  "is_error": false,
                  "content": [
                    {
                      "type": "text",
                      "text": "a picture"
                    },
                    {
                      "type": "image",
                      "source": {
                        "type": "base64",
                        "media_type": "image/png",
                        "data": "iVBORw0KGgo="
                      }
                    }
                  ]
                },
                {
                  "type": "tool_result",
                  "tool_use_id": "c2",
                  "is_error": true,
                  "content": [
                    {
                      "type": "text",
                      "text": "no JSON"
                    }
                  ]
                }
              ]
            }
          ],
          "system": "Be brief.",
          "temperature": 0.5,
          "tools": [
            {
              "name": "echo",
              "description": "Does echo.",
              "input_schema": {
                "type": "object",
                "properties": {
                  "message": {
                    "type": "string"
                  }
                }
              }
            },
            {
              "name": "files_read_601e4e",
              "description": "Does files.read.",
              "input_schema": {
                "type": "object",
                "properties": {
                  "message": {
                    "type": "string"
                  }
                }
              }
            }
          ],
          "stream": true
        }
      },
      {
        "path": "/v1beta/models/scripted:streamGenerateContent?alt=sse",
        "key": [
          "x-goog-api-key",
          "sk-a-key-that-nobody-may-see"
        ],
        "body": {
          "contents": [
            {
              "role": "user",
              "parts": [
                {
                  "text": "what is this?"
                },
                {
                  "inlineData": {
                    "mimeType": "image/png",
                    "data": "iVBORw0KGgo="
                  }
                },
                {
                  "inlineData": {
                    "mimeType": "audio/wav",
                    "data": "UklGRg=="
                  }
                }
              ]
            },
            {
              "role": "model",
              "parts": [
                {
                  "functionCall": {
                    "name": "files_read_601e4e",
                    "args": {
                      "message": "hi"
                    },
                    "id": "c1"
                  },
                  "thoughtSignature": "c2VhbA=="
                },
                {
                  "functionCall": {
                    "name": "files_read_601e4e",
                    "args": {},
                    "id": "c2"
                  },
                  "thoughtSignature": "c2VhbA=="
                }
              ]
            },
            {
              "role": "user",
              "parts": [
                {
                  "functionResponse": {
                    "name": "files_read_601e4e",
                    "response": {
                      "output": "a picture"
                    },
                    "id": "c1"
                  }
                },
                {
                  "functionResponse": {
                    "name": "files_read_601e4e",
                    "response": {
                      "error": "no JSON"
                    },
                    "id": "c2"
                  }
                },
                {
                  "inlineData": {
                    "mimeType": "image/png",
                    "data": "iVBORw0KGgo="
                  }
                }
              ]
            }
          ],
          "generationConfig": {
            "maxOutputTokens": 1000,
            "temperature": 0.5
          },
          "systemInstruction": {
            "parts": [
              {
                "text": "Be brief."
              }
            ]
          },
          "tools": [
            {
              "functionDeclarations": [
                {
                  "name": "echo",
                  "description": "Does echo.",
                  "parametersJsonSchema": {
                    "type": "object",
                    "properties": {
                      "message": {
                        "type": "string"
                      }
                    }
                  }
                },
                {
                  "name": "files_read_601e4e",
                  "description": "Does files.read.",
                  "parametersJsonSchema": {
                    "type": "object",
                    "properties": {
                      "message": {
                        "type": "string"
                      }
                    }
                  }
                }
              ]
            }
          ]
        }
      }
    ]
    "#);
    assert_eq!(bodies[1]["body"], bodies[0]["body"], "Ollama implements the API of OpenAI");
    assert_eq!(bodies[2]["path"], "/openai/v1/chat/completions");
    assert_eq!(bodies[2]["key"], json!(["api-key", KEY]));
    assert_eq!(bodies[2]["body"]["max_completion_tokens"], 1_000);
}

#[tokio::test]
async fn retries_transient_errors() {
    let slow = json!({ "status": 429, "headers": { "retry-after-ms": "5" }, "error": "slow down" });
    let broken = json!({ "text": "This never ends, or so it seems to be", "breaks": true });
    for provider in ALL {
        let fails = json!({ "status": 503, "headers": { "retry-after": "0" } });
        let turns = json!([slow, fails, broken, { "text": "Good." }]);
        let Exchange { outcome, events, requests } = ask(turns, provider, true, &hello()).await;
        assert_eq!(outcome.expect("the last attempt succeeds").text, "Good.", "{provider:?}");
        assert_eq!(requests.len(), 4);
        let again = events.iter().filter(|one| matches!(one, StreamEvent::Retry(_))).count();
        assert_eq!(again, 3, "{events:?}");
        let last = events.iter().rposition(|one| matches!(one, StreamEvent::Retry(_))).unwrap();
        assert_eq!(streamed_text(&events[last..]), "Good.", "text before the retry is void");
    }
}

#[tokio::test]
async fn returns_permanent_errors_at_once() {
    use ModelErrorKind::{Malformed, RateLimited, Rejected, TooLong, Unauthorized};
    let cases = [
        (json!({ "status": 401, "error": format!("bad key {KEY}") }), Unauthorized),
        (json!({ "status": 400, "error": "messages: roles must alternate" }), Rejected),
        (json!({ "status": 400, "code": "context_length_exceeded", "error": "too much" }), TooLong),
        (json!({ "status": 429, "headers": { "retry-after": "3600" } }), RateLimited),
        (json!({ "garbage": true }), Malformed),
    ];
    for provider in ALL {
        for (turn, kind) in &cases {
            for stream in [true, false] {
                let exchange = ask(json!([turn]), provider, stream, &hello()).await;
                let error = exchange.outcome.expect_err("it fails");
                assert_eq!(error.kind, *kind, "{provider:?} {error}");
                assert_eq!(exchange.requests.len(), 1, "{provider:?} {error}");
            }
        }
    }
}

#[tokio::test]
async fn gives_up_after_the_last_retry() {
    let fails =
        json!({ "status": 500, "headers": { "retry-after-ms": "1" }, "error": "out of\norder\u{1b}[2J" });
    let exchange = ask(json!([fails, fails, fails, fails, fails]), Openai, true, &hello()).await;
    let error = exchange.outcome.expect_err("it fails");
    assert_eq!(error.to_string(), "the model `scripted` answered 500 Internal Server Error: out of order[2J");
    assert_eq!(exchange.requests.len(), 4, "three more attempts");
}

#[tokio::test]
async fn times_out_without_an_answer() {
    let server = ScriptedModel::start(&json!([{ "silent": true }]));
    let mut spec = server.spec(Anthropic, true);
    (spec.timeout, spec.retries) = (HumanDuration::from_secs(1), 0);
    let model = RemoteModel::new(spec).unwrap();
    let error = model.reply(&hello(), &mut |_| {}).await.expect_err("the server stays silent");
    assert_eq!(error.kind, ModelErrorKind::Timeout);
    assert_eq!(error.hint.as_deref(), Some("raise `model.timeout`"));
}

#[tokio::test]
async fn tells_truncation_from_refusal() {
    for provider in ALL {
        for stream in [true, false] {
            let cut = json!([{ "text": "Once upon", "stop": "length",
                "calls": [{ "id": "c", "name": "echo", "arguments": { "message": "half" } }] }]);
            let reply = ask(cut, provider, stream, &hello()).await.outcome.unwrap();
            assert_eq!(reply.stop, StopReason::Length, "{provider:?}");
            let why = CallArguments::Unusable("the reply was truncated within this call".to_owned());
            assert_eq!(reply.calls[0].arguments, why, "a truncated call may be incomplete");
            let no = ask(json!([{ "stop": "refused" }]), provider, stream, &hello()).await.outcome.unwrap();
            assert!(matches!(no.stop, StopReason::Refused(_)), "{provider:?} {no:?}");
        }
    }
}

#[tokio::test]
async fn rejects_arguments_that_are_not_an_object() {
    let call =
        |arguments: Json| json!([{ "calls": [{ "id": "c", "name": "echo", "arguments": arguments }] }]);
    for (arguments, why) in [
        (
            json!("{\"message\": \"unfinished"),
            "the arguments are not JSON that can be used: invalid JSON at byte 23",
        ),
        (json!("{\"a\": 1, \"a\": 2}"), "the arguments are not JSON that can be used: duplicate key `a`"),
        (json!("[1]"), "the arguments are not a JSON object"),
    ] {
        for provider in [Openai, Anthropic] {
            let reply = ask(call(arguments.clone()), provider, true, &hello()).await.outcome.unwrap();
            assert_eq!(reply.calls[0].arguments, CallArguments::Unusable(why.to_owned()), "{provider:?}");
        }
    }
    let reply = ask(call(json!([1])), Gemini, true, &hello()).await.outcome.unwrap();
    assert_eq!(
        reply.calls[0].arguments,
        CallArguments::Unusable("the arguments are not a JSON object".to_owned())
    );
}

#[tokio::test]
async fn replaces_missing_and_duplicate_ids() {
    let call = |id: Json| json!({ "id": id, "name": "echo", "arguments": {} });
    let turns = json!([{ "calls": [call(json!("same")), call(json!("same")), call(json!(""))] }]);
    let reply = ask(turns, Openai, true, &hello()).await.outcome.unwrap();
    let ids: std::collections::HashSet<_> = reply.calls.iter().map(|call| call.id.as_str()).collect();
    assert_eq!(ids.len(), 3, "{ids:?}");
    assert!(ids.contains("same") && !ids.contains(""));
}

#[tokio::test]
async fn estimates_usage_that_is_not_reported() {
    let reply = ask(json!([{ "text": "hi", "usage": false }]), Openai, true, &hello()).await.outcome.unwrap();
    assert!(reply.usage.estimated && reply.usage.input_tokens > 10 && reply.usage.output_tokens > 0);
}

#[test]
fn names_the_variable_of_a_missing_key() {
    let server = ScriptedModel::start(&json!([]));
    let mut spec = server.spec(Anthropic, true);
    spec.key = None;
    assert!(RemoteModel::new(spec.clone()).is_ok(), "a custom server may need no key");
    spec.url = toolgate_types::ConfigString::plain(Anthropic.default_url().unwrap());
    let error = RemoteModel::new(spec).err().expect("Anthropic requires a key");
    assert_eq!(error.to_string(), "the model `scripted` of `anthropic` needs a key");
    assert!(error.hint.unwrap().starts_with("set `ANTHROPIC_API_KEY`"));
}

/// The limits of one reply go to the provider in its own words, and never exceed the configured limit.
#[tokio::test]
async fn replies_have_limits_of_their_own() {
    let limits = ReplyLimits { max_tokens: Some(50), temperature: Some(0.5), stop: vec!["END".to_owned()] };
    let small = ModelRequest { limits: limits.clone(), ..hello() };
    let large = ModelRequest { limits: ReplyLimits { max_tokens: Some(u32::MAX), ..limits }, ..hello() };
    for (provider, at, names) in [
        (Openai, "", ["max_tokens", "temperature", "stop"]),
        (Anthropic, "", ["max_tokens", "temperature", "stop_sequences"]),
        (Gemini, "/generationConfig", ["maxOutputTokens", "temperature", "stopSequences"]),
    ] {
        let mut limits = Vec::new();
        for request in [&hello(), &small, &large] {
            let exchange = ask(json!([{ "text": "Hi." }]), provider, false, request).await;
            let body = exchange.requests[0]["body"].pointer(at).expect("an object").clone();
            let [limit, temperature, stop] = names.map(|name| body[name].clone());
            limits.push(limit.as_u64().expect("a limit"));
            if std::ptr::eq(request, &small) {
                assert_eq!((temperature, stop), (json!(0.5), json!(["END"])), "{provider:?}: {body}");
            }
        }
        let [configured, small, large] = limits[..] else { panic!("{limits:?}") };
        assert_eq!((small, large), (50, configured), "{provider:?}");
    }
}

/// Requests as they are recorded: schemas in the dialect of each provider, and a PDF in a result.
#[tokio::test]
async fn schemas_and_documents_follow_each_provider() {
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "required": ["filter", "place"],
        "properties": {
            "filter": { "type": "object", "description": "Names and values.", "additionalProperties": { "type": "string" } },
            "place": { "oneOf": [
                { "type": "object", "properties": { "city": { "type": "string" } }, "required": ["city"] },
                { "type": "string", "format": "uri" },
            ] },
            "limit": { "type": ["integer", "null"], "minimum": 1, "maximum": 50, "default": 10 },
        },
    });
    let find = ToolSpec {
        name: "find".to_owned(),
        description: "Finds reports.".to_owned(),
        schema: RawJson::from_value(&schema),
    };
    let document = Part::Document {
        mime: "application/pdf".to_owned(),
        name: "report.pdf".to_owned(),
        data: "JVBERi0xLjc=".to_owned(),
    };
    let arguments = json!({ "filter": { "year": "2026" }, "place": { "city": "Lyon" } });
    let call = ToolCall {
        id: "c1".to_owned(),
        name: "find".to_owned(),
        arguments: CallArguments::Object(arguments.as_object().cloned().unwrap()),
        signature: None,
    };
    let output =
        ToolOutput { id: "c1".to_owned(), name: "find".to_owned(), parts: vec![document], failed: false };
    let request = ModelRequest {
        messages: vec![
            Message::user("find it"),
            Message::Assistant { text: String::new(), calls: vec![call] },
            Message::Tools { results: vec![output] },
        ],
        tools: vec![find],
        ..hello()
    };
    // A model fills in the schema that it sees: objects of any shape are strings with JSON for some.
    let as_text = json!({ "filter": "{\"year\":\"2027\"}", "place": { "city": "Nice" } });
    let as_object = json!({ "filter": { "year": "2027" }, "place": { "city": "Nice" } });
    for (provider, name) in [(Openai, "openai"), (Anthropic, "anthropic"), (Gemini, "gemini")] {
        let shown = if provider == Anthropic { &as_object } else { &as_text };
        let turn = json!({ "calls": [{ "id": "c2", "name": "find", "arguments": shown }] });
        let exchange = ask(json!([turn]), provider, true, &request).await;
        let reply = exchange.outcome.expect("it answers");
        let CallArguments::Object(restored) = &reply.calls[0].arguments else { panic!("{reply:?}") };
        assert_eq!(
            Json::Object(restored.clone()),
            as_object,
            "{name}: the arguments of the tool's own schema"
        );
        let body = serde_json::to_string_pretty(&exchange.requests[0]["body"]).unwrap();
        insta::assert_snapshot!(format!("request_{name}"), body);
    }
    // Other servers do not know files.
    let exchange = ask(json!([{ "text": "ok" }]), Ollama, true, &request).await;
    let body = exchange.requests[0]["body"].to_string();
    assert!(
        body.contains("[application/pdf, not supported by this model]") && !body.contains("JVBER"),
        "{body}"
    );
}
