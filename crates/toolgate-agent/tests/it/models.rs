//! The three protocols: what goes out, what comes back, and how each fails.

use serde_json::{Value as Json, json};
use toolgate_agent::model::{
    Given, Heard, Message, Model as _, ModelError, ModelErrorKind, Part, Remote, Reply, Request, Stop,
    ToolCall, ToolOutput, ToolSpec,
};
use toolgate_types::HumanDuration;
use toolgate_types::agent::ModelProvider::{self, Anthropic, Azure, Gemini, Ollama, Openai};
use toolgate_types::json::Raw;

use crate::kit::{KEY, Scripted};

const ALL: [ModelProvider; 3] = [Openai, Anthropic, Gemini];

fn tool(name: &str) -> ToolSpec {
    let schema =
        json!({ "type": "object", "properties": { "message": { "type": "string" } }, "$schema": "x" });
    ToolSpec { name: name.to_owned(), description: format!("Does {name}."), schema: Raw::of(&schema) }
}

fn hello() -> Request {
    Request {
        instructions: "Be brief.".to_owned(),
        messages: vec![Message::user("hello")],
        tools: vec![tool("echo"), tool("files.read")],
    }
}

struct Asked {
    outcome: Result<Reply, ModelError>,
    heard: Vec<Heard>,
    seen: Vec<Json>,
}

async fn ask(turns: Json, provider: ModelProvider, stream: bool, request: &Request) -> Asked {
    let server = Scripted::start(&turns);
    let model = Remote::new(server.spec(provider, stream)).expect("there is a way to it");
    let mut heard = Vec::new();
    let outcome = model.reply(request, &mut |one| heard.push(one)).await;
    if let Err(error) = &outcome {
        assert!(!format!("{error} {error:?}").contains(KEY), "{error:?}");
    }
    Asked { outcome, heard, seen: server.requests() }
}

fn said(heard: &[Heard]) -> String {
    heard
        .iter()
        .filter_map(|one| if let Heard::Text(text) = one { Some(text.as_str()) } else { None })
        .collect()
}

#[tokio::test]
async fn words_and_parallel_calls_come_back_whole() {
    let turn = json!({ "text": "Let me look. Grüße!", "usage": { "input": 1000, "output": 100, "cached": 400 },
        "calls": [
            { "id": "c1", "name": "echo", "arguments": { "message": "one \u{1F980}" } },
            { "id": "c2", "name": "files_read_601e4e", "arguments": {} },
        ] });
    for provider in ALL {
        for stream in [true, false] {
            let asked = ask(json!([turn]), provider, stream, &hello()).await;
            let reply = asked.outcome.expect("it answers");
            let case = format!("{provider:?} {stream}");
            assert_eq!(reply.text, "Let me look. Grüße!", "{case}");
            assert_eq!(said(&asked.heard), reply.text, "{case}");
            assert_eq!(reply.stop, Stop::Calls, "{case}");
            let calls: Vec<_> =
                reply.calls.iter().map(|call| (call.name.as_str(), &call.arguments)).collect();
            let object = |value: Json| Given::Object(value.as_object().cloned().unwrap());
            let (one, none) = (object(json!({ "message": "one \u{1F980}" })), object(json!({})));
            assert_eq!(calls, [("echo", &one), ("files.read", &none)], "{case}: a name comes back as ours");
            if provider != Gemini {
                assert_eq!(reply.calls.iter().map(|call| call.id.as_str()).collect::<Vec<_>>(), ["c1", "c2"]);
            }
            let usage = reply.usage;
            assert_eq!(
                (usage.input_tokens, usage.cached_tokens, usage.output_tokens),
                (1000, 400, 100),
                "{case}"
            );
            let prices = toolgate_types::agent::Prices { input: 3.0, cached_input: 0.3, output: 15.0 };
            assert!((usage.cost(prices) - 0.003_42).abs() < 1e-9, "{case}: {}", usage.cost(prices));
        }
    }
}

