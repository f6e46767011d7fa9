//! Asks the person at the MCP client that made the call, by elicitation.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde_json::{Value as Json, json};
use toolgate_upstream::{DownstreamClient, RawJson};

use super::{Answer, HumanReply, InputQuestion, NoAnswer, Question, QuestionKind, Responder};

/// The field of a form with a single question.
const FIELD: &str = "answer";
/// Name recorded for answers from a client.
const ANSWERED_BY: &str = "the person at the client";

/// An MCP client that supports form elicitation.
pub(crate) struct ClientResponder {
    client: Arc<dyn DownstreamClient>,
    form: Json,
    /// True if the form has a single field.
    single: bool,
}

impl ClientResponder {
    /// Asks for the approval of a call. `None` if the client cannot show forms.
    pub(crate) fn for_approval(client: Arc<dyn DownstreamClient>) -> Option<Self> {
        shows_forms(&*client).then_some(())?;
        let field = json!({ "type": "boolean", "title": "Approve this call", "default": false });
        let form = json!({ "type": "object", "properties": { FIELD: field }, "required": [FIELD] });
        Some(Self { client, form, single: true })
    }

    /// `None` if the client cannot show a form for this question.
    pub(super) fn for_question(client: Arc<dyn DownstreamClient>, input: &InputQuestion) -> Option<Self> {
        shows_forms(&*client).then_some(())?;
        let (form, single) = match &input.schema {
            Some(schema) => (schema.json.clone(), false),
            None if input.choices.is_empty() => {
                (json!({ "type": "string", "title": "Answer", "minLength": 1 }), true)
            }
            None => (json!({ "type": "string", "title": "Answer", "enum": input.choices }), true),
        };
        let form = if single {
            json!({ "type": "object", "properties": { FIELD: form }, "required": [FIELD] })
        } else {
            is_form(&form).then_some(form)?
        };
        Some(Self { client, form, single })
    }

    /// Sends the form. `None` if the client does not answer it.
    async fn elicit(&self, question: &Question) -> Option<Answer> {
        let message = match question {
            Question::Input(input) => input.text.clone(),
            Question::Approval(asked) => {
                format!("{}\n\nTool: {}\nArguments: {}", asked.text, asked.tool, asked.arguments.text)
            }
            _ => return None,
        };
        let params = json!({ "message": message, "requestedSchema": self.form });
        let response = self.client.ask("elicitation/create", Some(RawJson::from_value(&params))).await;
        let reply: Json = response.ok()?.parse().ok()?;
        match reply["action"].as_str()? {
            "accept" if self.single => Some(Answer::Value(reply["content"][FIELD].clone())),
            "accept" => Some(Answer::Value(reply["content"].clone())),
            "decline" | "cancel" => Some(Answer::Declined(None)),
            _ => None,
        }
    }
}

/// Returns true if the client supports form elicitation.
fn shows_forms(client: &dyn DownstreamClient) -> bool {
    // Clients of revisions without modes support forms only.
    let capabilities = client.capabilities();
    let capability = capabilities.get("elicitation");
    capability.is_some_and(|capability| capability.get("form").is_some() || capability.get("url").is_none())
}

/// Returns true if clients can show the schema as a form: an object with primitive fields.
fn is_form(schema: &Json) -> bool {
    let plain =
        |field: &Json| matches!(field["type"].as_str(), Some("string" | "number" | "integer" | "boolean"));
    schema["type"] == "object" && schema["properties"].as_object().is_some_and(|all| all.values().all(plain))
}

impl Responder for ClientResponder {
    fn can_ask(&self, kind: QuestionKind) -> bool {
        matches!(kind, QuestionKind::HumanInput | QuestionKind::Approval)
    }

    fn ask(&self, question: Arc<Question>) -> BoxFuture<'_, Result<HumanReply, NoAnswer>> {
        Box::pin(async move {
            let answer = self.elicit(&question).await.ok_or(NoAnswer::NoResponder)?;
            question.check(&answer).map_err(|_| NoAnswer::NoResponder)?;
            Ok(HumanReply { answer, by: ANSWERED_BY.to_owned() })
        })
    }
}

#[test]
fn recognizes_schemas_that_clients_can_show() {
    for (schema, expected) in [
        (
            json!({ "type": "object", "properties": { "a": { "type": "string" }, "b": { "type": "integer" } } }),
            true,
        ),
        (json!({ "type": "object", "properties": { "a": { "type": "array" } } }), false),
        (json!({ "type": "string" }), false),
        (json!({ "type": "object" }), false),
    ] {
        assert_eq!(is_form(&schema), expected, "{schema}");
    }
}
