//! The gateway: what MCP clients ask for, answered from the catalog, by the road, or by the server that has it.
//!
//! Tools go by [`Runtime::call`](toolgate_runtime::Runtime::call) and no other way; prompts and resources go to
//! their servers, for callers that were given `{server}:prompts` and `{server}:resources`. Invariant: what a
//! caller may not have is in no list, and asking for it reads as if it were not there.

mod call;
mod changes;
mod lists;
mod others;
mod profile;
mod search;
mod tasks;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use serde_json::{Map, Value, json};
use toolgate_mcp::mirror::Mirror;
use toolgate_mcp::serve::{About, Change, Guest, Outcome, Request, Service, Subscription};
use toolgate_mcp::{Revision, RpcError};
use toolgate_runtime::catalog::Upstream;
use toolgate_runtime::{Called, Runtime};
use toolgate_types::profile::ProfileName;
use toolgate_types::tool::Permission;
use toolgate_types::{Caller, ServerName};

use crate::answer;
use crate::running::Running;
use lists::Lists;
use profile::Views;
use tasks::Tasks;

/// Where hints and metadata stand in `_meta`.
pub(crate) const RESULT: &str = "toolgate/result";
/// The longest text for models that is put together from what servers say.
const LONGEST_INSTRUCTIONS: usize = 16 << 10;

/// A caller at the gateway.
#[derive(Clone)]
pub(crate) struct Visitor {
    pub(crate) caller: Arc<Caller>,
    /// The profile that it names, where it names one.
    profile: Option<ProfileName>,
    /// What tells it from others where its caller alone does not.
    id: Option<Box<str>>,
    /// What a call was refused for, where a token with more scopes would help.
    lacks: Option<Arc<OnceLock<Vec<Permission>>>>,
}

impl Visitor {
    pub(crate) fn new(caller: &Arc<Caller>) -> Self {
        Self { caller: Arc::clone(caller), profile: None, id: None, lacks: None }
    }

    /// One whose token says what it may do.
    pub(crate) fn by_scopes(caller: &Arc<Caller>) -> Self {
        Self { lacks: Some(Arc::default()), ..Self::new(caller) }
    }

    /// The same at the door of a profile. What was begun at one door does not go on at another.
    pub(crate) fn seeing(self, profile: Option<ProfileName>) -> Self {
        let id = profile.as_ref().map(|profile| format!("{}#{profile}", self.caller.id).into());
        Self { profile, id, ..self }
    }

    /// What its call was refused for.
    pub(crate) fn lacks(&self) -> Option<&[Permission]> {
        self.lacks.as_ref()?.get().map(Vec::as_slice)
    }

    /// Remembers what a call was refused for.
    fn lacked(&self, called: &Called) {
        if let Some(lacks) = &self.lacks
            && let Some(missing) = answer::missing(called)
        {
            let _ = lacks.set(missing.to_vec());
        }
    }

    /// Whether it was given what a server has beside its tools.
    fn may_have(&self, server: &str, what: &str) -> bool {
        let permission = format!("{server}:{what}").parse::<Permission>();
        permission.is_ok_and(|permission| self.caller.has(&permission))
    }
}

impl Guest for Visitor {
    fn id(&self) -> &str {
        self.id.as_deref().unwrap_or_else(|| self.caller.id.as_str())
    }
}

/// The gateway.
#[derive(Clone)]
pub(crate) struct Gateway {
    runtime: Arc<Runtime>,
    running: Arc<Running>,
    lists: Arc<Lists>,
    views: Arc<Views>,
    tasks: Arc<Tasks>,
}

impl Gateway {
    pub(crate) fn new(runtime: &Arc<Runtime>, running: &Arc<Running>) -> Self {
        Self {
            runtime: Arc::clone(runtime),
            running: Arc::clone(running),
            lists: Arc::default(),
            views: Arc::default(),
            tasks: Arc::default(),
        }
    }

    async fn answer(self, visitor: Visitor, request: Request) -> Outcome {
        let stopping = |_| RpcError::new(-32603, "it is stopping, and takes no new requests");
        let _entered = self.running.enter_open().await.map_err(stopping)?;
        match &*request.method {
            "tools/list" => self.tools(&visitor, &request),
            "tools/call" => self.call(&visitor, request).await,
            "prompts/list" => self.prompts(&visitor, &request),
            "prompts/get" => self.prompt(&visitor, request).await,
            "resources/list" => self.resources(&visitor, &request),
            "resources/templates/list" => self.templates(&visitor, &request),
            "resources/read" => self.resource(&visitor, request).await,
            "completion/complete" => self.complete(&visitor, request).await,
            "logging/setLevel" => self.set_level(&request).await,
            method if method.starts_with("tasks/") => self.task(&visitor, request).await,
            method => {
                let method: String = method.chars().take(64).collect();
                Err(RpcError::new(RpcError::METHOD_NOT_FOUND, format!("there is no method `{method}`")))
            }
        }
    }
}

