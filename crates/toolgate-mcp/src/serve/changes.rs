//! Change streams: notifications that belong to no request.

use std::collections::HashMap;

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use serde::Deserialize;
use serde_json::{Value, json};
use toolgate_json::object_members;

use super::incoming::SessionState;
use super::{McpEndpoint, Service, ServiceChange, Subscription};
use crate::RawJson;
use crate::message::{Message, RequestId, RpcError, quoted};

/// Maximum number of resources on one stream.
const MAX_RESOURCES: usize = 1_000;
const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// `notifications` of a `subscriptions/listen` request.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SubscriptionFilter {
    tools_list_changed: bool,
    prompts_list_changed: bool,
    resources_list_changed: bool,
    resource_subscriptions: Vec<String>,
}

impl ServiceChange {
    /// Converts a change to notifications for a client subscribed to `followed`.
    fn messages(self, subscribed_uris: &[Box<str>]) -> Vec<Message> {
        const UPDATED: &str = "notifications/resources/updated";
        let (method, params) = match self {
            Self::Tools => ("notifications/tools/list_changed".into(), None),
            Self::Prompts => ("notifications/prompts/list_changed".into(), None),
            Self::Resources => ("notifications/resources/list_changed".into(), None),
            Self::Resource(_, params) => (UPDATED.into(), Some(params)),
            Self::Missed => {
                let updated = |uri: &str| Message::Notification {
                    method: UPDATED.into(),
                    params: Some(RawJson::from_value(&json!({ "uri": uri }))),
                };
                return subscribed_uris.iter().map(|uri| updated(uri)).collect();
            }
            Self::Other(method, params) => (method, Some(params)),
        };
        vec![Message::Notification { method, params }]
    }
}

impl<S: Service> McpEndpoint<S> {
    /// Streams the notifications of a session that belong to no request.
    pub(super) fn session_changes(
        &self,
        caller: &S::Caller,
        state: SessionState,
    ) -> BoxStream<'static, Message> {
        let changes = self.service.changes(caller);
        let to_messages = move |change: ServiceChange| {
            let data = match &change {
                ServiceChange::Resource(..) | ServiceChange::Missed => state.get(),
                _ => None,
            };
            let concerns = match &change {
                ServiceChange::Resource(uri, _) => data.as_ref().is_some_and(|data| data.is_subscribed(uri)),
                _ => true,
            };
            let subscribed_uris =
                data.filter(|_| matches!(change, ServiceChange::Missed)).map(|data| data.subscribed_uris());
            let messages =
                if concerns { change.messages(&subscribed_uris.unwrap_or_default()) } else { Vec::new() };
            futures_util::stream::iter(messages)
        };
        Box::pin(changes.flat_map(to_messages))
    }

    /// Handles `subscriptions/listen`: an acknowledgement of the accepted filter, then the changes.
    pub(super) async fn listen(
        &self,
        caller: &S::Caller,
        id: &RequestId,
        params: Option<&RawJson>,
    ) -> Result<BoxStream<'static, Message>, RpcError> {
        #[derive(Default, Deserialize)]
        struct Params {
            #[serde(default)]
            notifications: SubscriptionFilter,
        }
        let invalid = |_| {
            RpcError::new(
                RpcError::INVALID_PARAMS,
                "`notifications` must be an object that selects notifications",
            )
        };
        let Params { notifications: filter } =
            params.map_or(Ok(Params::default()), |params| params.parse()).map_err(invalid)?;
        if filter.resource_subscriptions.len() > MAX_RESOURCES {
            let message = format!("at most {MAX_RESOURCES} resources per stream");
            return Err(RpcError::new(RpcError::INVALID_PARAMS, message));
        }
        let changes = self.service.changes(caller);
        let mut resources: HashMap<String, Subscription> = HashMap::new();
        for uri in &filter.resource_subscriptions {
            // A resource that cannot be subscribed to is left out.
            if let Ok(subscription) = self.service.subscribe(caller, uri).await {
                resources.insert(uri.clone(), subscription);
            }
        }
        let mut accepted = json!({});
        for (name, wanted) in [
            ("toolsListChanged", filter.tools_list_changed),
            ("promptsListChanged", filter.prompts_list_changed),
            ("resourcesListChanged", filter.resources_list_changed),
        ] {
            if wanted {
                accepted[name] = Value::Bool(true);
            }
        }
        if !resources.is_empty() {
            accepted["resourceSubscriptions"] = filter.resource_subscriptions.into();
        }
        let subscribed_uris: Vec<Box<str>> = resources.keys().map(|uri| uri.as_str().into()).collect();
        let subscription = id.to_json();
        let acknowledged = Message::Notification {
            method: "notifications/subscriptions/acknowledged".into(),
            params: Some(with_subscription_id(
                Some(&RawJson::from_value(&json!({ "notifications": accepted }))),
                &subscription,
            )),
        };
        let concerns = move |change: &ServiceChange| match change {
            ServiceChange::Tools => filter.tools_list_changed,
            ServiceChange::Prompts => filter.prompts_list_changed,
            ServiceChange::Resources => filter.resources_list_changed,
            ServiceChange::Resource(uri, _) => resources.contains_key(&**uri),
            ServiceChange::Missed => true,
            ServiceChange::Other(..) => false,
        };
        let rest =
            changes.filter(move |change| std::future::ready(concerns(change))).flat_map(move |change| {
                let messages: Vec<_> = change
                    .messages(&subscribed_uris)
                    .into_iter()
                    .map(|message| match message {
                        Message::Notification { method, params } => Message::Notification {
                            method,
                            params: Some(with_subscription_id(params.as_ref(), &subscription)),
                        },
                        other => other,
                    })
                    .collect();
                futures_util::stream::iter(messages)
            });
        Ok(Box::pin(futures_util::stream::iter([acknowledged]).chain(rest)))
    }
}

/// Sets our subscription id in `_meta` and removes the id of the upstream server.
fn with_subscription_id(params: Option<&RawJson>, subscription: &str) -> RawJson {
    let mut out = String::from("{");
    let mut meta = format!("{}:{subscription}", quoted(SUBSCRIPTION));
    for (name, value) in params.map(RawJson::members).unwrap_or_default() {
        if name == "_meta" {
            for (name, value) in object_members(value).into_iter().filter(|(name, _)| name != SUBSCRIPTION) {
                meta.push_str(&format!(",{}:{value}", quoted(&name)));
            }
        } else {
            out.push_str(&format!("{}:{value},", quoted(&name)));
        }
    }
    out.push_str(&format!("\"_meta\":{{{meta}}}}}"));
    RawJson::from_trusted(out)
}

#[cfg(test)]
mod tests;