#[tokio::test]
async fn what_goes_out_has_the_form_of_its_protocol() {
    let picture = || Part::Image { mime: "image/png".to_owned(), data: "iVBORw0KGgo=".to_owned() };
    let sound = Part::Audio { mime: "audio/wav".to_owned(), data: "UklGRg==".to_owned() };
    let object = json!({ "message": "hi" }).as_object().cloned().unwrap();
    let call = |id: &str, arguments| ToolCall {
        id: id.to_owned(),
        name: "files.read".to_owned(),
        arguments,
        seal: Some("c2VhbA==".to_owned()),
    };
    let words = |text: &str| Part::Text { text: text.to_owned() };
    let output = |id: &str, parts, failed| ToolOutput {
        id: id.to_owned(),
        name: "files.read".to_owned(),
        parts,
        failed,
    };
    let request = Request {
        messages: vec![
            Message::User { parts: vec![words("what is this?"), picture(), sound] },
            Message::Assistant {
                text: String::new(),
                calls: vec![call("c1", Given::Object(object)), call("c2", Given::Unusable("no".to_owned()))],
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
        let asked = ask(json!([{ "text": "A crab." }]), provider, true, &request).await;
        assert_eq!(asked.outcome.expect("it answers").text, "A crab.");
        let [seen] = asked.seen.as_slice() else { panic!("one request: {:?}", asked.seen) };
        let key = ["authorization", "api-key", "x-api-key", "x-goog-api-key"];
        let key = key.map(|name| seen["headers"][name].as_str().map(|value| (name, value)));
        let [key] = key.into_iter().flatten().collect::<Vec<_>>()[..] else { panic!("{}", seen["headers"]) };
        bodies.push(json!({ "path": seen["path"], "key": key, "body": seen["body"] }));
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
            "content": "a picture\n[image/png, which follows]"
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
                }
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
                }
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
                  "text": "[audio/wav, which this model cannot hear]"
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
    assert_eq!(bodies[1]["body"], bodies[0]["body"], "Ollama speaks the protocol of OpenAI");
    assert_eq!(bodies[2]["path"], "/openai/v1/chat/completions");
    assert_eq!(bodies[2]["key"], json!(["api-key", KEY]));
    assert_eq!(bodies[2]["body"]["max_completion_tokens"], 1_000);
}

#[tokio::test]
async fn what_passes_is_tried_again() {
    let slow = json!({ "status": 429, "headers": { "retry-after-ms": "5" }, "error": "slow down" });
    let broken = json!({ "text": "This never ends, or so it seems to be", "breaks": true });
    for provider in ALL {
        let fails = json!({ "status": 503, "headers": { "retry-after": "0" } });
        let turns = json!([slow, fails, broken, { "text": "Good." }]);
        let Asked { outcome, heard, seen } = ask(turns, provider, true, &hello()).await;
        assert_eq!(outcome.expect("it answers at last").text, "Good.", "{provider:?}");
        assert_eq!(seen.len(), 4);
        let again = heard.iter().filter(|one| matches!(one, Heard::Again(_))).count();
        assert_eq!(again, 3, "{heard:?}");
        let last = heard.iter().rposition(|one| matches!(one, Heard::Again(_))).unwrap();
        assert_eq!(said(&heard[last..]), "Good.", "what was heard before does not count");
    }
}

#[tokio::test]
async fn what_does_not_pass_is_told_at_once() {
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
                let asked = ask(json!([turn]), provider, stream, &hello()).await;
                let error = asked.outcome.expect_err("it fails");
                assert_eq!(error.kind, *kind, "{provider:?} {error}");
                assert_eq!(asked.seen.len(), 1, "{provider:?} {error}");
            }
        }
    }
}

#[tokio::test]
async fn a_model_that_fails_for_good_is_given_up() {
    let fails =
        json!({ "status": 500, "headers": { "retry-after-ms": "1" }, "error": "out of\norder\u{1b}[2J" });
    let asked = ask(json!([fails, fails, fails, fails, fails]), Openai, true, &hello()).await;
    let error = asked.outcome.expect_err("it fails");
    assert_eq!(error.to_string(), "the model `scripted` answered 500 Internal Server Error: out of order[2J");
    assert_eq!(asked.seen.len(), 4, "three more attempts");
}

