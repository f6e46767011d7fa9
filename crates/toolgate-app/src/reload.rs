//! Takes over a changed configuration while everything runs.
//!
//! The registry checks the whole project and puts a valid state to use; this is the part of it that is no entry of the
//! registry: callers, groups, policy, authentication, profiles and limits. Invariant: a configuration is taken over as a
//! whole or not at all; sections that need a restart keep their old values, and are named.

use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use serde_json::{Value as Json, json};
use toolgate_audit::LogEvent;
use toolgate_config::Config;
use toolgate_policy::Policy;
use toolgate_runtime::Runtime;
use toolgate_runtime::runtime::AccessRules;
use toolgate_server::{Gateway, check_issuers};
use toolgate_store::callers::CallerStore;
use toolgate_store::registry::RegistryProblem;
use toolgate_store::store::Revision;
use toolgate_types::KeyHash;

use crate::callers::{self, GatewayCallers};
use crate::event::{AppEvent, EventHandler};
use crate::project::{ProjectFiles, StateFolder};

/// Sections that are read at startup only, as paths in the configuration, with their names in the file.
const RESTART_SECTIONS: [(&str, &str); 14] = [
    ("/cluster", "cluster"),
    ("/serve/listen", "serve.listen"),
    ("/serve/tls", "serve.tls"),
    ("/serve/max_body", "serve.max_body"),
    ("/limits/max_concurrent", "toolbox.max_concurrent"),
    ("/limits/max_output", "toolbox.max_output"),
    ("/audit", "audit"),
    ("/telemetry", "telemetry"),
    ("/results", "results"),
    ("/agent", "agent"),
    ("/human_input", "human_input"),
    ("/web_search", "web_search"),
    ("/code_execution", "code_execution"),
    ("/credentials", "credentials"),
];

/// The configuration in use, and the parts that use it.
pub(crate) struct ReloadTarget {
    files: ProjectFiles,
    /// The gateway over HTTP, once it exists. Pipes have one caller, and no authentication.
    gateway: OnceLock<Weak<Gateway>>,
    state: Mutex<ReloadState>,
}

#[derive(Default)]
struct ReloadState {
    /// The settings that the process started with: the first that were put to use. A front end may have changed some of
    /// the loaded ones; that is no edit.
    started: Option<Json>,
    /// The settings in use.
    active: Json,
    needs_restart: Vec<String>,
}

impl ReloadTarget {
    pub(crate) fn new(files: ProjectFiles) -> Self {
        Self { files, gateway: OnceLock::new(), state: Mutex::default() }
    }

    /// Sets the gateway that follows the configuration.
    pub(crate) fn set_gateway(&self, gateway: &Arc<Gateway>) {
        let _ = self.gateway.set(Arc::downgrade(gateway));
    }

    /// Announces the revision of the registry in use to the other replicas of a cluster.
    pub(crate) fn announce_registry(&self, revision: Revision) {
        if let Some(cluster) = &self.files.cluster {
            cluster.announce_registry(revision.to_string());
        }
    }

    /// Puts a valid configuration to use.
    pub(crate) fn apply(&self, config: &Config, runtime: &Runtime, events: &EventHandler) {
        // Its secrets are not part of the settings.
        runtime.set_egress(&config.egress);
        let now = settings(config);
        let mut state = self.state.lock();
        if state.active == now {
            return;
        }
        let gateway = self.gateway.get().and_then(Weak::upgrade);
        let mut access = None;
        if let Some(gateway) = &gateway {
            let replaced = GatewayCallers::directory(config, &self.files)
                .map_err(|error| error.with_cause())
                .and_then(|callers| {
                    access.clone_from(&callers.access);
                    gateway.replace(&config.serve, callers).map_err(|error| error.to_string())
                });
            if let Err(error) = replaced {
                // The check found nothing wrong, so a file changed since. The next edit is read again.
                tracing::error!("the changed configuration is not in use: {error}");
                return;
            }
        }
        // For the calls of all other front ends: requests have the rules that were replaced with their callers.
        runtime.set_access_rules(access.unwrap_or_else(|| Arc::new(self.files.access_rules(config))));
        runtime.set_limits(config.limits.clone());
        if let Some(cluster) = &self.files.cluster {
            cluster.announce_config(config);
        }
        let Some(started) = &state.started else {
            (state.started, state.active) = (Some(now.clone()), now);
            return;
        };
        let needs_restart = restart_sections(started, &now);
        if let Some(log) = runtime.log() {
            let policy = config.policy.as_ref().map_or("permissions", |policy| &policy.version);
            let config = serde_json::to_vec(config).unwrap_or_default();
            // Not awaited: the records of calls are written after it, in order.
            drop(log.record_event(&LogEvent::Reloaded { policy, config: &config }));
        }
        state.active = now;
        if needs_restart != state.needs_restart {
            state.needs_restart = needs_restart;
            events(AppEvent::RestartNeeded(&state.needs_restart));
            if let Some(gateway) = &gateway {
                gateway.set_pending_restart(state.needs_restart.clone());
            }
        }
    }
}