impl Service for Gateway {
    type Guest = Visitor;

    fn about(&self, visitor: &Visitor, revision: Revision) -> About {
        let peers = self.runtime.peers();
        let (mut extensions, mut tasks) = (Map::new(), None);
        let mut completions = false;
        for (_, peer) in &peers {
            let own: Value = peer.capabilities.parse().unwrap_or_default();
            completions |= own.get("completions").is_some();
            // Tasks of the two eras do not mix: each is offered to clients of its own.
            if peer.revision.has_handshake() {
                tasks = tasks.or_else(|| own.get("tasks").cloned());
            } else if let Some(Value::Object(offered)) = own.get("extensions") {
                extensions.extend(offered.clone());
            }
        }
        let mut capabilities = json!({
            "tools": { "listChanged": true },
            "prompts": { "listChanged": true },
            "resources": { "subscribe": true, "listChanged": true },
            "logging": {},
        });
        if completions {
            capabilities["completions"] = json!({});
        }
        if let Some(mut tasks) = tasks.filter(|_| revision == Revision::V2025_11_25) {
            // Which tasks there are we know ourselves.
            tasks["list"] = json!({});
            capabilities["tasks"] = tasks;
        }
        if !extensions.is_empty() && !revision.has_handshake() {
            capabilities["extensions"] = extensions.into();
        }
        About {
            name: "toolgate".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            capabilities,
            instructions: self.instructions(visitor),
        }
    }

    fn request(&self, visitor: &Visitor, request: Request) -> BoxFuture<'static, Outcome> {
        Box::pin(self.clone().answer(visitor.clone(), request))
    }

    fn changes(&self, visitor: &Visitor) -> BoxStream<'static, Change> {
        changes::stream(self.clone(), visitor.clone())
    }

    fn subscribe(&self, visitor: &Visitor, uri: &str) -> BoxFuture<'static, Result<Subscription, RpcError>> {
        let (gateway, visitor, uri) = (self.clone(), visitor.clone(), uri.to_owned());
        Box::pin(async move {
            let servers = gateway.holders(&visitor, &uri);
            let server = servers.first().ok_or_else(|| others::no_resource(&uri, Revision::NEWEST))?;
            let followed = gateway.runtime.follow(server.as_str(), &uri).await;
            followed
                .map(|followed| Box::new(followed) as Subscription)
                .map_err(|error| RpcError::new(-32603, error.to_string()))
        })
    }

    fn mirrors(&self, visitor: &Visitor, tool: &str) -> Vec<Mirror> {
        if let Ok(Some(_)) = self.profile(visitor) {
            // Whoever is shown another schema knows of no headers.
            let shown = self.meant(visitor, tool).filter(|(_, shown)| shown.has_its_own_schema);
            return match shown.as_ref().map(|(_, shown)| &shown.tool.upstream) {
                Some(Upstream::Server(address)) => address.mirrors.clone(),
                _ => Vec::new(),
            };
        }
        let catalog = self.runtime.catalog();
        match catalog.resolve(tool).map(|tool| &tool.upstream) {
            Some(Upstream::Server(address)) => address.mirrors.clone(),
            _ => Vec::new(),
        }
    }
}

impl Gateway {
    /// What servers want models to know, each under its name.
    fn instructions(&self, visitor: &Visitor) -> Option<String> {
        let mut text = String::new();
        let profile = self.profile(visitor).ok().flatten();
        if let Some((profile, about)) = profile.as_ref().and_then(|it| Some((it, it.description.as_ref()?))) {
            text.push_str(&format!("# {}\n{}", profile.name, about.trim()));
        }
        let view = profile.as_ref().map(|profile| self.view(profile));
        for (server, offer) in self.runtime.offers() {
            if view.as_ref().is_some_and(|view| !view.has_of(&server, &offer)) {
                continue;
            }
            let Some(own) = offer.instructions.filter(|own| !own.trim().is_empty()) else { continue };
            if !self.sees(visitor, &server) || text.len() + own.len() > LONGEST_INSTRUCTIONS {
                continue;
            }
            text.push_str(&format!(
                "{}# {server}\n{}",
                if text.is_empty() { "" } else { "\n\n" },
                own.trim()
            ));
        }
        (!text.is_empty()).then_some(text)
    }

    /// Whether a caller was given anything of a server.
    fn sees(&self, visitor: &Visitor, server: &str) -> bool {
        let permission = format!("{server}:resources").parse::<Permission>();
        permission.is_ok_and(|permission| visitor.caller.knows_of(&permission))
    }
}

/// How long lists may be kept by who asked for them: they hear of changes, if they listen.
const LISTS_HOLD: Duration = Duration::from_secs(60);

fn name_of(server: &ServerName) -> &str {
    server.as_str()
}