#[tokio::test]
async fn an_answer_that_never_comes_is_not_waited_for() {
    let server = Scripted::start(&json!([{ "silent": true }]));
    let mut spec = server.spec(Anthropic, true);
    (spec.timeout, spec.retries) = (HumanDuration::from_secs(1), 0);
    let model = Remote::new(spec).unwrap();
    let error = model.reply(&hello(), &mut |_| {}).await.expect_err("nobody answers");
    assert_eq!(error.kind, ModelErrorKind::Timeout);
    assert_eq!(error.hint.as_deref(), Some("`model.timeout` gives it more time"));
}

#[tokio::test]
async fn half_an_answer_and_a_refusal_are_told_apart() {
    for provider in ALL {
        for stream in [true, false] {
            let cut = json!([{ "text": "Once upon", "stop": "length",
                "calls": [{ "id": "c", "name": "echo", "arguments": { "message": "half" } }] }]);
            let reply = ask(cut, provider, stream, &hello()).await.outcome.unwrap();
            assert_eq!(reply.stop, Stop::Length, "{provider:?}");
            let why = Given::Unusable("the answer was cut off in the middle".to_owned());
            assert_eq!(reply.calls[0].arguments, why, "a call may be half of what was meant");
            let no = ask(json!([{ "stop": "refused" }]), provider, stream, &hello()).await.outcome.unwrap();
            assert!(matches!(no.stop, Stop::Refused(_)), "{provider:?} {no:?}");
        }
    }
}

#[tokio::test]
async fn arguments_that_are_no_object_are_kept_from_every_tool() {
    let call =
        |arguments: Json| json!([{ "calls": [{ "id": "c", "name": "echo", "arguments": arguments }] }]);
    for (arguments, why) in [
        (
            json!("{\"message\": \"unfinished"),
            "the arguments are not JSON that can be used: not JSON at byte 23",
        ),
        (
            json!("{\"a\": 1, \"a\": 2}"),
            "the arguments are not JSON that can be used: the key `a` is given twice",
        ),
        (json!("[1]"), "the arguments are not a JSON object"),
    ] {
        for provider in [Openai, Anthropic] {
            let reply = ask(call(arguments.clone()), provider, true, &hello()).await.outcome.unwrap();
            assert_eq!(reply.calls[0].arguments, Given::Unusable(why.to_owned()), "{provider:?}");
        }
    }
    let reply = ask(call(json!([1])), Gemini, true, &hello()).await.outcome.unwrap();
    assert_eq!(reply.calls[0].arguments, Given::Unusable("the arguments are not a JSON object".to_owned()));
}

#[tokio::test]
async fn ids_that_are_missing_or_twice_are_made() {
    let call = |id: Json| json!({ "id": id, "name": "echo", "arguments": {} });
    let turns = json!([{ "calls": [call(json!("same")), call(json!("same")), call(json!(""))] }]);
    let reply = ask(turns, Openai, true, &hello()).await.outcome.unwrap();
    let ids: std::collections::HashSet<_> = reply.calls.iter().map(|call| call.id.as_str()).collect();
    assert_eq!(ids.len(), 3, "{ids:?}");
    assert!(ids.contains("same") && !ids.contains(""));
}

#[tokio::test]
async fn usage_that_is_not_told_is_reckoned() {
    let reply = ask(json!([{ "text": "hi", "usage": false }]), Openai, true, &hello()).await.outcome.unwrap();
    assert!(reply.usage.reckoned && reply.usage.input_tokens > 10 && reply.usage.output_tokens > 0);
}

#[test]
fn a_model_without_its_key_says_which_variable_it_wants() {
    let server = Scripted::start(&json!([]));
    let mut spec = server.spec(Anthropic, true);
    spec.key = None;
    assert!(Remote::new(spec.clone()).is_ok(), "a server of one's own may want none");
    spec.url = toolgate_types::Text::plain(Anthropic.place().unwrap());
    let error = Remote::new(spec).err().expect("Anthropic wants a key");
    assert_eq!(error.to_string(), "the model `scripted` of `anthropic` needs a key");
    assert!(error.hint.unwrap().starts_with("set `ANTHROPIC_API_KEY`"));
}