/// Returns the callers and the policy of a configuration, with the stored callers of its project.
pub fn access_rules(config: &Config) -> AccessRules {
    let store = StateFolder::of(&config.project).caller_store();
    rules_with(config, &*store)
}

fn rules_with(config: &Config, store: &dyn CallerStore) -> AccessRules {
    let policy = Policy::new(config.policy.as_ref().map(|policy| policy.rules.clone()));
    let callers = callers::known_callers(config.callers.clone(), &config.groups, store);
    AccessRules { callers, policy }
}

impl ProjectFiles {
    /// Returns the callers and the policy of a configuration, with the stored callers of its project or cluster.
    pub(crate) fn access_rules(&self, config: &Config) -> AccessRules {
        rules_with(config, &*self.caller_store())
    }

    /// Checks the parts of a configuration that only a gateway uses.
    pub(crate) fn check_gateway_parts(&self, config: &Config) -> Result<(), RegistryProblem> {
        let problem =
            |message: String, hint: String| RegistryProblem { message, place: None, hint: Some(hint) };
        GatewayCallers::directory(config, self).map_err(|error| problem(error.with_cause(), error.hint()))?;
        check_issuers(&config.serve).map_err(|error| problem(error.to_string(), error.hint().to_owned()))
    }
}

/// Returns everything of a configuration that is no entry of the registry, to compare it. Keys are in it as hashes.
pub(crate) fn settings(config: &Config) -> Json {
    let logins = config.serve.jwt.iter().filter_map(|issuer| issuer.login.as_ref());
    let login_secrets: Vec<_> =
        logins.map(|login| login.client_secret.as_ref().map(|secret| KeyHash::of(secret.expose()))).collect();
    let mut settings = json!({
        "serve": config.serve,
        "limits": config.limits,
        "groups": config.groups,
        "login_secrets": login_secrets,
        "callers": config.callers,
        "caller_descriptions": config.caller_descriptions,
        "caller_keys": config.caller_keys,
        "caller_certificates": config.caller_certificates,
        "policy": config.policy,
        "audit": config.audit,
        "credentials": config.credential_key,
        "telemetry": config.telemetry,
        "results": config.results,
        "agent": config.agent,
        "cluster": config.cluster,
    });
    if let (Json::Object(settings), Ok(Json::Object(builtins))) =
        (&mut settings, serde_json::to_value(&config.builtins))
    {
        settings.extend(builtins);
    }
    settings
}

/// Returns the sections that differ and are read at startup only.
fn restart_sections(started: &Json, now: &Json) -> Vec<String> {
    let differs = |path: &str| started.pointer(path) != now.pointer(path);
    let sections = RESTART_SECTIONS.iter().filter(|(path, _)| differs(path));
    sections.map(|(_, name)| (*name).to_owned()).collect()
}

#[test]
fn names_the_sections_that_need_a_restart() {
    let config = |listen: &str, timeout: &str| serde_json::json!({ "serve": { "listen": listen }, "limits": { "default_timeout": timeout } });
    assert_eq!(restart_sections(&config("a", "1s"), &config("a", "2s")), [""; 0]);
    assert_eq!(restart_sections(&config("a", "1s"), &config("b", "1s")), ["serve.listen"]);
    assert_eq!(restart_sections(&serde_json::json!({}), &config("b", "1s")), ["serve.listen"]);
}
