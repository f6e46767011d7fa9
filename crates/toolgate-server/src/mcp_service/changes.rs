//! Notifications outside of requests: changed lists and updated resources.

use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::sync::Arc;

use futures_util::stream::{self, BoxStream};
use futures_util::{Stream, StreamExt as _};
use serde::Deserialize;
use tokio::sync::broadcast::{self, error::RecvError};
use toolgate_mcp::RawJson;
use toolgate_mcp::server::ServiceChange;
use toolgate_runtime::{ListFilter, OfferKinds, ResourceUpdate};
use toolgate_types::ServerName;

use super::lists::Pages;
use super::{McpCaller, McpService};

/// The lists a caller saw last. Every session has one, so it is small: tool pages are shared by all sessions of a
/// caller, and the rest is kept as fingerprints.
#[derive(PartialEq)]
struct VisibleLists {
    tools: Pages,
    prompts: u64,
    resources: u64,
}

fn fingerprint<T: Hash>(texts: T) -> u64 {
    let mut hasher = DefaultHasher::new();
    texts.hash(&mut hasher);
    hasher.finish()
}

impl McpService {
    fn visible_lists(&self, mcp_caller: &McpCaller) -> VisibleLists {
        // As the catalog has them. A list that only this client gets changes with an announcement of its own.
        let (caller, lists) = (&mcp_caller.caller, &ListFilter::default());
        let mut resources =
            self.resource_definitions(mcp_caller, self.runtime.visible_resources(caller, lists));
        resources
            .extend(self.resource_definitions(mcp_caller, self.runtime.visible_templates(caller, lists)));
        let prompts = self.named_prompts(mcp_caller, lists).into_iter();
        let prompts: Vec<_> =
            prompts.map(|shown| format!("{} {}", shown.name, shown.prompt.definition.as_str())).collect();
        VisibleLists {
            tools: self.visible_tool_pages(mcp_caller),
            prompts: fingerprint(prompts),
            resources: fingerprint(resources),
        }
    }
}

pub(super) fn stream(service: McpService, mcp_caller: McpCaller) -> BoxStream<'static, ServiceChange> {
    let (runtime, caller) = (Arc::clone(&service.runtime), Arc::clone(&mcp_caller.caller));
    let updates = updates(service.runtime.resource_updates()).filter_map(move |update| {
        let change = match update {
            // The update came on a connection of another caller.
            (_, (Some(owner), _)) if owner != caller.id => None,
            (Some(server), (_, Some(params))) => resource_change(params)
                .filter(|(uri, _)| runtime.may_see_resource(&caller, server.as_str(), uri))
                .map(|(uri, params)| ServiceChange::Resource(uri, params)),
            _ => Some(ServiceChange::Missed),
        };
        std::future::ready(change)
    });
    let lists =
        (service.runtime.changes(), service.runtime.list_changes(), service.visible_lists(&mcp_caller));
    let lists = stream::unfold(
        (lists, service, mcp_caller),
        |((mut changes, mut notices, before), service, mcp_caller)| async move {
            let announced = tokio::select! {
                changed = changes.changed() => changed.ok().map(|()| None)?,
                notice = notices.recv() => match notice {
                    Ok((owner, kinds)) if owner.as_ref().is_none_or(|owner| *owner == mcp_caller.caller.id) => {
                        Some((kinds, owner.is_some()))
                    }
                    Ok(_) => None,
                    Err(RecvError::Lagged(_)) => Some((OfferKinds::ALL, true)),
                    Err(RecvError::Closed) => return None,
                },
            };
            let now = service.visible_lists(&mcp_caller);
            // A profile shows a subset, so a server's notification means little; only a real change counts, and one that
            // concerns this caller alone, because its own lists are not compared.
            let is_passed_on =
                |(_, is_own): &(_, bool)| *is_own || matches!(service.profile(&mcp_caller), Ok(None));
            let announced: OfferKinds =
                announced.filter(is_passed_on).map(|(kinds, _)| kinds).unwrap_or_default();
            let mut found = Vec::new();
            // Without a profile, notifications of a server are passed on even if no difference is visible.
            if announced.tools || now.tools != before.tools {
                found.push(ServiceChange::Tools);
            }
            if announced.prompts || now.prompts != before.prompts {
                found.push(ServiceChange::Prompts);
            }
            if announced.resources || now.resources != before.resources {
                found.push(ServiceChange::Resources);
            }
            Some((stream::iter(found), ((changes, notices, now), service, mcp_caller)))
        },
    );
    Box::pin(stream::select(updates, lists.flatten()))
}

/// Resource updates of all servers. A slow client misses some, and gets an update without server and parameters instead.
fn updates(
    receiver: broadcast::Receiver<(ServerName, ResourceUpdate)>,
) -> impl Stream<Item = (Option<ServerName>, ResourceUpdate)> {
    stream::unfold(receiver, |mut receiver| async move {
        match receiver.recv().await {
            Ok((server, update)) => Some(((Some(server), update), receiver)),
            Err(RecvError::Lagged(_)) => Some(((None, (None, None)), receiver)),
            Err(RecvError::Closed) => None,
        }
    })
}

/// The URI of an update, and its parameters.
fn resource_change(params: RawJson) -> Option<(Box<str>, RawJson)> {
    #[derive(Deserialize)]
    struct Params {
        uri: Box<str>,
    }
    let uri = params.parse::<Params>().ok()?.uri;
    Some((uri, params))
}

#[tokio::test]
async fn lagging_subscriber_gets_missed_then_new_updates() {
    let (server, sender) = ("s".parse::<ServerName>().unwrap(), broadcast::Sender::new(4));
    let params = |number: u32| RawJson::from_value(&serde_json::json!({ "uri": format!("a:{number}") }));
    let received = Box::pin(updates(sender.subscribe()));
    for number in 0..10 {
        sender.send((server.clone(), (None, Some(params(number))))).unwrap();
    }
    sender.send((server.clone(), (None, None))).unwrap();
    drop(sender);
    let received: Vec<_> = received.collect().await;
    let of = |number| (Some(server.clone()), (None, Some(params(number))));
    assert_eq!(received, [(None, (None, None)), of(7), of(8), of(9), (Some(server.clone()), (None, None))]);
}
