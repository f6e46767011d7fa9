//! Who gets into the catalog, under which name, with which limits: tables of small cases.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use toolgate_types::Text;
use toolgate_types::server::{Remote, Startup, ToolFilter, Transport};

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
        transport: Transport::Http(Remote {
            url: Text::plain("http://localhost/mcp"),
            headers: BTreeMap::new(),
            oauth: None,
            sse_read_timeout: HumanDuration::from_secs(300),
            terminate_on_close: true,
        }),
        startup: Startup::Required,
        mode,
        tools: ToolFilter::default(),
        load_tools: true,
        load_prompts: true,
        prompts: None,
        timeout: HumanDuration::from_secs(10),
        request_timeout: HumanDuration::from_secs(60),
        config: None,
    }
}

fn strict(name: &str) -> ServerSpec {
    server(name, ToolMode::Strict)
}

fn dynamic(name: &str) -> ServerSpec {
    server(name, ToolMode::Dynamic { default_tool_config: limits(10, 30) })
}

fn offer(names: &[&str]) -> Offer {
    let tool = |name: &&str| OfferedTool {
        name: (*name).to_owned(),
        title: None,
        description: String::new(),
        input_schema: Raw::of(&serde_json::json!({})),
        output_schema: None,
        mirrors: vec![],
        definition: Raw::of(&serde_json::json!({})),
        fault: None,
    };
    Offer { tools: names.iter().map(tool).collect(), ..Offer::default() }
}

fn settings(name: &str, limits: ToolLimits) -> ToolSettings {
    ToolSettings { name: name.parse().unwrap(), limits, mode: None }
}

fn own(name: &str) -> ToolDefinition {
    ToolDefinition {
        name: name.parse().unwrap(),
        description: String::new(),
        version: "1.0.0".to_owned(),
        input_schema: serde_json::value::RawValue::from_string("{}".to_owned()).unwrap(),
        output_schema: None,
        script: toolgate_types::tool::Script { script_path: "x.py".into(), entrypoint: "run".to_owned() },
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
    }
}

struct Case {
    own: Vec<ToolDefinition>,
    settings: Vec<ToolSettings>,
    servers: Vec<(ServerSpec, Offer)>,
    on_collision: OnCollision,
    previous: Option<Catalog>,
}

impl Case {
    fn new(servers: Vec<(ServerSpec, Offer)>) -> Self {
        Self { own: vec![], settings: vec![], servers, on_collision: OnCollision::Qualify, previous: None }
    }

    fn build(&self) -> Result<(Catalog, Vec<Event>), Vec<CatalogError>> {
        let servers: Vec<_> = self.servers.iter().map(|(spec, offer)| (spec, offer)).collect();
        Catalog::build(&Parts {
            own: &self.own,
            settings: &self.settings,
            servers: &servers,
            on_collision: self.on_collision,
            previous: self.previous.as_ref(),
        })
    }

    /// The catalog and the log, a line each.
    fn shown(&self) -> String {
        match self.build() {
            Ok((catalog, events)) => {
                let tool = |tool: &Arc<CatalogTool>| {
                    format!(
                        "{} {}{}\n",
                        tool.name,
                        Shown(tool.limits),
                        match &tool.state {
                            ToolState::Ready => String::new(),
                            ToolState::Quarantined(reason) => format!(" quarantined: {reason}"),
                        }
                    )
                };
                let event = |event: &Event| format!("{:?}: {}\n", event.level, event.message);
                catalog.tools().map(tool).chain(events.iter().map(event)).collect()
            }
            Err(errors) => errors.iter().map(|error| format!("refused: {error}\n")).collect(),
        }
    }
}

