//! Rules that ask, at the desk: a call waits until somebody says yes or no.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::Value as Json;
use tokio::time::Instant;
use toolgate_policy::Question;
use toolgate_types::clean::clean;

use super::{Answer, Asking, Desk, Kind, Reply, Unanswered};
use crate::road::{Approver, Origin, Verdict};

/// A yes that comes later does not count.
const LONGEST: Duration = Duration::from_secs(590);
/// Bytes of the arguments that people are shown.
const MOST_SHOWN: usize = 16 << 10;

/// Whoever comes to the desk says yes or no.
pub struct AtDesk(pub Arc<Desk>);

impl Approver for AtDesk {
    fn ask(&self, question: &Question, origin: &Origin) -> BoxFuture<'static, Verdict> {
        let arguments = clean(question.arguments.get()).into_owned();
        let shown = arguments.floor_char_boundary(MOST_SHOWN);
        let rest = arguments.len() - shown;
        let arguments =
            if rest > 0 { format!("{}… and {rest} bytes more", &arguments[..shown]) } else { arguments };
        let asking = Asking {
            kind: Kind::Approval,
            text: question.text.clone(),
            choices: Vec::new(),
            schema: None,
            arguments: Some(arguments),
            caller: question.caller.clone(),
            tool: question.tool.to_string(),
            session: origin.session.clone(),
        };
        let desk = Arc::clone(&self.0);
        let deadline = Instant::now() + desk.patience().get().min(LONGEST);
        Box::pin(async move {
            match desk.ask(asking, None, deadline).await {
                Ok(Reply { answer: Answer::Given(Json::Bool(true)), by }) => Verdict::Yes(by),
                Ok(Reply { by, .. }) => Verdict::No(format!("{by} said no")),
                Err(Unanswered::Late) => Verdict::No(
                    "nobody answered in time; people answer with `toolgate questions`, or at /v1/approvals"
                        .to_owned(),
                ),
                Err(why) => Verdict::No(why.to_string()),
            }
        })
    }

    fn patience(&self) -> Option<Duration> {
        // The desk itself ends it; this is for a desk that does not.
        Some(LONGEST)
    }
}
