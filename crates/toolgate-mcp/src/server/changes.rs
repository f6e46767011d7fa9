//! Change streams: notifications that belong to no request.

use std::collections::HashMap;

use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt as _};
use serde::Deserialize;
use serde_json::{Value, json};
use toolgate_json::object_members;

use super::http::{HttpReply, sse_stream};
use super::incoming::{IncomingRequest, SessionState};
use super::session::ListKind;
use super::{ServiceChange, Subscription};
use crate::message::{Message, MethodName, RequestId, RpcError, quoted};
use crate::{RawJson, TraceContext};

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
    /// The change of a list.
    pub(super) fn of_list(kind: ListKind) -> Self {
        match kind {
            ListKind::Tools => Self::Tools,
            ListKind::Prompts => Self::Prompts,
            ListKind::Resources => Self::Resources,
        }
    }

    /// Converts a change to notifications for a client subscribed to `followed`.
    pub(super) fn messages(self, subscribed_uris: &[Box<str>]) -> Vec<Message> {
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
            Self::Other(method, params) => (MethodName::from(&*method), Some(params)),
        };
        vec![Message::Notification { method, params }]
    }
}

/// Changes of the service for one caller, with the subscriptions that hold for as long as they are read. Changes must be
/// taken before the first subscription, so that none is missed in between.
pub struct ChangeSource {
    pub changes: BoxStream<'static, ServiceChange>,
    /// By URI. A resource that cannot be subscribed to is left out.
    pub subscriptions: HashMap<String, Subscription>,
}

/// GET of a client in a session: the notifications that belong to no request.
pub struct SessionChanges(pub(super) SessionState);

impl SessionChanges {
    /// Encodes the changes of the service.
    pub(super) fn messages(
        self,
        changes: impl Stream<Item = ServiceChange> + Send + 'static,
    ) -> BoxStream<'static, Message> {
        let Self(state) = self;
        let to_messages = move |change: ServiceChange| {
            let data = match &change {
                ServiceChange::Resource(..) | ServiceChange::Missed => state.get(),
                _ => None,
            };
            let concerns = match &change {
                ServiceChange::Resource(uri, _) => data.as_ref().is_some_and(|data| data.is_subscribed(uri)),
                ServiceChange::Tools => state.may_notify(ListKind::Tools),
                ServiceChange::Prompts => state.may_notify(ListKind::Prompts),
                ServiceChange::Resources => state.may_notify(ListKind::Resources),
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

    /// Streams the changes of the service.
    pub fn reply(self, changes: impl Stream<Item = ServiceChange> + Send + 'static) -> HttpReply {
        HttpReply::events(sse_stream(self.messages(changes)))
    }
}

/// `subscriptions/listen` of the newest revision: a stream of selected changes.
pub struct ListenRequest {
    pub(super) id: RequestId,
    pub trace: TraceContext,
    filter: SubscriptionFilter,
}

impl ListenRequest {
    pub(super) fn read(request: IncomingRequest) -> Result<Self, (RequestId, RpcError)> {
        let IncomingRequest { id, params, trace, .. } = request;
        #[derive(Default, Deserialize)]
        struct Params {
            #[serde(default)]
            notifications: SubscriptionFilter,
        }
        let invalid = |message: String| RpcError::new(RpcError::INVALID_PARAMS, message);
        let Ok(Params { notifications: filter }) =
            params.as_ref().map_or(Ok(Params::default()), RawJson::parse)
        else {
            let message = "`notifications` must be an object that selects notifications";
            return Err((id, invalid(message.to_owned())));
        };
        if filter.resource_subscriptions.len() > MAX_RESOURCES {
            return Err((id, invalid(format!("at most {MAX_RESOURCES} resources per stream"))));
        }
        Ok(Self { id, trace, filter })
    }

    /// URIs of the resources to subscribe to.
    pub fn uris(&self) -> &[String] {
        &self.filter.resource_subscriptions
    }

    /// Streams an acknowledgement of the accepted filter, then the changes.
    pub fn reply(self, source: ChangeSource) -> HttpReply {
        HttpReply::events(sse_stream(self.messages(source)))
    }

    pub(super) fn messages(self, source: ChangeSource) -> BoxStream<'static, Message> {
        let Self { id, filter, .. } = self;
        let ChangeSource { changes, subscriptions: resources } = source;
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
        let subscribed = filter.resource_subscriptions.iter().filter(|uri| resources.contains_key(*uri));
        let subscribed: Vec<_> = subscribed.cloned().collect();
        if !subscribed.is_empty() {
            accepted["resourceSubscriptions"] = subscribed.into();
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
        Box::pin(futures_util::stream::iter([acknowledged]).chain(rest))
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
