//! The way to a person by the MCP client that made the call: elicitation.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde_json::{Value as Json, json};
use toolgate_upstream::{Behind, Raw};

use super::{Answer, Asking, Question, Reply, Way};

/// The one field of a form that asks for one thing.
const FIELD: &str = "answer";
/// Who answers there.
const BY: &str = "the person at the client";

/// A client that shows forms.
pub(super) struct ByClient {
    client: Arc<dyn Behind>,
    form: Json,
    /// Whether the form asks for one thing alone.
    single: bool,
}

impl ByClient {
    /// `None` where the client shows no forms, or none that could ask this.
    pub(super) fn of(client: Arc<dyn Behind>, asking: &Asking) -> Option<Self> {
        let declared = client.capabilities().get("elicitation")?;
        // Before there were two kinds, all was forms.
        if declared.get("form").is_none() && declared.get("url").is_some() {
            return None;
        }
        let (form, single) = match &asking.schema {
            Some(schema) => (schema.clone(), false),
            None if asking.choices.is_empty() => {
                (json!({ "type": "string", "title": "Answer", "minLength": 1 }), true)
            }
            None => (json!({ "type": "string", "title": "Answer", "enum": asking.choices }), true),
        };
        let form = if single {
            json!({ "type": "object", "properties": { FIELD: form }, "required": [FIELD] })
        } else {
            is_form(&form).then_some(form)?
        };
        Some(Self { client, form, single })
    }
}

/// Whether a schema is one that clients show: an object of plain fields.
fn is_form(schema: &Json) -> bool {
    let plain =
        |field: &Json| matches!(field["type"].as_str(), Some("string" | "number" | "integer" | "boolean"));
    schema["type"] == "object" && schema["properties"].as_object().is_some_and(|all| all.values().all(plain))
}

impl Way for ByClient {
    fn ask(&self, question: Arc<Question>) -> BoxFuture<'static, Option<Reply>> {
        let params = json!({ "message": question.posted.text, "requestedSchema": self.form });
        let asked = self.client.ask("elicitation/create", Some(Raw::of(&params)));
        let single = self.single;
        Box::pin(async move {
            let said: Json = asked.await.ok()?.parse().ok()?;
            let answer = match said["action"].as_str()? {
                "accept" if single => Answer::Given(said["content"][FIELD].clone()),
                "accept" => Answer::Given(said["content"].clone()),
                "decline" | "cancel" => Answer::Declined(None),
                _ => return None,
            };
            Some(Reply { answer, by: BY.to_owned() })
        })
    }
}

#[test]
fn what_clients_can_show() {
    for (schema, due) in [
        (
            json!({ "type": "object", "properties": { "a": { "type": "string" }, "b": { "type": "integer" } } }),
            true,
        ),
        (json!({ "type": "object", "properties": { "a": { "type": "array" } } }), false),
        (json!({ "type": "string" }), false),
        (json!({ "type": "object" }), false),
    ] {
        assert_eq!(is_form(&schema), due, "{schema}");
    }
}
