//! `/v1/events`: one stream of changes, for programs that show the gateway live.
//!
//! One task looks for changes a few times a second while a stream is open, and compares two
//! snapshots: nothing on the path of a call or of a change knows of it, and without a stream it does not run. Changes between
//! two looks are merged. Invariant: a stream shows the events of a kind only to callers with the permission
//! to read the thing that changed, and to its owner.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::unfold;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value as Json, json};
use tokio::sync::{broadcast, watch};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};
use toolgate_audit::ExecutionLog;
use toolgate_audit::figures::CallCounts;
use toolgate_runtime::questions::QuestionKind;
use toolgate_types::CallerId;

use crate::Gateway;
use crate::auth::{Authenticated, HttpError};
use crate::response::Response;
use crate::route::AdmittedRequest;
use crate::routes::{
    APPROVALS_READ, CALLERS_READ, EXECUTIONS_READ, HUMAN_INPUT_READ, POLICY_READ, RUNS_READ, SERVERS_READ,
};
use crate::streams::StreamSlots;

/// Interval between two looks for changes.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Events that a slow stream may lag behind, and that are kept for streams that reconnect.
const MAX_KEPT: usize = 512;
/// Streams of all callers. `serve.max_streams_per_caller` limits those of one.
const MAX_STREAMS: u16 = 256;
/// Kinds of events.
const KINDS: [&str; 9] =
    ["server", "definition", "tool", "question", "run", "caller", "policy", "executions", "log"];

