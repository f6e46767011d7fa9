//! Streams of changes: what a client hears that belongs to no request.

use std::collections::HashMap;

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use serde::Deserialize;
use serde_json::{Value, json};
use toolgate_types::json::members_of;

use super::begin::Keeping;
use super::{Change, Endpoint, Service, Subscription};
use crate::Raw;
use crate::message::{Id, Message, RpcError, quoted};

/// The most resources on one stream.
const MOST_RESOURCES: usize = 1_000;
const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// What a client of the newest revision wants to hear of.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Filter {
    tools_list_changed: bool,
    prompts_list_changed: bool,
    resources_list_changed: bool,
    resource_subscriptions: Vec<String>,
}

impl Change {
    /// What is said of it to somebody who follows these resources.
    fn messages(self, followed: &[Box<str>]) -> Vec<Message> {
        const UPDATED: &str = "notifications/resources/updated";
        let (method, params) = match self {
            Self::Tools => ("notifications/tools/list_changed".into(), None),
            Self::Prompts => ("notifications/prompts/list_changed".into(), None),
            Self::Resources => ("notifications/resources/list_changed".into(), None),
            Self::Resource(_, params) => (UPDATED.into(), Some(params)),
            Self::Missed => {
                let updated = |uri: &str| Message::Notification {
                    method: UPDATED.into(),
                    params: Some(Raw::of(&json!({ "uri": uri }))),
                };
                return followed.iter().map(|uri| updated(uri)).collect();
            }
            Self::Other(method, params) => (method, Some(params)),
        };
        vec![Message::Notification { method, params }]
    }
}

impl<S: Service> Endpoint<S> {
    /// What a session hears that belongs to none of its requests.
    pub(super) fn heard(&self, guest: &S::Guest, keeping: Keeping) -> BoxStream<'static, Message> {
        let changes = self.service.changes(guest);
        let told = move |change: Change| {
            let kept = match &change {
                Change::Resource(..) | Change::Missed => keeping.find(),
                _ => None,
            };
            let concerns = match &change {
                Change::Resource(uri, _) => kept.as_ref().is_some_and(|kept| kept.is_told_of(uri)),
                _ => true,
            };
            let followed = kept.filter(|_| matches!(change, Change::Missed)).map(|kept| kept.followed());
            let messages = if concerns { change.messages(&followed.unwrap_or_default()) } else { Vec::new() };
            futures_util::stream::iter(messages)
        };
        Box::pin(changes.flat_map(told))
    }

    /// The stream that a client of the newest revision asked for: first what it will hear of, then that.
    pub(super) async fn listen(
        &self,
        guest: &S::Guest,
        id: &Id,
        params: Option<&Raw>,
    ) -> Result<BoxStream<'static, Message>, RpcError> {
        #[derive(Default, Deserialize)]
        struct Params {
            #[serde(default)]
            notifications: Filter,
        }
        let bad = |_| RpcError::new(RpcError::INVALID_PARAMS, "`notifications` says what to hear of");
        let Params { notifications: filter } =
            params.map_or(Ok(Params::default()), |params| params.parse()).map_err(bad)?;
        if filter.resource_subscriptions.len() > MOST_RESOURCES {
            let message = format!("at most {MOST_RESOURCES} resources can be listened to at once");
            return Err(RpcError::new(RpcError::INVALID_PARAMS, message));
        }
        let changes = self.service.changes(guest);
        let mut resources: HashMap<String, Subscription> = HashMap::new();
        for uri in &filter.resource_subscriptions {
            // One that cannot be had is left out of what is acknowledged.
            if let Ok(subscription) = self.service.subscribe(guest, uri).await {
                resources.insert(uri.clone(), subscription);
            }
        }
        let mut told = json!({});
        for (name, wanted) in [
            ("toolsListChanged", filter.tools_list_changed),
            ("promptsListChanged", filter.prompts_list_changed),
            ("resourcesListChanged", filter.resources_list_changed),
        ] {
            if wanted {
                told[name] = Value::Bool(true);
            }
        }
        if !resources.is_empty() {
            told["resourceSubscriptions"] = filter.resource_subscriptions.into();
        }
        let followed: Vec<Box<str>> = resources.keys().map(|uri| uri.as_str().into()).collect();
        let subscription = id.to_json();
        let acknowledged = Message::Notification {
            method: "notifications/subscriptions/acknowledged".into(),
            params: Some(tagged(Some(&Raw::of(&json!({ "notifications": told }))), &subscription)),
        };
        let concerns = move |change: &Change| match change {
            Change::Tools => filter.tools_list_changed,
            Change::Prompts => filter.prompts_list_changed,
            Change::Resources => filter.resources_list_changed,
            Change::Resource(uri, _) => resources.contains_key(&**uri),
            Change::Missed => true,
            Change::Other(..) => false,
        };
        let rest =
            changes.filter(move |change| std::future::ready(concerns(change))).flat_map(move |change| {
                let messages: Vec<_> = change
                    .messages(&followed)
                    .into_iter()
                    .map(|message| match message {
                        Message::Notification { method, params } => Message::Notification {
                            method,
                            params: Some(tagged(params.as_ref(), &subscription)),
                        },
                        other => other,
                    })
                    .collect();
                futures_util::stream::iter(messages)
            });
        Ok(Box::pin(futures_util::stream::iter([acknowledged]).chain(rest)))
    }
}

/// Parameters that say which stream they are on, and not on which stream of the server behind us they came.
fn tagged(params: Option<&Raw>, subscription: &str) -> Raw {
    let mut out = String::from("{");
    let mut meta = format!("{}:{subscription}", quoted(SUBSCRIPTION));
    for (name, value) in params.map(Raw::members).unwrap_or_default() {
        if name == "_meta" {
            for (name, value) in members_of(value).into_iter().filter(|(name, _)| name != SUBSCRIPTION) {
                meta.push_str(&format!(",{}:{value}", quoted(&name)));
            }
        } else {
            out.push_str(&format!("{}:{value},", quoted(&name)));
        }
    }
    out.push_str(&format!("\"_meta\":{{{meta}}}}}"));
    Raw::trusted(out)
}

#[cfg(test)]
mod tests;
