//! Table tests for selection, names and limits of tools.

use std::collections::{BTreeMap, HashSet};
use std::num::NonZeroU32;

use serde_json::{Value, json};
use toolgate_types::server::{
    ConnectionPolicy, RemoteTransport, StartupMode, ToolFilter, ToolMode, Transport, UpstreamTls,
};
use toolgate_types::tool::{RiskLevel, SettingsMode};
use toolgate_types::{ConfigString, HumanDuration};
use toolgate_upstream::offer::{OfferedTool, ToolAnnotations};

use super::build::LimitsDisplay;
use super::*;

fn limits(max_instances: u32, seconds: u64) -> ToolLimits {
    ToolLimits {
        max_instances: NonZeroU32::new(max_instances),
        timeout: (seconds > 0).then(|| HumanDuration::from_secs(seconds)),
        parallel_capable: None,
    }
}

fn server(name: &str, mode: ToolMode) -> ServerSpec {
    ServerSpec {
        name: name.parse().unwrap(),
        description: None,
        transport: Transport::Http(RemoteTransport {
            url: ConfigString::plain("http://localhost/mcp"),
            headers: BTreeMap::new(),
            oauth: None,
            tls: UpstreamTls::default(),
            allow_networks: None,
            sse_read_timeout: HumanDuration::from_secs(300),
            terminate_on_close: true,
            may_be_sse: false,
        }),
        startup: StartupMode::Required,
        mode,
        tools: ToolFilter::default(),
        trusted: false,
        approved: true,
        strict_output: false,
        load_tools: true,
        load_prompts: true,
        prompts: None,
        timeout: HumanDuration::from_secs(10),
        request_timeout: HumanDuration::from_secs(60),
        connections: ConnectionPolicy::default(),
        config: None,
        auth: toolgate_types::server::AuthPolicy::default(),
    }
}

fn strict(name: &str) -> ServerSpec {
    server(name, ToolMode::Strict)
}

fn dynamic(name: &str) -> ServerSpec {
    server(name, ToolMode::Dynamic { default_tool_config: limits(10, 30) })
}

fn tool(name: &str, definition: Value) -> OfferedTool {
    let text = |key: &str| definition[key].as_str().unwrap_or_default();
    OfferedTool {
        name: name.to_owned(),
        title: None,
        description: text("description").to_owned(),
        input_schema: RawJson::from_value(&json!({})),
        output_schema: None,
        annotations: serde_json::from_value(definition["annotations"].clone()).unwrap_or_default(),
        mirrors: vec![],
        // Good enough to distinguish definitions.
        hash: definition.to_string().into(),
        definition: RawJson::from_value(&definition),
        fault: None,
        is_malformed: false,
        notes: vec![],
        suspicion: None,
    }
}

fn offer(names: &[&str]) -> ServerOffer {
    let tool = |name: &&str| tool(name, json!({ "name": name, "inputSchema": {} }));
    ServerOffer {
        has_listed_tools: true,
        tools: names.iter().map(tool).collect(),
        version: "1.2".to_owned(),
        ..ServerOffer::default()
    }
}

fn offering(tools: Vec<OfferedTool>) -> ServerOffer {
    ServerOffer { tools: tools.into(), has_listed_tools: true, ..ServerOffer::default() }
}

fn settings(name: &str, limits: ToolLimits) -> ToolSettings {
    ToolSettings { limits, ..ToolSettings::new(name.parse().unwrap()) }
}

pub(crate) fn own(name: &str) -> Arc<ToolDefinition> {
    Arc::new(ToolDefinition {
        name: name.parse().unwrap(),
        description: String::new(),
        contract: toolgate_types::tool::ContractLevel::Standard,
        version: "1.0.0".to_owned(),
        input_schema: serde_json::value::RawValue::from_string("{}".to_owned()).unwrap(),
        output_schema: None,
        script: toolgate_types::tool::ScriptSpec::new("x.py"),
        limits: ToolLimits::default(),
        permissions: vec![],
        category: None,
        response_time: None,
        cache_ttl: None,
        idempotent: false,
        examples: vec![],
        tags: vec![],
        rate_limit: None,
        deprecated: None,
        follow_ups: Vec::new(),
    })
}

