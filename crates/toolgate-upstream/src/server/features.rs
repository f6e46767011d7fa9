//! Client features that are declared to a server, and the answers to its requests.
//!
//! Requests that arrive during the request of a downstream client are forwarded to that client before they get here.

use std::sync::Arc;

use serde_json::{Value, json};
use toolgate_mcp::{RawJson, RpcError};
use toolgate_redact::sanitize::sanitize;
use toolgate_types::browser_url::BrowserUrlError;

use crate::questions::{Answer, ElicitationQuestion, Question, QuestionKind, Responder};

const ELICITATION: &str = "elicitation/create";

/// Client features of a connection.
#[derive(Clone)]
pub enum ClientFeatures {
    /// A person answers elicitation, if the responder can reach one.
    Responder(Arc<dyn Responder>),
    /// The capabilities of downstream clients. Requests that belong to none of them are refused.
    Forwarded(Value),
}

impl ClientFeatures {
    /// Returns all capabilities of a client, for a gateway that does not know its clients yet.
    pub fn all_capabilities() -> Value {
        json!({
            "sampling": { "tools": {}, "context": {} },
            "elicitation": { "form": {}, "url": {} },
            "roots": { "listChanged": true },
        })
    }

    /// Returns the capabilities to declare to servers.
    pub(super) fn capabilities(&self) -> Value {
        match self {
            Self::Forwarded(capabilities) => capabilities.clone(),
            Self::Responder(responder) if responder.can_ask(QuestionKind::Elicitation) => {
                json!({ "elicitation": {} })
            }
            Self::Responder(_) => json!({}),
        }
    }

    /// Answers one request of a server.
    ///
    /// # Errors
    /// If the request is not offered, or its URL is not valid.
    pub async fn answer(
        self,
        server: String,
        method: String,
        params: Option<RawJson>,
    ) -> Result<RawJson, RpcError> {
        let responder = match self {
            Self::Responder(responder)
                if method == ELICITATION && responder.can_ask(QuestionKind::Elicitation) =>
            {
                responder
            }
            _ => {
                let message = format!("`{}` is not offered here", sanitize(&method));
                return Err(RpcError::new(RpcError::METHOD_NOT_FOUND, message));
            }
        };
        let params: Value = params.and_then(|params| params.parse().ok()).unwrap_or_default();
        // The session has refused all other URLs.
        let url = params["url"].as_str().map(str::parse).transpose();
        let url =
            url.map_err(|error: BrowserUrlError| RpcError::new(RpcError::INVALID_PARAMS, error.to_string()))?;
        let question = Question::Elicitation(ElicitationQuestion {
            server,
            message: params["message"].as_str().unwrap_or_default().to_owned(),
            url,
            schema: params["requestedSchema"].clone(),
        });
        let reply = responder.ask(Arc::new(question)).await;
        Ok(RawJson::from_value(&match reply.map(|reply| reply.answer) {
            // A URL that was opened has no values.
            Ok(Answer::Value(Value::Null)) => json!({ "action": "accept" }),
            Ok(Answer::Value(content)) => json!({ "action": "accept", "content": content }),
            Ok(Answer::Declined(_) | Answer::ForSession { .. }) => json!({ "action": "decline" }),
            // No answer: neither yes nor no.
            Err(_) => json!({ "action": "cancel" }),
        }))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use futures_util::future::BoxFuture;

    use super::*;
    use crate::questions::{HumanReply, NoAnswer, NoResponder};

    /// Answers elicitation with this.
    struct Replies(Result<Answer, NoAnswer>);

    impl Responder for Replies {
        fn can_ask(&self, kind: QuestionKind) -> bool {
            kind == QuestionKind::Elicitation
        }

        fn ask(&self, _question: Arc<Question>) -> BoxFuture<'_, Result<HumanReply, NoAnswer>> {
            let reply = self.0.clone().map(|answer| HumanReply { answer, by: "ann".to_owned() });
            Box::pin(std::future::ready(reply))
        }
    }

    fn answer(features: &ClientFeatures, method: &str) -> Result<String, i64> {
        let answered = features.clone().answer("s".to_owned(), method.to_owned(), None).now_or_never();
        answered.unwrap().map(|reply| reply.as_str().to_owned()).map_err(|error| error.code)
    }

    #[test]
    fn responders_answer_what_is_declared() {
        let refused = Err(RpcError::METHOD_NOT_FOUND);
        for (reply, expected) in [
            (Ok(Answer::Value(json!({ "a": 1 }))), r#"{"action":"accept","content":{"a":1}}"#),
            (Ok(Answer::Value(Value::Null)), r#"{"action":"accept"}"#),
            (Ok(Answer::Declined(None)), r#"{"action":"decline"}"#),
            (Err(NoAnswer::TimedOut), r#"{"action":"cancel"}"#),
        ] {
            let features = ClientFeatures::Responder(Arc::new(Replies(reply)));
            assert_eq!(features.capabilities(), json!({ "elicitation": {} }));
            assert_eq!(answer(&features, ELICITATION).as_deref(), Ok(expected));
            assert_eq!(answer(&features, "sampling/createMessage"), refused);
        }
        let none = ClientFeatures::Responder(Arc::new(NoResponder));
        assert_eq!((none.capabilities(), answer(&none, ELICITATION)), (json!({}), refused.clone()));
        let forwarded = ClientFeatures::Forwarded(json!({ "elicitation": {} }));
        assert_eq!(
            (forwarded.capabilities(), answer(&forwarded, ELICITATION)),
            (json!({ "elicitation": {} }), refused),
            "only downstream clients answer"
        );
    }
}
