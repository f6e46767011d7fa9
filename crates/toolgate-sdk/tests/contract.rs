//! Tools defined by the attribute and by the builder, and the rules they have to fulfil.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolgate_sdk::hints::{Severity, SourceQuality, ValidityPeriod, WarningKind};
use toolgate_sdk::testing::{Harness, check_examples};
use toolgate_sdk::{
    Answer, Category, Context, Hints, Id, Pagination, ResponseTime, Tool, ToolError, Tools, json, tool,
};

enum Card {}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct RepeatParams {
    /// The card.
    card: Id<Card>,
    /// Number of repetitions.
    #[schemars(range(min = 1, max = 9))]
    times: u32,
    #[serde(flatten)]
    page: Pagination,
}

#[derive(Debug, Serialize, Deserialize, PartialEq, JsonSchema)]
struct RepeatResult {
    text: String,
}

type Count = Arc<AtomicU32>;

/// Repeats the name of a card a number of times.
/// Use it when one time is not enough.
///
/// Returns the names without a separator.
#[tool(
    version = "1.2.3",
    category = query,
    response_time = medium,
    idempotent = true,
    cacheable = true,
    cache_ttl = "1h",
    permissions = ["cards:read"],
    tags = ["cards", "words"],
    timeout = "5s",
    max_instances = 2,
    rate_limit(max_calls = 60, window = "1m"),
    follow_up(action = "review-card", priority = high, description = "See whether it is known.", after = ["get-card"]),
    example(description = "Twice", params = { "card": "a", "times": 2 }, result = { "text": "aa" }),
    example(description = "Once", params = { "card": "b", "times": 1 })
)]
async fn repeat_card(
    count: Count,
    params: RepeatParams,
    context: Context,
) -> Result<Answer<RepeatResult>, ToolError> {
    count.fetch_add(1, Ordering::Relaxed);
    if params.card.as_str() == "gone" {
        return Err(ToolError::not_found("card", &params.card).hint("`search-decks` lists all cards"));
    }
    if params.card.as_str() == "panic" {
        panic!("secret");
    }
    if params.card.as_str() == "slow" {
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
    let hints = Hints::new()
        .factor(0.5, "half is guessed")
        .related("card", &params.card, "The card", 1.0)
        .source(SourceQuality::High)
        .valid(ValidityPeriod::Short)
        .needs(&context.agent_id);
    Ok(Answer::new(RepeatResult { text: params.card.as_str().repeat(params.times as usize) }, hints))
}

fn built_tool(count: Count) -> Tool {
    Tool::builder("repeat-card")
        .description(
            "Repeats the name of a card a number of times. Use it when one time is not enough.\n\n\
             Returns the names without a separator.",
        )
        .version("1.2.3")
        .category(Category::Query)
        .response_time(ResponseTime::Medium)
        .idempotent(true)
        .cacheable(true)
        .cache_ttl("1h")
        .permissions(["cards:read"])
        .tags(["cards", "words"])
        .timeout("5s")
        .max_instances(NonZeroU32::new(2).expect("two"))
        .rate_limit(60, "1m")
        .follow_up_after("review-card", Severity::High, "See whether it is known.", ["get-card"])
        .example("Twice", json!({ "card": "a", "times": 2 }), json!({ "text": "aa" }))
        .example_call("Once", json!({ "card": "b", "times": 1 }))
        .build(move |params, context| repeat_card(count.clone(), params, context))
        .expect("the tool fulfils the contract")
}

fn tools() -> Tools {
    let tool = repeat_card_tool(Count::default()).expect("the tool fulfils the contract");
    Tools::new("words", "0.1.0").with(tool).expect("one tool")
}

#[test]
fn attribute_and_builder_are_equivalent() {
    let tool = repeat_card_tool(Count::default()).unwrap();
    assert_eq!(*tool.definition(), *built_tool(Count::default()).definition());
    insta::assert_json_snapshot!(tool.definition(), @r#"
    {
      "name": "repeat-card",
      "description": "Repeats the name of a card a number of times. Use it when one time is not enough.\n\nReturns the names without a separator.",
      "contract": "full",
      "version": "1.2.3",
      "input_schema": {
        "type": "object",
        "properties": {
          "card": {
            "type": "string",
            "minLength": 1,
            "maxLength": 128,
            "pattern": "^\\S+$",
            "description": "The card."
          },
          "times": {
            "type": "integer",
            "maximum": 9,
            "minimum": 1,
            "description": "Number of repetitions."
          },
          "limit": {
            "type": "integer",
            "default": 20,
            "minimum": 1,
            "description": "Maximum number of items to return.",
            "maximum": 100
          },
          "offset": {
            "type": "integer",
            "default": 0,
            "minimum": 0,
            "description": "Number of items to skip."
          },
          "cursor": {
            "type": [
              "string",
              "null"
            ],
            "description": "`nextCursor` of the previous page. Takes precedence over the offset.",
            "minLength": 1,
            "maxLength": 1024
          }
        },
        "required": [
          "card",
          "times"
        ],
        "additionalProperties": false
      },
      "output_schema": {
        "type": "object",
        "properties": {
          "text": {
            "type": "string"
          }
        },
        "required": [
          "text"
        ]
      },
      "permissions": [
        "cards:read"
      ],
      "category": "query",
      "response_time": "medium",
      "cacheable": true,
      "cache_ttl": "1h",
      "idempotent": true,
      "timeout": "5s",
      "parallel_capable": true,
      "max_instances": 2,
      "examples": [
        {
          "description": "Twice",
          "params": {
            "card": "a",
            "times": 2
          },
          "expected_result": {
            "text": "aa"
          }
        },
        {
          "description": "Once",
          "params": {
            "card": "b",
            "times": 1
          }
        }
      ],
      "tags": [
        "cards",
        "words"
      ],
      "rate_limit": {
        "max_calls": 60,
        "window_ms": 60000
      },
      "follow_ups": [
        {
          "action": "review-card",
          "priority": "high",
          "description": "See whether it is known.",
          "after": [
            "get-card"
          ]
        }
      ]
    }
    "#);
}

#[test]
fn error_lists_every_broken_rule() {
    #[derive(Deserialize, JsonSchema)]
    struct Bare {
        #[expect(dead_code, reason = "only its schema counts")]
        number: u32,
    }
    let nothing = Tool::builder("Card").build(async |_: Bare, _| Ok::<u32, ToolError>(1));
    insta::assert_snapshot!(nothing.unwrap_err(), @"
    tool `Card` does not keep the full contract
      name: a verb and a noun in kebab-case, such as `create-card` – it is `Card`
      description: at least 50 characters: what it does, when to use it, what it returns – it has 0
      version: three numbers, such as `1.2.3` – it is ``
      tags: at least one – there is none
      category: written – it is not written
      response_time: written – it is not written
      idempotent: written, and true for a query – it is not written
      cacheable: written, and false for a mutation – it is not written
      permissions: written, if only as `[]`, each as `resource:action` – it is not written
      input_schema: every argument has a doc comment – `number` has none
      output_schema: a struct, so that it is an object in JSON – it is something else
      examples: at least one – there is none
    ");
    let description = "What it does, when to use it, and what it returns: all of it.";
    let wrong = Tool::builder("change-card")
        .description(description)
        .version("1")
        .category(Category::Mutation)
        .response_time(ResponseTime::Fast)
        .idempotent(false)
        .cacheable(true)
        .cache_ttl("soon")
        .permissions(["cards"])
        .tags(["cards"])
        .timeout("0s")
        .rate_limit(0, "1m")
        .deprecated("1.0.0", "change-card", "tomorrow")
        .example("Wrong", json!({ "card": "a", "times": 10, "more": 1 }), json!({ "text": "a" }))
        .example("Wrong result", json!({ "card": "a", "times": 1 }), json!({}))
        .build(async |_: RepeatParams, _| Ok::<_, ToolError>(RepeatResult { text: String::new() }));
    insta::assert_snapshot!(wrong.unwrap_err(), @r#"
    tool `change-card` does not keep the full contract
      version: three numbers, such as `1.2.3` – it is `1`
      cacheable: written, and false for a mutation – it is true
      permissions: a permission is `resource:action`, such as `cards:create` – it is `cards`
      timeout: a duration must be more than zero – it is `0s`
      rate_limit: at least one call – it is 0
      deprecated: another tool replaces it – it names itself
      deprecated: the day as `2027-03-31` – it is `tomorrow`
      examples: each fits the schemas – `Wrong` does not: `times`: 10 is greater than the maximum of 9; Additional properties are not allowed ('more' was unexpected)
      examples: each fits the schemas – `Wrong result` does not: "text" is a required property
    "#);
    let query = Tool::builder("get-card")
        .description(description)
        .version("1.0.0")
        .category(Category::Query)
        .response_time(ResponseTime::Fast)
        .idempotent(false)
        .cacheable(false)
        .cache_ttl("1h")
        .permissions([])
        .tags(["cards"])
        .example_call("One", json!({ "card": "a", "times": 1 }))
        .build(async |_: RepeatParams, _| Ok::<_, ToolError>(RepeatResult { text: String::new() }));
    insta::assert_snapshot!(query.unwrap_err(), @"
    tool `get-card` does not keep the full contract
      idempotent: written, and true for a query – it is false
      cache_ttl: left out where it is not cacheable – it is written
    ");
}

#[tokio::test]
async fn result_has_hints() {
    let harness = Harness::new(tools());
    let params = RepeatParams { card: "ab".parse().unwrap(), times: 2, page: Pagination::default() };
    let called = harness.call("repeat-card", params).await;
    assert_eq!(called.data::<RepeatResult>(), RepeatResult { text: "abab".to_owned() });
    let hints = called.hints();
    assert_eq!(hints.source_quality, SourceQuality::High);
    assert_eq!(hints.validity_period, ValidityPeriod::Short);
    assert_eq!(hints.context_needed, ["test"]);
    assert_eq!(
        (hints.related_resources[0].id.as_str(), hints.dependencies[0].action.as_str()),
        ("ab", "review-card")
    );
    assert!(called.suggests("review-card"));
    assert!(hints.reasoning.as_deref().is_some_and(|why| why.contains("half is guessed (0.5)")), "{hints:?}");
    let first = hints.confidence.get();
    assert!(first > 0.0 && first <= 0.5, "{first}");
    for _ in 0..50 {
        harness.call("repeat-card", json!({ "card": "a", "times": 1 })).await;
    }
    let later =
        harness.call("repeat-card", json!({ "card": "a", "times": 1 })).await.hints().confidence.get();
    assert!(later > first, "confidence grows with successful calls: {first} then {later}");
    assert_eq!(called.0.metadata.tool_version, "1.2.3");
    assert_eq!(called.0.metadata.service_version, "0.1.0");
}

#[tokio::test(start_paused = true)]
async fn failed_call_has_complete_result() {
    let harness = Harness::new(tools());
    for (arguments, code, action) in [
        (json!({ "card": "a", "times": 10 }), "invalid_arguments", "correct-arguments"),
        (json!({ "card": "a b", "times": 1 }), "invalid_arguments", "correct-arguments"),
        (json!({ "card": "a", "times": 1, "more": 1 }), "invalid_arguments", "correct-arguments"),
        (json!([]), "invalid_arguments", "correct-arguments"),
        (json!({ "card": "gone", "times": 1 }), "not_found", "change-plan"),
        (json!({ "card": "panic", "times": 1 }), "tool_execution_error", "check-outcome"),
        (json!({ "card": "slow", "times": 1 }), "timeout", "check-outcome"),
    ] {
        let called = harness.call("repeat-card", &arguments).await;
        assert_eq!(called.error().code, code, "{arguments}");
        assert!(called.suggests(action), "{arguments}: {:?}", called.hints());
        let result = serde_json::to_string(&called.0).unwrap();
        assert!(!result.contains("secret"), "{result}");
    }
}

#[tokio::test]
async fn rejects_undeclared_result() {
    #[derive(Serialize, JsonSchema)]
    struct Short {
        #[schemars(length(max = 2))]
        text: String,
    }
    let tool = Tool::builder("get-word")
        .description("Returns a word that is longer than its schema allows, every time it is called.")
        .version("1.0.0")
        .category(Category::Analysis)
        .response_time(ResponseTime::Fast)
        .idempotent(true)
        .cacheable(false)
        .permissions([])
        .tags(["words"])
        .deprecated("0.9.0", "get-words", "2999-01-01")
        .example_call("One", json!({ "card": "a", "times": 1 }))
        .build(async |_: RepeatParams, _| Ok::<_, ToolError>(Short { text: "long".to_owned() }))
        .unwrap();
    let called = Harness::new(Tools::new("words", "0.1.0").with(tool).unwrap())
        .call("get-word", json!({ "card": "a", "times": 1 }))
        .await;
    assert_eq!(called.error().code, "invalid_output");
    assert!(called.hints().warnings.iter().any(|warning| warning.kind == WarningKind::Deprecation));
}

#[tokio::test]
async fn rejects_removed_tool() {
    let count = Count::default();
    let counted = count.clone();
    let tool = Tool::builder("get-word")
        .description("Was replaced by something better a long time ago, and is rejected now.")
        .version("1.0.0")
        .category(Category::Analysis)
        .response_time(ResponseTime::Fast)
        .idempotent(true)
        .cacheable(false)
        .permissions([])
        .tags(["words"])
        .deprecated("0.9.0", "get-words", "2020-01-01")
        .example_call("One", json!({ "card": "a", "times": 1 }))
        .build(move |params, context| repeat_card(counted.clone(), params, context))
        .unwrap();
    let tools = Tools::new("words", "0.1.0").with(tool.clone()).unwrap();
    assert!(tools.clone().with(tool).is_err(), "names are unique");
    let called = Harness::new(tools).call("get-word", json!({ "card": "a", "times": 1 })).await;
    assert_eq!(called.error().code, "deprecated_removed");
    assert_eq!(count.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn runs_each_example_on_fresh_tools() {
    check_examples(tools).await;
}

#[tokio::test]
#[should_panic(expected = "expected {\"text\":\"b\"}\n    got      {\"text\":\"a\"}")]
async fn reports_failed_example() {
    check_examples(|| {
        let tool = Tool::builder("get-word")
            .description("Returns a word that is never the one in its example, whatever is asked.")
            .version("1.0.0")
            .category(Category::Analysis)
            .response_time(ResponseTime::Fast)
            .idempotent(true)
            .cacheable(false)
            .permissions([])
            .tags(["words"])
            .example("One", json!({ "card": "a", "times": 1 }), json!({ "text": "b" }))
            .build(async |_: RepeatParams, _| Ok::<_, ToolError>(RepeatResult { text: "a".to_owned() }))
            .unwrap();
        Tools::new("words", "0.1.0").with(tool).unwrap()
    })
    .await;
}

#[test]
fn finds_tools_by_tag_category_and_name() {
    let tools = tools();
    let names = |found: Vec<&Tool>| found.iter().map(|tool| tool.name().to_owned()).collect::<Vec<_>>();
    assert_eq!(names(tools.by_tag("words").collect()), ["repeat-card"]);
    assert!(tools.by_tag("other").next().is_none());
    assert_eq!(names(tools.by_category(Category::Query).collect()), ["repeat-card"]);
    assert!(tools.by_category(Category::Mutation).next().is_none());
    assert!(tools.get("repeat-card").is_some() && tools.get("other").is_none());
    assert_eq!(tools.all().len(), 1);
}