struct Case {
    own: Vec<Arc<ToolDefinition>>,
    settings: Vec<ToolSettings>,
    servers: Vec<(ServerSpec, ServerOffer)>,
    absent: Vec<ServerSpec>,
    pins: PinSet,
    on_collision: OnCollision,
    previous: Option<Catalog>,
}

impl Case {
    fn new(servers: Vec<(ServerSpec, ServerOffer)>) -> Self {
        Self {
            own: vec![],
            settings: vec![],
            servers,
            absent: vec![],
            pins: PinSet::default(),
            on_collision: OnCollision::Qualify,
            previous: None,
        }
    }

    fn built(&self) -> Result<CatalogBuild, Vec<CatalogError>> {
        let absent = self.absent.iter().map(|spec| (spec, None));
        let servers: Vec<_> =
            absent.chain(self.servers.iter().map(|(spec, offer)| (spec, Some(offer)))).collect();
        Catalog::build(&CatalogInputs {
            apis: &[],
            builtins: &[],
            own: &self.own,
            settings: &self.settings,
            servers: &servers,
            pins: &self.pins,
            holds_new: false,
            on_collision: self.on_collision,
            today: "2026-06-30",
            previous: self.previous.as_ref(),
        })
    }

    fn build(&self) -> Result<(Catalog, Vec<CatalogEvent>), Vec<CatalogError>> {
        self.built().map(|built| (built.catalog, built.events))
    }

    /// The case after a startup: the offered tools are pinned.
    fn started(mut self) -> Self {
        let CatalogBuild { catalog, pins, .. } = self.built().unwrap();
        self.pins.add(pins);
        self.previous = Some(catalog);
        self
    }

    /// Names of all tools, with the reasons for quarantines.
    fn names(&self) -> String {
        let name = |tool: &Arc<CatalogTool>| match &tool.state {
            ToolState::Ready => tool.name.clone(),
            ToolState::Quarantined { cause: why, reason } => format!("{}: {why:?}, {reason}", tool.name),
            ToolState::Removed { reason } => format!("{}: {reason}", tool.name),
        };
        self.build().unwrap().0.tools().map(name).collect::<Vec<_>>().join("\n")
    }

    /// Tools and log messages, one per line.
    fn shown(&self) -> String {
        match self.build() {
            Ok((catalog, events)) => {
                let tool = |tool: &Arc<CatalogTool>| {
                    format!(
                        "{} {}{}\n",
                        tool.name,
                        LimitsDisplay(tool.limits),
                        match &tool.state {
                            ToolState::Ready => String::new(),
                            ToolState::Quarantined { reason, .. } => format!(" quarantined: {reason}"),
                            ToolState::Removed { reason } => format!(" removed: {reason}"),
                        }
                    )
                };
                let event = |event: &CatalogEvent| format!("{:?}: {}\n", event.level, event.message);
                catalog.tools().map(tool).chain(events.iter().map(event)).collect()
            }
            Err(errors) => errors.iter().map(|error| format!("refused: {error}\n")).collect(),
        }
    }
}