/// Callers that may see an event.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Audience {
    All,
    /// Callers with a permission.
    Permission(&'static str),
    /// Callers with a permission, and the caller that it belongs to.
    OwnOr(&'static str, CallerId),
}

#[derive(Debug)]
enum EventData {
    Json(String),
    /// Numbers of calls, by caller.
    Counts(HashMap<Arc<str>, CallCounts>, usize),
}

#[derive(Debug)]
struct HubEvent {
    number: u64,
    kind: &'static str,
    audience: Audience,
    data: EventData,
}

/// The streams of events, and the task that feeds them.
pub(crate) struct EventHub {
    state: Mutex<HubState>,
    slots: StreamSlots,
}

impl Default for EventHub {
    fn default() -> Self {
        Self { state: Mutex::default(), slots: StreamSlots::new(MAX_STREAMS) }
    }
}

#[derive(Default)]
struct HubState {
    /// Distinguishes the events of this run of the task from those of others.
    epoch: u64,
    /// Empty while no stream is open.
    sender: Option<broadcast::Sender<Arc<HubEvent>>>,
    kept: VecDeque<Arc<HubEvent>>,
    next_number: u64,
    task: JoinSet<()>,
}

impl EventHub {
    /// Adds a stream. Returns its events from now on, the epoch, and the events it missed; `None` if they are not known.
    fn subscribe(&self, gateway: &Arc<Gateway>, last: Option<(u64, u64)>) -> Subscription {
        let mut state = self.state.lock();
        if state.sender.is_none() {
            state.epoch = fastrand::u64(1 << 32..1 << 52);
            state.sender = Some(broadcast::Sender::new(MAX_KEPT));
            state.kept.clear();
            // The one before has ended, or is about to.
            while state.task.try_join_next().is_some() {}
            let (before, epoch) = (Snapshot::take(gateway), state.epoch);
            let gateway = Arc::downgrade(gateway);
            state.task.spawn(async move {
                let mut before = before;
                let mut ticks = interval(LOOK_INTERVAL);
                ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
                loop {
                    ticks.tick().await;
                    let Some(gateway) = gateway.upgrade() else { return };
                    let now = Snapshot::take(&gateway);
                    let events = now.changes_since(&before);
                    before = now;
                    if !gateway.events.publish(epoch, events) {
                        return;
                    }
                }
            });
        }
        let first = state.kept.front().map_or(state.next_number, |event| event.number);
        let missed = last.and_then(|(epoch, number)| {
            let is_known = epoch == state.epoch && (first..=state.next_number).contains(&(number + 1));
            is_known.then(|| state.kept.iter().filter(|event| event.number > number).cloned().collect())
        });
        let events = state.sender.as_ref().map(broadcast::Sender::subscribe).expect("it was set above");
        let number = state.next_number.saturating_sub(1);
        Subscription { epoch: state.epoch, number, events, missed }
    }

    /// Sends events to all streams. Returns false if there is none, and the task must end.
    fn publish(&self, epoch: u64, events: Vec<(&'static str, Audience, EventData)>) -> bool {
        let mut state = self.state.lock();
        if state.epoch != epoch {
            return false;
        }
        let Some(sender) = state.sender.clone() else { return false };
        if sender.receiver_count() == 0 {
            state.sender = None;
            return false;
        }
        for (kind, audience, data) in events {
            let event = Arc::new(HubEvent { number: state.next_number, kind, audience, data });
            state.next_number += 1;
            if state.kept.len() == MAX_KEPT {
                state.kept.pop_front();
            }
            state.kept.push_back(Arc::clone(&event));
            let _ = sender.send(event);
        }
        true
    }
}

struct Subscription {
    epoch: u64,
    /// Number of the last event before the stream.
    number: u64,
    events: broadcast::Receiver<Arc<HubEvent>>,
    missed: Option<Vec<Arc<HubEvent>>>,
}

/// State of the gateway; two of them give the events.
struct Snapshot {
    catalog: u64,
    servers: BTreeMap<String, Json>,
    questions: BTreeMap<String, (QuestionKind, CallerId, Json)>,
    runs: BTreeMap<String, CallerId>,
    callers: watch::Receiver<()>,
    /// Version of the policy, revision of the registry, and whether an edit was rejected.
    policy: (String, String, bool, Vec<String>),
    counts: HashMap<Arc<str>, CallCounts>,
    running: usize,
    writable: bool,
}

impl Snapshot {
    fn take(gateway: &Gateway) -> Self {
        let runtime = &gateway.runtime;
        let server = |status: toolgate_runtime::runtime::ServerStatus| {
            let data = json!({
                "name": status.name, "state": status.state, "reason": status.reason, "heldBack": status.held_back,
                "tools": status.tools, "connections": status.connections });
            (status.name, data)
        };
        let questions = gateway.questions.as_ref().map(|queue| queue.list(None)).unwrap_or_default();
        let question = |question: &toolgate_runtime::questions::QueuedQuestion| {
            let details = &question.details;
            let data = json!({
                "id": details.id, "kind": details.kind, "caller": details.caller, "tool": details.tool });
            (details.id.clone(), (details.kind, details.caller.clone(), data))
        };
        let registry = gateway.registry.as_ref().map(toolgate_store::registry::Registry::state);
        let revision = registry.as_ref().map(|state| state.rev.to_string()).unwrap_or_default();
        let rejected = registry.is_some_and(|state| state.rejection.is_some());
        let pending = (**gateway.pending_restart.load()).clone();
        let figures = runtime.figures();
        figures.collect(Timestamp::now());
        Self {
            catalog: *runtime.changes().borrow(),
            servers: runtime.servers().into_iter().map(server).collect(),
            questions: questions.iter().map(|queued| question(queued)).collect(),
            runs: gateway.runs.active.callers(),
            callers: gateway.authenticator.changes(),
            policy: (runtime.access_rules().policy.version().to_owned(), revision, rejected, pending),
            counts: figures.counts(),
            running: runtime.running_calls().count(),
            writable: runtime.log().is_none_or(ExecutionLog::is_available),
        }
    }

    fn changes_since(&self, before: &Self) -> Vec<(&'static str, Audience, EventData)> {
        let mut events = Vec::new();
        let mut add = |kind, audience, data: Json| {
            events.push((kind, audience, EventData::Json(data.to_string())));
        };
        let to_servers = Audience::Permission(SERVERS_READ);
        for (name, now) in &self.servers {
            let was = before.servers.get(name);
            if was != Some(now) {
                add("server", to_servers.clone(), now.clone());
            }
            let held_back = |server: &Json| server["heldBack"].as_u64().unwrap_or_default();
            if was.map_or(0, held_back) != held_back(now) {
                let data = json!({ "server": name, "heldBack": held_back(now) });
                add("definition", to_servers.clone(), data);
            }
        }
        for name in before.servers.keys().filter(|name| !self.servers.contains_key(*name)) {
            add("server", to_servers.clone(), json!({ "name": name, "state": "removed" }));
        }
        if self.catalog != before.catalog {
            add("tool", Audience::All, json!({ "revision": self.catalog }));
        }
        let mut add_question = |(kind, caller, data): &(QuestionKind, CallerId, Json), state: &str| {
            let permission =
                if *kind == QuestionKind::HumanInput { HUMAN_INPUT_READ } else { APPROVALS_READ };
            let mut data = data.clone();
            data["state"] = state.into();
            add("question", Audience::OwnOr(permission, caller.clone()), data);
        };
        for (id, question) in &before.questions {
            if !self.questions.contains_key(id) {
                add_question(question, "closed");
            }
        }
        for (id, question) in &self.questions {
            if !before.questions.contains_key(id) {
                add_question(question, "open");
            }
        }
        for (state, runs, others) in
            [("ended", &before.runs, &self.runs), ("active", &self.runs, &before.runs)]
        {
            for (run, caller) in runs.iter().filter(|(run, _)| !others.contains_key(*run)) {
                let data = json!({ "run": run, "caller": caller, "state": state });
                add("run", Audience::OwnOr(RUNS_READ, caller.clone()), data);
            }
        }
        if before.callers.has_changed().unwrap_or(false) {
            add("caller", Audience::Permission(CALLERS_READ), json!({}));
        }
        if self.policy != before.policy {
            let data = json!({ "policy": self.policy.0, "rejected": self.policy.2 });
            add("policy", Audience::Permission(POLICY_READ), data);
        }
        if self.writable != before.writable {
            add("log", Audience::Permission(EXECUTIONS_READ), json!({ "writable": self.writable }));
        }
        if self.counts != before.counts || self.running != before.running {
            let counts = EventData::Counts(self.counts.clone(), self.running);
            events.push(("executions", Audience::All, counts));
        }
        events
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EventsQuery {
    kinds: Option<String>,
}

/// Selects the events of a stream.
struct EventFilter {
    caller: CallerId,
    /// Permissions of the caller among those that events need.
    permissions: Vec<&'static str>,
    kinds: Option<Vec<String>>,
}

impl EventFilter {
    fn new(auth: &Authenticated, kinds: Option<&str>) -> Result<Self, HttpError> {
        let needed = [
            SERVERS_READ,
            HUMAN_INPUT_READ,
            APPROVALS_READ,
            RUNS_READ,
            CALLERS_READ,
            POLICY_READ,
            EXECUTIONS_READ,
        ];
        let permissions = needed.into_iter().filter(|permission| auth.require(permission).is_ok()).collect();
        let kinds: Option<Vec<_>> = kinds.map(|kinds| kinds.split(',').map(str::to_owned).collect());
        if let Some(unknown) = kinds.iter().flatten().find(|kind| !KINDS.contains(&kind.as_str())) {
            return Err(HttpError::invalid(format!("unknown kind of events `{unknown}`"))
                .hint(format!("the kinds are {}", KINDS.join(", "))));
        }
        Ok(Self { caller: auth.caller.id.clone(), permissions, kinds })
    }

    /// Renders the data of an event; `None` if it is not for this stream.
    fn data(&self, event: &HubEvent) -> Option<String> {
        if self.kinds.as_ref().is_some_and(|kinds| !kinds.iter().any(|kind| kind == event.kind)) {
            return None;
        }
        let may_see = match &event.audience {
            Audience::All => true,
            Audience::Permission(permission) => self.permissions.contains(permission),
            Audience::OwnOr(permission, owner) => {
                self.permissions.contains(permission) || *owner == self.caller
            }
        };
        match &event.data {
            _ if !may_see => None,
            EventData::Json(data) => Some(data.clone()),
            EventData::Counts(counts, running) => {
                let is_full = self.permissions.contains(&EXECUTIONS_READ);
                let own = counts.iter().filter(|(caller, _)| is_full || ***caller == *self.caller.as_str());
                let mut sum = CallCounts::default();
                own.for_each(|(_, counts)| sum.add(counts));
                // The number of running calls is that of all callers.
                let running = is_full.then_some(running);
                let data = json!({
                    "ended": sum.ended, "errors": sum.errors, "refused": sum.refused, "running": running });
                Some(data.to_string())
            }
        }
    }
}

/// The state of a stream.
struct EventStream {
    subscription: Subscription,
    filter: EventFilter,
    /// Data of the last `executions`: for a caller with few calls, most of them say nothing new.
    last_counts: String,
}

impl EventStream {
    fn render(&mut self, event: &HubEvent, out: &mut String) {
        let Some(data) = self.filter.data(event) else { return };
        if event.kind == "executions" {
            if data == self.last_counts {
                return;
            }
            self.last_counts.clone_from(&data);
        }
        self.write(event.number, event.kind, &data, out);
    }

    fn write(&self, number: u64, kind: &str, data: &str, out: &mut String) {
        out.push_str(&format!("id: {}-{number}\nevent: {kind}\ndata: {data}\n\n", self.subscription.epoch));
    }

    /// Returns the next events, or a keep-alive.
    async fn next(&mut self) -> Option<Bytes> {
        let mut out = String::new();
        while out.is_empty() {
            match timeout(KEEP_ALIVE, self.subscription.events.recv()).await {
                Ok(Ok(event)) => {
                    self.subscription.number = event.number;
                    self.render(&event, &mut out);
                }
                Ok(Err(broadcast::error::RecvError::Lagged(missed))) => {
                    let number = self.subscription.number + missed;
                    self.write(number, "reload", "{}", &mut out);
                }
                Ok(Err(broadcast::error::RecvError::Closed)) => return None,
                Err(_) => out.push_str(":\n\n"),
            }
        }
        Some(out.into())
    }
}

/// Parses the id of an event: epoch and number.
fn event_id(text: &str) -> Option<(u64, u64)> {
    let (epoch, number) = text.trim().split_once('-')?;
    Some((epoch.parse().ok()?, number.parse().ok().filter(|number| *number < u64::MAX)?))
}

/// Streams changes, until the client leaves or the gateway closes.
pub(crate) async fn stream(request: AdmittedRequest) -> Result<Response, HttpError> {
    let EventsQuery { kinds } = request.query()?;
    let AdmittedRequest { gateway, auth, parts, .. } = request;
    let filter = EventFilter::new(&auth, kinds.as_deref())?;
    let permit = gateway.reserve_stream(&gateway.events.slots, &auth.caller.id)?;
    let last_id = parts.headers.get("last-event-id");
    let last = last_id.and_then(|id| event_id(id.to_str().ok()?));
    let subscription = gateway.events.subscribe(&gateway, last);
    let mut stream = EventStream { subscription, filter, last_counts: String::new() };
    let mut first = String::new();
    match (last_id, stream.subscription.missed.take()) {
        (None, _) => stream.write(stream.subscription.number, "open", "{}", &mut first),
        (Some(_), None) => stream.write(stream.subscription.number, "reload", "{}", &mut first),
        (Some(_), Some(missed)) => {
            missed.iter().for_each(|event| stream.render(event, &mut first));
            stream.write(stream.subscription.number, "open", "{}", &mut first);
        }
    }
    let first = futures_util::stream::once(async { Ok::<_, io::Error>(Bytes::from(first)) });
    let rest = unfold((stream, permit), |(mut stream, permit)| async move {
        let event = stream.next().await?;
        Some((Ok(event), (stream, permit)))
    });
    Ok(gateway.event_stream(&auth, first.chain(rest)))
}

#[test]
fn events_are_for_those_that_may_see_them() {
    let event =
        |audience| HubEvent { number: 0, kind: "run", audience, data: EventData::Json("{}".to_owned()) };
    let id = |id: &str| id.parse::<CallerId>().unwrap();
    let filter = |permissions: &[&'static str], kinds: Option<Vec<String>>| EventFilter {
        caller: id("ann"),
        permissions: permissions.to_vec(),
        kinds,
    };
    let (none, runs) = (filter(&[], None), filter(&[RUNS_READ], None));
    let own = event(Audience::OwnOr(RUNS_READ, id("ann")));
    let other = event(Audience::OwnOr(RUNS_READ, id("bob")));
    let servers = event(Audience::Permission(SERVERS_READ));
    assert!(none.data(&own).is_some() && none.data(&other).is_none() && none.data(&servers).is_none());
    assert!(runs.data(&other).is_some() && runs.data(&servers).is_none());
    assert!(none.data(&event(Audience::All)).is_some());
    assert!(filter(&[], Some(vec!["tool".to_owned()])).data(&own).is_none());
    let counts = |ended| CallCounts { ended, errors: 0, refused: 0 };
    let counts = HashMap::from([("ann".into(), counts(2)), ("bob".into(), counts(5))]);
    let event = HubEvent {
        number: 0,
        kind: "executions",
        audience: Audience::All,
        data: EventData::Counts(counts, 3),
    };
    let data = |filter: EventFilter| serde_json::from_str::<Json>(&filter.data(&event).unwrap()).unwrap();
    assert_eq!(data(none), json!({ "ended": 2, "errors": 0, "refused": 0, "running": null }));
    assert_eq!(data(filter(&[EXECUTIONS_READ], None))["ended"], 7);
}

#[test]
fn reads_event_ids() {
    assert_eq!(event_id("7-12"), Some((7, 12)));
    for bad in ["", "7", "x-1", "1-x", "1-18446744073709551615"] {
        assert_eq!(event_id(bad), None, "{bad}");
    }
}
