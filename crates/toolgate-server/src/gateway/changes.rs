//! What clients hear that belongs to no request: lists that changed, resources that did.

use std::hash::{DefaultHasher, Hash, Hasher as _};

use futures_util::stream::{self, BoxStream};
use futures_util::{Stream, StreamExt as _};
use serde::Deserialize;
use tokio::sync::broadcast::{self, error::RecvError};
use toolgate_mcp::Raw;
use toolgate_mcp::serve::Change;
use toolgate_types::ServerName;

use super::lists::Pages;
use super::{Gateway, Visitor};

/// What a caller saw last. Every session has one, so it is short: the pages are those that all sessions of a caller
/// share, and of what is written anew each time a mark is kept.
#[derive(PartialEq)]
struct Seen {
    tools: Pages,
    prompts: u64,
    resources: u64,
}

/// A mark of texts, which differs where they do.
fn mark<T: Hash>(texts: T) -> u64 {
    let mut hasher = DefaultHasher::new();
    texts.hash(&mut hasher);
    hasher.finish()
}

impl Gateway {
    fn seen(&self, visitor: &Visitor) -> Seen {
        let mut resources = self.held(visitor, |offer| &offer.resources);
        resources.extend(self.held(visitor, |offer| &offer.templates));
        let prompts = self.named_prompts(visitor).into_iter();
        let prompts: Vec<_> =
            prompts.map(|(name, _, prompt)| format!("{name} {}", prompt.definition.get())).collect();
        Seen { tools: self.seen_tools(visitor), prompts: mark(prompts), resources: mark(resources) }
    }
}

pub(super) fn stream(gateway: Gateway, visitor: Visitor) -> BoxStream<'static, Change> {
    let allowed = visitor.clone();
    let updates = updates(gateway.runtime.updates()).filter_map(move |told| {
        let change = match told {
            Told::Of(server, _) if !allowed.may_have(server.as_str(), "resources") => None,
            Told::Of(_, params) => updated(params),
            Told::Missed => Some(Change::Missed),
        };
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

/// What was told of a resource, or that somebody did not hear it.
#[derive(Debug, PartialEq)]
enum Told {
    Of(ServerName, Raw),
    Missed,
}

/// What servers tell of resources. Whoever does not read for long enough misses some, and is told so.
fn updates(told: broadcast::Receiver<(ServerName, Option<Raw>)>) -> impl Stream<Item = Told> {
    stream::unfold(told, |mut told| async move {
        match told.recv().await {
            Ok((server, Some(params))) => Some((Told::Of(server, params), told)),
            Ok((_, None)) | Err(RecvError::Lagged(_)) => Some((Told::Missed, told)),
            Err(RecvError::Closed) => None,
        }
    })
}

fn updated(params: Raw) -> Option<Change> {
    #[derive(Deserialize)]
    struct Params {
        uri: Box<str>,
    }
    let uri = params.parse::<Params>().ok()?.uri;
    Some(Change::Resource(uri, params))
}

#[tokio::test]
async fn who_fell_behind_is_told_so_and_hears_again() {
    let (server, sender) = ("s".parse::<ServerName>().unwrap(), broadcast::Sender::new(4));
    let params = |number: u32| Raw::of(&serde_json::json!({ "uri": format!("a:{number}") }));
    let told = Box::pin(updates(sender.subscribe()));
    for number in 0..10 {
        sender.send((server.clone(), Some(params(number)))).unwrap();
    }
    sender.send((server.clone(), None)).unwrap();
    drop(sender);
    let told: Vec<_> = told.collect().await;
    let of = |number| Told::Of(server.clone(), params(number));
    assert_eq!(told, [Told::Missed, of(7), of(8), of(9), Told::Missed]);
}