#[test]
fn strict_accepts_configured_tools() {
    let case = Case {
        settings: vec![settings("get_customer", limits(20, 60))],
        ..Case::new(vec![(strict("customers"), offer(&["get_customer"]))])
    };
    insta::assert_snapshot!(case.shown(), @r"
    get_customer {max_instances: 20, timeout: 1m}
    Debug: Tool 'get_customer' registered with explicit configuration: {max_instances: 20, timeout: 1m}
    ");
}

#[test]
fn strict_rejects_other_tools_at_startup() {
    let case = Case {
        settings: vec![settings("a", limits(1, 1)), settings("b", limits(1, 1))],
        ..Case::new(vec![(strict("customers"), offer(&["a", "delete"]))])
    };
    insta::assert_snapshot!(case.shown(), @r"
    refused: Tool 'delete' from MCP server 'customers' is not configured in the toolbox.

    MCP Server: customers
    Mode: strict
    Missing Tool: delete

    Configured tools: [a, b]

    To resolve:
    1. Add the tool to myai.toolbox.tools in your configuration, OR
    2. Change the MCP server mode to 'dynamic' and provide default_tool_config
    ");
}

#[test]
fn strict_quarantines_other_tools_at_run_time() {
    let mut case = Case {
        settings: vec![settings("a", limits(1, 1))],
        ..Case::new(vec![(strict("customers"), offer(&["a"]))])
    };
    case.previous = Some(case.build().unwrap().0);
    case.servers[0].1 = offer(&["a", "delete"]);
    let (catalog, events) = case.build().unwrap();
    let tool = catalog.resolve("customers__delete").unwrap();
    assert!(matches!(tool.state, ToolState::Quarantined { .. }));
    assert!(std::ptr::eq(catalog.resolve("delete").unwrap(), tool), "callers get the reason");
    assert!(events.iter().any(|event| event.level == EventLevel::Error
        && event.message.starts_with("Tool 'delete' from MCP server")));
}

#[test]
fn dynamic_merges_defaults_per_field() {
    let all = settings("all", limits(20, 60));
    let some = settings("some", limits(20, 0));
    let case = Case {
        settings: vec![all, some],
        ..Case::new(vec![(dynamic("customers"), offer(&["all", "some", "none"]))])
    };
    insta::assert_snapshot!(case.shown(), @r"
    all {max_instances: 20, timeout: 1m}
    some {max_instances: 20, timeout: 30s}
    none {max_instances: 10, timeout: 30s}
    Debug: Tool 'all' configuration merged: explicit={max_instances: 20, timeout: 1m}, default={max_instances: 10, timeout: 30s}, final={max_instances: 20, timeout: 1m}
    Debug: Tool 'some' configuration merged: explicit={max_instances: 20, timeout: -}, default={max_instances: 10, timeout: 30s}, final={max_instances: 20, timeout: 30s}
    Info: Tool 'none' from MCP 'customers' not explicitly configured, using default configuration
    ");
}

#[test]
fn strict_settings_take_no_defaults() {
    let mut one = settings("one", limits(1, 0));
    one.mode = Some(SettingsMode::Strict);
    let case = Case { settings: vec![one], ..Case::new(vec![(dynamic("customers"), offer(&["one"]))]) };
    assert_eq!(case.build().unwrap().0.resolve("one").unwrap().limits, limits(1, 0));
}

#[test]
fn logs_new_and_removed_tools() {
    let mut case = Case {
        settings: vec![settings("old", limits(1, 1))],
        ..Case::new(vec![(dynamic("customers"), offer(&["old", "stays"]))])
    };
    case.previous = Some(case.build().unwrap().0);
    case.servers[0].1 = offer(&["stays", "new"]);
    insta::assert_snapshot!(case.shown(), @r"
    stays {max_instances: 10, timeout: 30s}
    new {max_instances: 10, timeout: 30s}
    Info: New tool 'new' discovered from MCP server 'customers', registering with default configuration
    Warning: Tool 'old' was configured but is no longer available from MCP server 'customers'
    ");
}

/// Each change is logged once, not again by every later build.
#[test]
fn later_builds_log_nothing_new() {
    let mut case = Case {
        settings: vec![settings("merged", limits(1, 1))],
        ..Case::new(vec![
            (dynamic("customers"), offer(&["merged", "default", "a b", "a/b"])),
            (dynamic("empty"), offer(&[])),
            (dynamic("other"), offer(&["default"])),
        ])
    };
    let news = |case: &mut Case| {
        let CatalogBuild { catalog, events, pins, .. } = case.built().unwrap();
        case.pins.add(pins);
        let before = case.previous.replace(catalog).unwrap_or_default();
        let is_new = |event: &&CatalogEvent| !before.has_reported(event);
        events.iter().filter(is_new).map(|event| event.message.clone()).collect::<Vec<_>>()
    };
    assert_eq!(news(&mut case).len(), 8);
    assert_eq!(news(&mut case), [""; 0]);
    case.servers[2].1 = offer(&["default", "new"]);
    assert_eq!(
        news(&mut case),
        ["New tool 'new' discovered from MCP server 'other', registering with default configuration"]
    );
    assert_eq!(news(&mut case), [""; 0]);
    case.servers[1].1 = offer(&["late"]);
    assert_eq!(news(&mut case).len(), 1);
    case.servers[1].1 = offer(&[]);
    assert_eq!(news(&mut case), ["MCP server 'empty' at http://localhost/mcp returned no tools"]);
    assert_eq!(news(&mut case), [""; 0]);
}

/// A tool past its last day is not listed. It keeps its name, so that its callers do not reach another tool.
#[test]
fn removed_tools_are_not_listed() {
    let deprecated = |date: &str| {
        let mut tool = ToolDefinition::clone(&own("old"));
        tool.deprecated = Some(Deprecation {
            since: "2.0.0".to_owned(),
            replacement: "new".parse().unwrap(),
            removal_date: date.to_owned(),
            announced: None,
        });
        Case { own: vec![Arc::new(tool)], ..Case::new(vec![(dynamic("s"), offer(&["old"]))]) }
    };
    let (last_day, over) = (deprecated("2026-06-30"), deprecated("2026-06-29"));
    assert_eq!(last_day.names(), "old\ns__old");
    assert_eq!(over.names(), "old: it was removed after 2026-06-29\ns__old");
    let (catalog, _) = over.build().unwrap();
    assert!(!String::from_utf8_lossy(catalog.listing()).contains(r#""old""#));
    assert!(catalog.resolve("old").unwrap().server.is_none());
    assert_eq!(serde_json::to_value(catalog.resolve("old").unwrap().as_ref()).unwrap()["state"], "removed");
    let (catalog, _) = last_day.build().unwrap();
    assert!(catalog.has_expired("2026-07-01") && !catalog.has_expired("2026-06-30"));
}

/// In both modes, a configured tool that is missing gives a warning and is not registered.
#[test]
fn warns_about_missing_configured_tools() {
    let warnings = |case: &Case| {
        let (catalog, events) = case.build().unwrap();
        assert!(catalog.resolve("gone").is_none());
        let warnings = events.iter().filter(|event| event.level == EventLevel::Warning);
        warnings.map(|event| event.message.as_str()).collect::<Vec<_>>().join("\n")
    };
    let no_longer = |server: &str| {
        format!("Tool 'gone' was configured but is no longer available from MCP server '{server}'")
    };
    let known = || vec![settings("a", limits(1, 1)), settings("gone", limits(1, 1))];
    for spec in [strict("s"), dynamic("s")] {
        // Removed at run time, removed between two runs, and never offered.
        let before = Case { settings: known(), ..Case::new(vec![(spec, offer(&["a", "gone"]))]) };
        let mut while_running = before.started();
        while_running.servers[0].1 = offer(&["a"]);
        assert_eq!(warnings(&while_running), no_longer("s"));
        let since_the_last_start = Case { previous: None, ..while_running };
        assert_eq!(warnings(&since_the_last_start), no_longer("s"));
        let never = Case { pins: PinSet::default(), ..since_the_last_start };
        assert_eq!(warnings(&never), no_longer("s"));
        // With two servers, the warning names one only if it had the tool before.
        let mut of_two = never;
        of_two.servers.push((dynamic("t"), offer(&["b"])));
        assert_eq!(warnings(&of_two), "Tool 'gone' was configured but is available from no MCP server");
        // An unavailable server may have the tool, and so may the project.
        of_two.absent.push(dynamic("away"));
        assert_eq!(warnings(&of_two), "");
    }
    let case = Case {
        own: vec![own("mine")],
        settings: vec![settings("mine", limits(1, 1))],
        ..Case::new(vec![(dynamic("s"), offer(&["a"]))])
    };
    assert_eq!(warnings(&case), "");
}

#[test]
fn warns_about_a_server_without_tools() {
    let case = Case::new(vec![(dynamic("customers"), offer(&[]))]);
    insta::assert_snapshot!(case.shown(), @"Warning: MCP server 'customers' at http://localhost/mcp returned no tools");
}

#[test]
fn dynamic_accepts_unconfigured_tools() {
    let names: Vec<_> = (0..100).map(|n| format!("tool{n}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let settings = names[..5].iter().map(|name| settings(name, limits(1, 1))).collect();
    let case = Case { settings, ..Case::new(vec![(dynamic("big"), offer(&names))]) };
    let (catalog, events) = case.build().unwrap();
    assert_eq!(catalog.tools().count(), 100);
    assert_eq!(events.iter().filter(|event| event.level == EventLevel::Info).count(), 95);
}

#[test]
fn resolves_name_collisions() {
    let servers = || vec![(dynamic("one"), offer(&["send"])), (dynamic("two"), offer(&["send"]))];
    let names = |on_collision| {
        let case = Case { own: vec![own("send")], on_collision, ..Case::new(servers()) };
        match case.build() {
            Ok((catalog, events)) => {
                let warnings = events.iter().filter(|event| event.level == EventLevel::Warning).count();
                let names: Vec<_> = catalog.tools().map(|tool| tool.name.clone()).collect();
                assert_eq!(catalog.resolve("two__send").unwrap().server.as_ref().unwrap().as_str(), "two");
                format!("{} ({warnings} warnings)", names.join(" "))
            }
            Err(errors) => errors[0].to_string(),
        }
    };
    assert_eq!(names(OnCollision::Qualify), "send one__send two__send (2 warnings)");
    assert_eq!(names(OnCollision::LastWins), "own__send one__send send (2 warnings)");
    assert_eq!(names(OnCollision::Error), "two tools are called `send`: your own tools and MCP 'one'");
}

#[test]
fn names_that_normalize_alike_are_all_listed() {
    let case = Case::new(vec![(dynamic("s"), offer(&["my tool/β!", "my-tool---"]))]);
    let (catalog, events) = case.build().unwrap();
    let names: Vec<_> = catalog.tools().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["my-tool----c7e9", "my-tool---"]);
    assert_eq!(catalog.resolve("my-tool----c7e9").unwrap().original, "my tool/β!");
    assert_eq!(catalog.resolve("s__my-tool---").unwrap().original, "my-tool---");
    assert_eq!(
        catalog.resolve("s__my-tool----c7e9").unwrap().permissions[0].to_string(),
        "s:my-tool----c7e9"
    );
    assert_eq!(events.iter().filter(|event| event.level == EventLevel::Warning).count(), 1);
}

#[test]
fn applies_allow_and_deny_lists() {
    let mut spec = dynamic("s");
    spec.tools = ToolFilter { allow: Some(vec!["a".to_owned(), "b".to_owned()]), deny: vec!["b".to_owned()] };
    let case = Case::new(vec![(spec, offer(&["a", "b", "c"]))]);
    assert_eq!(case.build().unwrap().0.tools().map(|tool| tool.name.as_str()).collect::<Vec<_>>(), ["a"]);
}

#[test]
fn quarantines_only_the_faulty_definition() {
    let mut bad = tool("bad", json!({}));
    bad.fault = Some("its description contains the invisible character U+200B".to_owned());
    let bad = offering(vec![tool("good", json!({})), bad]);
    let case = Case::new(vec![(dynamic("s"), bad), (dynamic("t"), offer(&["bad"]))]);
    let (catalog, _) = case.build().unwrap();
    assert_eq!(catalog.resolve("bad").unwrap().server.as_ref().unwrap().as_str(), "t");
    assert!(matches!(catalog.resolve("s__bad").unwrap().state, ToolState::Quarantined { .. }));
    assert_eq!(catalog.resolve("good").unwrap().state, ToolState::Ready);
}

#[test]
fn switching_from_strict_to_dynamic() {
    let mut case = Case {
        settings: vec![settings("a", limits(1, 1))],
        ..Case::new(vec![(strict("s"), offer(&["a", "b"]))])
    };
    assert!(case.build().is_err());
    case.servers[0].0 = dynamic("s");
    assert_eq!(case.build().unwrap().0.tools().count(), 2);
}

#[test]
fn missing_annotations_mean_the_worst_case() {
    let says = |annotations: Value| tool("t", json!({ "annotations": annotations })).annotations;
    assert_eq!(
        says(json!({ "readOnlyHint": true })),
        ToolAnnotations { read_only_hint: Some(true), ..ToolAnnotations::default() }
    );
    let contract = |trusted, annotations: Value| {
        let spec = ServerSpec { trusted, ..dynamic("s") };
        let mut offer = offering(vec![tool("t", json!({ "annotations": annotations }))]);
        offer.version = "1.2".to_owned();
        let catalog = Case::new(vec![(spec, offer)]).build().unwrap().0;
        let ToolContract { version, risk, idempotent, cacheable } =
            catalog.resolve("t").unwrap().contract.clone();
        assert_eq!((version.as_str(), cacheable), ("1.2", false));
        (risk, idempotent)
    };
    let (reads, adds) =
        (json!({ "readOnlyHint": true }), json!({ "destructiveHint": false, "idempotentHint": true }));
    assert_eq!(contract(false, reads.clone()), (RiskLevel::High, false), "anyone can claim anything");
    assert_eq!(contract(false, json!(null)), (RiskLevel::High, false));
    assert_eq!(contract(true, json!(null)), (RiskLevel::High, false));
    assert_eq!(contract(true, reads), (RiskLevel::Low, true));
    assert_eq!(contract(true, adds), (RiskLevel::Medium, true));
}

/// A claim of an untrusted server decides the durability of its records, but neither risk nor retries.
#[test]
fn read_only_claims_count_for_records_only() {
    let reads = json!({ "readOnlyHint": true });
    let check = |annotations: &Value, change: fn(&mut ToolSettings), expected: bool| {
        let mut settings = settings("t", ToolLimits::default());
        change(&mut settings);
        let offer = offering(vec![tool("t", json!({ "annotations": annotations }))]);
        let case = Case { settings: vec![settings], ..Case::new(vec![(dynamic("s"), offer)]) };
        let catalog = case.build().unwrap().0;
        let tool = catalog.resolve("t").unwrap();
        assert_eq!(tool.declared_read_only, expected, "{annotations}");
        assert!(!tool.contract.idempotent && tool.contract.risk == RiskLevel::High, "{annotations}");
    };
    check(&reads, |_| {}, true);
    check(&json!({ "readOnlyHint": false }), |_| {}, false);
    check(&json!({ "idempotentHint": true }), |_| {}, false);
    check(&reads, |settings| settings.idempotent = Some(false), false);
    check(&reads, |settings| settings.category = Some(Category::Mutation), false);
}

#[test]
fn quarantines_changed_definitions_until_approved() {
    let v1 = json!({ "description": "Adds", "inputSchema": { "properties": {} } });
    let v2 = json!({ "description": "Adds", "inputSchema": { "required": ["all"] } });
    let held = "sum: its definition changed (breaking): its argument `all` is required now; run `toolgate servers approve s` to review and approve it";
    for server in [dynamic("s"), strict("s")] {
        let mut case = Case {
            settings: vec![settings("sum", limits(1, 1))],
            ..Case::new(vec![(server, offering(vec![tool("sum", v1.clone())]))])
        };
        case = case.started();
        case.servers[0].1 = offering(vec![tool("sum", v2.clone())]);
        assert_eq!(case.names(), format!("s__{}", held.replace("sum: ", "sum: Changed, ")));
        let (catalog, _) = case.build().unwrap();
        assert!(
            matches!(catalog.resolve("sum").unwrap().state, ToolState::Quarantined { .. }),
            "callers get the reason"
        );
        // A second discovery does not approve it.
        let built = case.built().unwrap();
        assert_eq!(built.pins, []);
        let changed = tool("sum", v2.clone());
        case.pins.approve(&"s".parse().unwrap(), [("sum".to_owned(), (&changed).into())], &HashSet::new());
        assert_eq!(case.names(), "sum");
    }
}

#[test]
fn compatible_changes_pass_unless_strict() {
    let v1 = json!({ "inputSchema": { "properties": {} } });
    let v2 = json!({ "inputSchema": { "properties": { "more": {} } } });
    let after = |server| {
        let mut case = Case {
            settings: vec![settings("sum", limits(1, 1))],
            ..Case::new(vec![(server, offering(vec![tool("sum", v1.clone())]))])
        };
        case = case.started();
        case.servers[0].1 = offering(vec![tool("sum", v2.clone())]);
        (case.names(), case.built().unwrap().pins.len())
    };
    assert_eq!(after(dynamic("s")), ("sum".to_owned(), 1));
    let (names, pins) = after(strict("s"));
    assert!(names.starts_with("s__sum: Changed, its definition changed (compatible)"), "{names}");
    assert_eq!(pins, 0);
}

#[test]
fn suspicious_and_unapproved_tools_need_approval() {
    let mut suspicious = tool("sum", json!({}));
    suspicious.suspicion = Some("wants something hidden from the user");
    let case = Case::new(vec![(dynamic("s"), offering(vec![suspicious]))]);
    assert!(
        case.names()
            .starts_with("s__sum: NotApproved, it wants something hidden from the user; run `toolgate"),
        "{}",
        case.names()
    );
    let spec = ServerSpec { approved: false, ..dynamic("s") };
    let mut case = Case::new(vec![(spec, offer(&["sum"]))]);
    assert!(case.names().starts_with("s__sum: NotApproved, it is not approved"), "{}", case.names());
    let pin = case.servers[0].1.tools[0].hash.clone();
    let pin = crate::pins::Pin { hash: pin, definition: crate::pins::PinnedDefinition::new(&json!({})) };
    case.pins.approve(&"s".parse().unwrap(), [("sum".to_owned(), pin)], &HashSet::new());
    assert_eq!(case.names(), "sum");
}

#[test]
fn names_keep_their_owner_at_run_time() {
    let both = || vec![(dynamic("one"), offer(&["send"])), (dynamic("two"), offer(&["send"]))];
    for on_collision in [OnCollision::Qualify, OnCollision::LastWins, OnCollision::Error] {
        // The first server connects late: the second owns the name and keeps it.
        let mut case = Case { on_collision, ..Case::new(vec![both().remove(1)]) }.started();
        case.servers = both();
        assert_eq!(case.names(), "one__send\nsend", "{on_collision:?}");
        // The owner is gone, and no tool inherits the name.
        let mut case = Case::new(both()).started();
        case.servers[0].1 = offer(&[]);
        assert_eq!(case.names(), "two__send");
    }
}

#[test]
fn unavailable_servers_keep_their_names() {
    let case =
        Case::new(vec![(dynamic("one"), offer(&["send"])), (dynamic("two"), offer(&["send"]))]).started();
    let case = Case {
        absent: vec![dynamic("one")],
        pins: case.pins,
        ..Case::new(vec![(dynamic("two"), offer(&["send"]))])
    };
    assert_eq!(case.names(), "two__send");
    let (_, events) = case.build().unwrap();
    assert!(
        events
            .iter()
            .any(|event| event.message.contains("the name is reserved for MCP 'one', which is unavailable"))
    );
}

/// Names that begin with `{server}__` belong to that server, available or not.
#[test]
fn a_server_alone_has_names_with_its_prefix() {
    let evil =
        || (dynamic("evil"), offer(&["mail__send", "maiI__send", "MAIL__send", "mailer__send", "x__y"]));
    let expected = "evil__mail__send\nevil__maiI__send\nevil__MAIL__send\nmailer__send\nx__y";
    let mail = || (dynamic("mail"), offer(&["send"]));
    for on_collision in [OnCollision::Qualify, OnCollision::LastWins, OnCollision::Error] {
        let case = Case { on_collision, ..Case::new(vec![evil(), mail()]) };
        assert_eq!(case.names(), format!("{expected}\nsend"), "{on_collision:?}");
        let catalog = case.build().unwrap().0;
        let owner =
            |name: &str| catalog.resolve(name).and_then(|tool| tool.server.as_ref()).map(ServerName::as_str);
        assert_eq!((owner("mail__send"), owner("evil__mail__send")), (Some("mail"), Some("evil")));
    }
    let case = Case { absent: vec![dynamic("mail")], ..Case::new(vec![evil()]) };
    assert_eq!(case.names(), expected, "the server is unavailable");
    assert!(case.build().unwrap().0.resolve("mail__send").is_none());
    let case = Case { own: vec![own("mail__send")], ..Case::new(vec![mail()]) };
    assert_eq!(case.names(), "own__mail__send\nsend", "own tools as well");
    let message = "Tool 'mail__send' of your own tools is listed as 'own__mail__send': names with this prefix belong to 'mail'";
    assert!(case.build().unwrap().1.iter().any(|event| event.message == message));
    // A quarantined tool does not answer under such a name either.
    let mut faulty = tool("mail__send", json!({}));
    faulty.fault = Some("broken".to_owned());
    let case =
        Case { absent: vec![dynamic("mail")], ..Case::new(vec![(dynamic("evil"), offering(vec![faulty]))]) };
    assert!(case.build().unwrap().0.resolve("mail__send").is_none());
    // The server is removed at run time: the name goes to no other tool until a restart.
    let mut case = Case::new(vec![evil(), mail()]).started();
    case.servers.pop();
    assert!(case.names().starts_with("evil__mail__send\n"), "{}", case.names());
}

#[test]
fn look_alike_names_collide() {
    let case = Case {
        own: vec![own("send_email")],
        ..Case::new(vec![(dynamic("evil"), offer(&["s\u{0435}nd_email", "send_emaiI", "other"]))])
    };
    assert_eq!(case.names(), "send_email\nevil__s-nd_email\nevil__send_emaiI\nother");
    let (_, events) = case.build().unwrap();
    assert!(events.iter().any(|event| event.message == "Tool 'send_emaiI' of MCP 'evil' is listed as 'evil__send_emaiI': it looks like 'send_email' of your own tools"));
    // Two names that are equal after normalization collide as well.
    let case = Case::new(vec![(dynamic("a"), offer(&["my tool"])), (dynamic("b"), offer(&["my-tool"]))]);
    assert_eq!(case.names(), "my-tool\nb__my-tool");
    // A single server may have look-alike names.
    let case = Case::new(vec![(dynamic("a"), offer(&["step_1", "step_l"]))]);
    assert_eq!(case.names(), "step_1\nstep_l");
}

#[test]
fn listing_keeps_definitions_under_caller_facing_names() {
    let definition =
        json!({ "title": "S", "name": "send", "x-vendor": { "b": 1, "a": 1.0 }, "inputSchema": {} });
    let case = Case {
        own: vec![own("send")],
        ..Case::new(vec![(dynamic("one"), offering(vec![tool("send", definition)]))])
    };
    let (catalog, _) = case.build().unwrap();
    let listing = std::str::from_utf8(catalog.listing()).unwrap();
    assert_eq!(
        listing,
        r#"{"tools":[{"name":"send","description":"","inputSchema":{}},{"name":"one__send","title":"S","x-vendor":{"b":1,"a":1.0},"inputSchema":{}}]}"#
    );
    assert!(std::ptr::eq(catalog.listing(), catalog.listing()), "written once");
}

/// Compiled parts are reused as long as the tool stays the same.
#[test]
fn reuses_compiled_schemas_across_catalogs() {
    let mut case = Case::new(vec![]);
    case.own = vec![own("same"), own("other")];
    let first = case.build().unwrap().0;
    let at = |catalog: &Catalog, name: &str| std::ptr::from_ref(catalog.resolve(name).unwrap().compiled());
    let (same, other) = (at(&first, "same"), at(&first, "other"));
    case.own[1] = Arc::new(ToolDefinition { tags: vec!["new".to_owned()], ..(*own("other")).clone() });
    case.previous = Some(first);
    let second = case.build().unwrap().0;
    assert_eq!(at(&second, "same"), same);
    assert_ne!(at(&second, "other"), other);
}
