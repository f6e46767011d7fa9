//! What clients hear that belongs to no request: lists that changed, resources that did.

use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use serde::Deserialize;
use tokio::sync::broadcast::error::RecvError;
use toolgate_mcp::Raw;
use toolgate_mcp::serve::Change;

use super::{Gateway, Visitor};

/// What a caller saw last.
#[derive(PartialEq)]
struct Seen {
    tools: Raw,
    prompts: Vec<String>,
    resources: Vec<String>,
}

impl Gateway {
    fn seen(&self, visitor: &Visitor) -> Seen {
        let mut resources = self.held(visitor, |offer| &offer.resources);
        resources.extend(self.held(visitor, |offer| &offer.templates));
        let prompts = self.named_prompts(visitor).into_iter();
        let prompts =
            prompts.map(|(name, _, prompt)| format!("{name} {}", prompt.definition.get())).collect();
        Seen { tools: self.seen_tools(visitor), prompts, resources }
    }
}

pub(super) fn stream(gateway: Gateway, visitor: Visitor) -> BoxStream<'static, Change> {
    let updates = stream::unfold(gateway.runtime.updates(), |mut updates| async move {
        loop {
            match updates.recv().await {
                Ok((server, params)) => return Some(((server, params), updates)),
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return None,
            }
        }
    });
    let allowed = visitor.clone();
    let updates = updates.filter_map(move |(server, params)| {
        let change = if allowed.may_have(server.as_str(), "resources") { updated(params) } else { None };
        std::future::ready(change)
    });
    let lists = (gateway.runtime.changes(), gateway.runtime.heard(), gateway.seen(&visitor));
    let lists = stream::unfold(
        (lists, gateway, visitor),
        |((mut changes, mut heard, before), gateway, visitor)| async move {
            let told = tokio::select! {
                changed = changes.changed() => changed.ok().map(|()| None)?,
                told = heard.recv() => match told {
                    Ok(kinds) => Some(kinds),
                    Err(RecvError::Lagged(_)) => Some(toolgate_runtime::Kinds::ALL),
                    Err(RecvError::Closed) => return None,
                },
            };
            let now = gateway.seen(&visitor);
            // A profile shows a part, so a server's word says nothing of it: what it shows has changed, or not.
            let told = told.filter(|_| matches!(gateway.profile(&visitor), Ok(None))).unwrap_or_default();
            let mut found = Vec::new();
            // A server that says that something changed is passed on, also where nobody can see what.
            if told.tools || now.tools != before.tools {
                found.push(Change::Tools);
            }
            if told.prompts || now.prompts != before.prompts {
                found.push(Change::Prompts);
            }
            if told.resources || now.resources != before.resources {
                found.push(Change::Resources);
            }
            Some((stream::iter(found), ((changes, heard, now), gateway, visitor)))
        },
    );
    Box::pin(stream::select(updates, lists.flatten()))
}

fn updated(params: Raw) -> Option<Change> {
    #[derive(Deserialize)]
    struct Params {
        uri: Box<str>,
    }
    let uri = params.parse::<Params>().ok()?.uri;
    Some(Change::Resource(uri, params))
}