#[test]
fn strict_takes_configured_tools() {
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
fn strict_refuses_others_at_the_start_in_the_words_of_its_document() {
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
fn strict_quarantines_others_later() {
    let mut case = Case {
        settings: vec![settings("a", limits(1, 1))],
        ..Case::new(vec![(strict("customers"), offer(&["a"]))])
    };
    case.previous = Some(case.build().unwrap().0);
    case.servers[0].1 = offer(&["a", "delete"]);
    let (catalog, events) = case.build().unwrap();
    let tool = catalog.resolve("customers__delete").unwrap();
    assert!(matches!(tool.state, ToolState::Quarantined(_)));
    assert!(catalog.resolve("delete").is_none());
    assert!(events.iter().any(
        |event| event.level == Level::Error && event.message.starts_with("Tool 'delete' from MCP server")
    ));
}

#[test]
fn dynamic_fills_in_defaults_field_by_field() {
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
fn a_tool_of_its_own_mode_takes_no_defaults() {
    let mut one = settings("one", limits(1, 0));
    one.mode = Some(SettingsMode::Strict);
    let case = Case { settings: vec![one], ..Case::new(vec![(dynamic("customers"), offer(&["one"]))]) };
    assert_eq!(case.build().unwrap().0.resolve("one").unwrap().limits, limits(1, 0));
}

#[test]
fn new_and_removed_tools_are_told() {
    let mut case = Case {
        settings: vec![settings("old", limits(1, 1))],
        ..Case::new(vec![(dynamic("customers"), offer(&["old", "stays"]))])
    };
    case.previous = Some(case.build().unwrap().0);
    case.servers[0].1 = offer(&["stays", "new"]);
    insta::assert_snapshot!(case.shown(), @r"
    stays {max_instances: 10, timeout: 30s}
    new {max_instances: 10, timeout: 30s}
    Info: Tool 'stays' from MCP 'customers' not explicitly configured, using default configuration
    Info: New tool 'new' discovered from MCP server 'customers', registering with default configuration
    Warning: Tool 'old' was configured but is no longer available from MCP server 'customers'
    ");
}

#[test]
fn no_tools_is_a_warning() {
    let case = Case::new(vec![(dynamic("customers"), offer(&[]))]);
    insta::assert_snapshot!(case.shown(), @"Warning: MCP server 'customers' at http://localhost/mcp returned no tools");
}

#[test]
fn a_hundred_tools_of_which_five_are_configured() {
    let names: Vec<_> = (0..100).map(|n| format!("tool{n}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let settings = names[..5].iter().map(|name| settings(name, limits(1, 1))).collect();
    let case = Case { settings, ..Case::new(vec![(dynamic("big"), offer(&names))]) };
    let (catalog, events) = case.build().unwrap();
    assert_eq!(catalog.tools().count(), 100);
    assert_eq!(events.iter().filter(|event| event.level == Level::Info).count(), 95);
}

#[test]
fn the_same_name_twice() {
    let servers = || vec![(dynamic("one"), offer(&["send"])), (dynamic("two"), offer(&["send"]))];
    let names = |on_collision| {
        let case = Case { own: vec![own("send")], on_collision, ..Case::new(servers()) };
        match case.build() {
            Ok((catalog, events)) => {
                let warnings = events.iter().filter(|event| event.level == Level::Warning).count();
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
fn names_are_normalised_and_twins_left_out() {
    let case = Case::new(vec![(dynamic("s"), offer(&["my tool/β!", "my-tool---"]))]);
    let (catalog, events) = case.build().unwrap();
    assert_eq!(catalog.tools().map(|tool| tool.name.as_str()).collect::<Vec<_>>(), ["my-tool---"]);
    assert_eq!(catalog.resolve("my-tool---").unwrap().original, "my tool/β!");
    assert_eq!(events.iter().filter(|event| event.level == Level::Warning).count(), 1);
}

#[test]
fn allow_and_deny_lists() {
    let mut spec = dynamic("s");
    spec.tools = ToolFilter { allow: Some(vec!["a".to_owned(), "b".to_owned()]), deny: vec!["b".to_owned()] };
    let case = Case::new(vec![(spec, offer(&["a", "b", "c"]))]);
    assert_eq!(case.build().unwrap().0.tools().map(|tool| tool.name.as_str()).collect::<Vec<_>>(), ["a"]);
}

#[test]
fn a_faulty_definition_spoils_itself_only() {
    let mut bad = offer(&["good", "bad"]);
    bad.tools[1].fault = Some("its description hides the character U+200B from people".to_owned());
    let case = Case::new(vec![(dynamic("s"), bad), (dynamic("t"), offer(&["bad"]))]);
    let (catalog, _) = case.build().unwrap();
    assert_eq!(catalog.resolve("bad").unwrap().server.as_ref().unwrap().as_str(), "t");
    assert!(matches!(catalog.resolve("s__bad").unwrap().state, ToolState::Quarantined(_)));
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
