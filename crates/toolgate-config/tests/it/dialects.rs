//! Every supported dialect loads unchanged and has its documented meaning.

use std::time::Duration;

use toolgate_config::{Config, LoadOutcome, load};
use toolgate_types::OnCollision;
use toolgate_types::server::{RemoteTransport, StartupMode, StdioTransport, ToolMode, Transport};
use toolgate_types::{ConfigString, ServerSpec};

use super::{environment, errors, fixtures, loaded, messages, outline};

fn fixture(folder: &str, file: &str, variables: &[(&str, &str)]) -> LoadOutcome {
    load(&fixtures(folder), Some(file.as_ref()), &environment(variables))
}

fn good(loaded: &LoadOutcome) -> &Config {
    loaded.config.as_ref().unwrap_or_else(|| panic!("refused:\n{}", messages(loaded)))
}

fn server<'c>(config: &'c Config, name: &str) -> &'c ServerSpec {
    config.servers.iter().find(|server| server.name.as_str() == name).expect("the server is there")
}

fn stdio<'c>(config: &'c Config, name: &str) -> &'c StdioTransport {
    match &server(config, name).transport {
        Transport::Stdio(stdio) => stdio,
        other => panic!("{other:?}"),
    }
}

fn remote<'c>(config: &'c Config, name: &str) -> &'c RemoteTransport {
    match &server(config, name).transport {
        Transport::Sse(remote) | Transport::Websocket(remote) | Transport::Http(remote) => remote,
        Transport::Stdio(stdio) => panic!("{stdio:?}"),
    }
}

/// Returns the command line of a server.
fn command_line(stdio: &StdioTransport) -> Vec<&str> {
    std::iter::once(&stdio.command).chain(&stdio.args).map(ConfigString::expose).collect()
}

fn variable<'c>(stdio: &'c StdioTransport, name: &str) -> Option<&'c str> {
    stdio.env[name].as_ref().map(ConfigString::expose)
}

/// Converts seconds to a duration, for comparisons.
fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

#[test]
fn myai_with_both_modes() {
    let loaded = fixture("myai", "structure.yaml", &[]);
    let config = good(&loaded);
    assert_eq!(config.limits.on_collision, OnCollision::LastWins);
    assert_eq!(config.limits.max_concurrent.get(), 10);
    assert!(matches!(server(config, "internal-tools").mode, ToolMode::Strict));
    let ToolMode::Dynamic { default_tool_config } = &server(config, "customers").mode else { panic!() };
    assert_eq!(default_tool_config.max_instances.unwrap().get(), 10);
    assert_eq!(default_tool_config.timeout.unwrap().get(), seconds(30));
    assert!(config.servers.iter().all(|server| server.startup == StartupMode::Required));
    assert_eq!(messages(&loaded), "");
    insta::assert_snapshot!(outline(&loaded));
}

#[test]
fn rejects_myai_without_modes() {
    insta::assert_snapshot!(messages(&fixture("myai", "migration-before.yaml", &[])), @"error migration-before.yaml:4:15 missing key `mode` in MCP server `customers` (write `mode: strict`, or `mode: dynamic` with `default_tool_config`)");
}

#[test]
fn myai_after_migration() {
    insta::assert_snapshot!("myai_strict", outline(&fixture("myai", "migration-strict.yaml", &[])));
    insta::assert_snapshot!("myai_dynamic", outline(&fixture("myai", "migration-dynamic.yaml", &[])));
}

#[test]
fn myai_with_tool_lists() {
    let loaded = fixture("myai", "tool-lists.yaml", &[]);
    let config = good(&loaded);
    let allowed = ["get_customer".to_owned(), "create_customer".to_owned()];
    assert_eq!(server(config, "customers").tools.allow.as_deref(), Some(&allowed[..]));
    assert_eq!(server(config, "customers-readonly").tools.deny, ["delete_customer"]);
    assert_eq!(server(config, "customers-readonly").tools.allow, None);
}

#[test]
fn myai_with_mode_per_tool() {
    let loaded = fixture("myai", "tool-mode.yaml", &[]);
    assert_eq!(
        serde_json::to_string(&good(&loaded).tool_settings).unwrap(),
        r#"[{"name":"dangerous_tool","max_instances":1,"mode":"strict"}]"#
    );
}

#[test]
fn minimal_myai() {
    insta::assert_snapshot!("myai_minimal_strict", outline(&fixture("myai", "minimal-strict.yaml", &[])));
    insta::assert_snapshot!("myai_minimal_dynamic", outline(&fixture("myai", "minimal-dynamic.yaml", &[])));
}

#[test]
fn myai_with_trusted_and_external_servers() {
    let loaded = fixture("myai", "mixed.yaml", &[]);
    let get_customer = &good(&loaded).tool_settings[1].limits;
    assert_eq!(get_customer.max_instances.unwrap().get(), 50);
    assert_eq!(get_customer.timeout.unwrap().get(), seconds(60));
    insta::assert_snapshot!(outline(&loaded));
}

#[test]
fn ignores_other_myai_keys_with_a_note() {
    let loaded = fixture("myai", "siblings.yaml", &[]);
    let ToolMode::Dynamic { default_tool_config } = &server(good(&loaded), "records").mode else { panic!() };
    assert_eq!(default_tool_config.timeout.unwrap().get(), seconds(30));
    insta::assert_snapshot!(outline(&loaded));
}

#[test]
fn finds_myai_in_config_yaml() {
    let tree = "myai: {toolbox: {max_concurrent: 3}}";
    let config = loaded(&[("config.yaml", tree)], &[]).config.unwrap();
    assert_eq!(config.limits.max_concurrent.get(), 3);
}

/// Local tools of a `myai` tree are strict: each needs settings, which set its limits.
#[test]
fn myai_takes_local_tools() {
    let mixed = fs_err::read_to_string(super::fixtures("myai").join("mixed.yaml")).unwrap();
    let entry =
        |name: &str| format!(r#"{{ "name": "{name}", "description": "Adds.", "input_schema": {{}} }}"#);
    let load = |names: &[&str]| {
        let tools: Vec<_> = names.iter().map(|name| entry(name)).collect();
        let tools = format!(r#"{{ "tools": [{}] }}"#, tools.join(", "));
        let files =
            [("config.yaml", mixed.as_str()), ("tools/tools.json", &tools), ("tools/sum_numbers.py", "")];
        loaded(&files, &[])
    };
    let loaded = load(&["sum_numbers"]);
    let config = good(&loaded);
    let limits = config.tools[0].limits;
    assert_eq!((limits.max_instances.unwrap().get(), limits.parallel_capable), (20, Some(true)));
    assert!(config.registries.tools.as_ref().is_some_and(|path| path.ends_with("tools/tools.json")));
    let errors = messages(&load(&["sum_numbers", "divide"]));
    assert!(errors.contains("Local tool 'divide' is not configured in the toolbox"), "{errors}");
}

/// A file with a generic name that belongs to another program is not reported.
#[test]
fn ignores_config_yaml_of_other_programs() {
    let files = [("config.yaml", "theme: dark"), ("mcp.json", r#"{"servers": {}}"#)];
    assert_eq!(loaded(&files, &[]).config.unwrap().files, ["mcp.json"]);
    let nothing = errors(&loaded(&[("config.yaml", "theme: dark")], &[]));
    assert!(nothing[0].contains("there is no project in"), "{nothing:?}");
    // A file that cannot be parsed may be ours.
    let broken = errors(&loaded(&[("config.yaml", "myai: [")], &[]));
    assert!(broken[0].starts_with("config.yaml:"), "{broken:?}");
}

#[test]
fn agent_with_every_transport() {
    let variables = [("MY_API_KEY", "key-from-outside"), ("TOKEN", "token-from-outside")];
    let loaded = fixture("agent", "user-stories.yaml", &variables);
    let config = good(&loaded);
    let package = "@modelcontextprotocol/server-filesystem";
    assert_eq!(command_line(stdio(config, "filesystem")), ["npx", "-y", package]);
    assert_eq!(command_line(stdio(config, "memory")), ["npx", "-y", "@modelcontextprotocol/server-memory"]);
    assert_eq!(command_line(stdio(config, "search")), ["uvx", "mcp-server-fetch", "--ignore-robots-txt"]);
    assert_eq!(variable(stdio(config, "issues"), "API_KEY"), Some("key-from-outside"));
    let handed = server(config, "data").config.as_ref().unwrap();
    assert_eq!(handed.expose(), r#"{"allowed_directories":["/workspace/data"]}"#);
    assert_eq!(variable(stdio(config, "calendar"), "CALENDAR_ID"), Some("team"));
    assert_eq!(variable(stdio(config, "calendar"), "CALENDAR_TOKEN"), Some("calendar-secret"));
    assert!(stdio(config, "memory").env.is_empty());
    assert_eq!(server(config, "memory").request_timeout.get(), seconds(60));
    assert_eq!(server(config, "legacy").request_timeout.get(), seconds(120));
    assert!(matches!(server(config, "events").transport, Transport::Sse(_)));
    assert_eq!(remote(config, "events").headers["Authorization"].expose(), "Bearer token-from-outside");
    assert_eq!(server(config, "events").timeout.get(), seconds(5));
    assert_eq!(remote(config, "events").sse_read_timeout.get(), seconds(90));
    assert!(matches!(server(config, "live").transport, Transport::Websocket(_)));
    assert_eq!(remote(config, "live").url.expose(), "wss://mcp.example.com");
    assert!(matches!(server(config, "stream").transport, Transport::Http(_)));
    assert!(remote(config, "stream").terminate_on_close);
    assert!(config.servers.iter().all(|server| server.startup == StartupMode::Lazy));
    assert!(config.servers.iter().all(|server| server.load_tools && server.load_prompts));
    let shown = outline(&loaded);
    assert!(!shown.contains("from-outside") && !shown.contains("calendar-secret"), "{shown}");
    insta::assert_snapshot!(shown);
}

#[test]
fn reports_unset_variable_with_location() {
    insta::assert_snapshot!(messages(&fixture("agent", "user-stories.yaml", &[("TOKEN", "x")])), @"error user-stories.yaml:19:21 environment variable `MY_API_KEY` is not set, and MCP server `issues` needs it (set it in the environment or in `.env`, or write `${MY_API_KEY:-default}`)");
}

#[test]
fn holodeck_agent_with_every_key() {
    let loaded = fixture("agent", "holodeck.yaml", &[("PAPERS_TOKEN", "token-from-outside")]);
    let config = good(&loaded);
    let files = server(config, "files");
    let allowed = ["read_file".to_owned(), "list_directory".to_owned()];
    assert_eq!(files.tools.allow.as_deref(), Some(&allowed[..]));
    // All of `config` is passed to the server, with the variable of its `env_file` expanded.
    assert_eq!(
        files.config.as_ref().unwrap().expose(),
        r#"{"allowed_tools":["read_file","list_directory"],"root":"/workspace/papers"}"#
    );
    assert_eq!(variable(stdio(config, "files"), "PAPERS_LICENCE"), Some("abc-123-def"));
    assert_eq!(stdio(config, "files").cwd, fixtures("agent"));
    assert_eq!(server(config, "papers").tools.allow.as_deref(), Some(&["search".to_owned()][..]));
    let count = &config.tools[0];
    assert_eq!(count.script.script_path, fixtures("agent").join("tools/word_count.py"));
    assert_eq!(count.script.entrypoint, "count");
    assert_eq!(
        count.input_schema.get(),
        r#"{"type":"object","properties":{"text":{"type":"string","description":"The text"},"language":{"type":"string"}},"required":["text"]}"#
    );
    insta::assert_snapshot!(outline(&loaded));
}

/// Relative paths in an `agent.yaml` start at its folder.
#[test]
fn agent_in_subfolder() {
    let agent = "tools: [{type: mcp, name: a, command: ./a}]";
    let folder = super::project(&[("sub/agent.yaml", agent)]);
    let loaded = load(folder.path(), Some("sub/agent.yaml".as_ref()), &environment(&[]));
    assert_eq!(stdio(good(&loaded), "a").cwd, folder.path().join("sub"));
}

#[test]
fn reports_invalid_allowed_tools_once() {
    let agent = "tools: [{type: mcp, name: a, command: a, config: {allowed_tools: ['${NOPE}']}}]";
    assert_eq!(errors(&loaded(&[("agent.yaml", agent)], &[])).len(), 1);
    let agent = "tools: [{type: mcp, name: a, command: a, config: {allowed_tools: read}}]";
    let messages = errors(&loaded(&[("agent.yaml", agent)], &[]));
    assert_eq!(
        messages,
        [
            "agent.yaml:1:66 a string does not fit `tool_allowlist` in MCP server `a` (a list of strings is expected)"
        ]
    );
}

#[test]
fn skill_executor_registries() {
    let loaded = load(&fixtures("skill-executor"), None, &environment(&[("REMOTE_KEY", "remote-secret")]));
    let config = good(&loaded);
    assert_eq!(command_line(stdio(config, "sqlite")), ["python", "-m", "mcp_server_sqlite"]);
    assert_eq!(remote(config, "remote").headers["X-API-Key"].expose(), "remote-secret");
    assert_eq!(config.tools[0].limits.timeout.unwrap().get(), seconds(30));
    assert_eq!(config.tools[1].script.entrypoint, "hello");
    assert_eq!(config.tools[1].script.script_path, fixtures("skill-executor").join("tools/hello_world.py"));
    insta::assert_snapshot!(outline(&loaded));
}

#[test]
fn minimal_contract_tool() {
    let loaded = load(&fixtures("tool-contract"), None, &environment(&[]));
    let card = &good(&loaded).tools[0];
    assert_eq!(card.cache_ttl.unwrap().get(), seconds(3600));
    assert_eq!(card.timeout(toolgate_types::HumanDuration::from_secs(30)).get(), seconds(1));
    insta::assert_snapshot!(outline(&loaded));
}

#[test]
fn vs_code_servers() {
    let variables = [("LEVEL", "verbose"), ("TOOLGATE_INPUT_GITHUB_TOKEN", "typed-token")];
    let loaded = fixture("clients", "vscode-mcp.json", &variables);
    let config = good(&loaded);
    let files = stdio(config, "files");
    let data = fixtures("clients").join("data");
    assert_eq!(files.args[2].expose(), data.to_str().unwrap());
    assert_eq!(files.cwd, data);
    assert_eq!(variable(files, "REGION"), Some("eu"));
    assert_eq!(variable(files, "LEVEL"), Some("verbose"));
    assert_eq!(variable(files, "FILES_LICENCE"), Some("abc-123-def"));
    assert_eq!(variable(files, "HTTP_PROXY"), None);
    assert_eq!(remote(config, "github").headers["Authorization"].expose(), "Bearer typed-token");
    assert_eq!(remote(config, "old").url.expose(), "http://localhost:9000//ann/sse");
    let shown = outline(&loaded);
    assert!(!shown.contains("typed-token"), "{shown}");
    insta::assert_snapshot!(shown);
}

#[test]
fn claude_and_cursor_servers() {
    let desktop =
        fixture("clients", "claude_desktop_config.json", &[("DATABASE_URL", "postgres://u:p@h/db")]);
    let filesystem = stdio(good(&desktop), "filesystem");
    assert_eq!(filesystem.args[2].expose(), "./documents");
    assert_eq!(variable(stdio(good(&desktop), "database"), "DATABASE_URL"), Some("postgres://u:p@h/db"));
    insta::assert_snapshot!("claude_desktop", outline(&desktop));
    let code = fixture("clients", "claude-code.mcp.json", &[("API_KEY", "key-from-outside")]);
    assert_eq!(remote(good(&code), "api").url.expose(), "https://api.example.com/mcp");
    insta::assert_snapshot!("claude_code", outline(&code));
    // A disabled server needs no variables.
    insta::assert_snapshot!("cursor", outline(&fixture("clients", "cursor-mcp.json", &[])));
}

#[test]
fn codex_servers() {
    let variables = [
        ("CONTEXT_TOKEN", "context-token"),
        ("CONTEXT_REGION", "region-eu"),
        ("FIGMA_TOKEN", "figma-token"),
        ("FIGMA_TEAM", "team-one"),
    ];
    let loaded = fixture("clients", "config.toml", &variables);
    let config = good(&loaded);
    let context7 = server(config, "context7");
    assert_eq!(variable(stdio(config, "context7"), "CONTEXT_TOKEN"), Some("context-token"));
    assert_eq!(variable(stdio(config, "context7"), "CONTEXT_REGION"), Some("region-eu"));
    assert_eq!(context7.startup, StartupMode::Required);
    assert_eq!(context7.timeout.get(), seconds(20));
    assert_eq!(context7.request_timeout.get(), Duration::from_millis(45_500));
    let figma = server(config, "figma");
    assert_eq!(remote(config, "figma").headers["Authorization"].expose(), "Bearer figma-token");
    assert_eq!(remote(config, "figma").headers["X-Team"].expose(), "team-one");
    // Missing keys have the defaults of Codex.
    assert_eq!((figma.startup, figma.timeout.get()), (StartupMode::Optional, seconds(30)));
    assert_eq!(figma.request_timeout.get(), seconds(300));
    insta::assert_snapshot!(outline(&loaded));
}

#[test]
fn goose_extensions() {
    let variables = [
        ("FETCH_ROOT", "/fetch-root"),
        ("GOOSE_VERSION", "1.2.3-beta"),
        ("FETCH_KEY", "fetch-key"),
        ("REMOTE_TOKEN", "remote-token"),
    ];
    let loaded = fixture("clients", "goose.yaml", &variables);
    let config = good(&loaded);
    assert_eq!(command_line(stdio(config, "fetch")), ["uvx", "mcp-server-fetch", "--root", "/fetch-root"]);
    assert_eq!(variable(stdio(config, "fetch"), "USER_AGENT"), Some("goose/1.2.3-beta"));
    assert_eq!(variable(stdio(config, "fetch"), "FETCH_KEY"), Some("fetch-key"));
    assert_eq!(server(config, "fetch").request_timeout.get(), seconds(120));
    let remote_server = server(config, "remote");
    // In goose an empty list means all tools.
    assert_eq!(remote_server.tools.allow, None);
    assert_eq!(
        (remote_server.startup, remote_server.request_timeout.get()),
        (StartupMode::Optional, seconds(300))
    );
    insta::assert_snapshot!(outline(&loaded));
}

#[test]
fn reports_servers_that_are_not_a_map() {
    for (name, text) in [
        ("config.toml", "mcp_servers = 5"),
        ("goose.yaml", "extensions: [a]"),
        ("mcp.json", r#"{"servers": []}"#),
        ("agent.yaml", "model: {provider: openai, name: m}\ntools: {a: {}}"),
        ("myai.yaml", "myai: [a]"),
        ("config.toml", "[mcp_servers.a]\ncommand = \"a\"\nenv = \"B\""),
        ("goose.yaml", "extensions: {a: {type: stdio, cmd: a, envs: [B]}}"),
    ] {
        let folder = super::project(&[(name, text)]);
        let messages = errors(&load(folder.path(), Some(name.as_ref()), &environment(&[])));
        assert!(messages.len() == 1 && messages[0].contains("does not fit"), "{name} {text}: {messages:?}");
    }
}

#[test]
fn registry_may_be_another_programs_file() {
    let toml = "[mcp_servers.a]\ncommand = \"a\"\nenv_vars = [\"X\"]\n";
    let files = [("toolgate.yaml", "registries: {mcp: config.toml}"), ("config.toml", toml)];
    let loaded = loaded(&files, &[("X", "from outside")]);
    assert_eq!(variable(stdio(good(&loaded), "a"), "X"), Some("from outside"));
}

#[test]
fn lists_each_file_once() {
    let servers = "[{name: a, command: a, mode: strict, env_file: a.env}, {name: b, command: b, mode: strict, env_file: a.env}]";
    let files = [("toolgate.yaml", &*format!("toolbox: {{mcps: {servers}}}")), ("a.env", "X=1")];
    assert_eq!(loaded(&files, &[]).config.unwrap().files, ["toolgate.yaml", "a.env"]);
}

/// Detects a dialect by file name if that is unambiguous, otherwise by its keys.
#[test]
fn detects_dialect_of_ambiguous_files() {
    let toolgate = loaded(&[("toolgate.yaml", "tools:\n  - name: a\n")], &[]);
    assert_eq!(
        errors(&toolgate),
        ["toolgate.yaml:1:1 unknown key `tools` (it is a key of registries and of toolbox and of agent)"]
    );
    assert_eq!(loaded(&[("toolgate.yaml", "")], &[]).config.unwrap().servers.len(), 0);
    assert_eq!(loaded(&[("toolgate.yaml", "# nothing yet\n")], &[]).config.unwrap().servers.len(), 0);
    let agent = loaded(&[("agent.yaml", "name: a\ntools: [{type: mcp, name: m, command: c}]")], &[]);
    assert_eq!(agent.config.unwrap().servers.len(), 1);
    assert_eq!(loaded(&[("agent.yaml", "name: a")], &[]).config.unwrap().name.as_deref(), Some("a"));
    assert_eq!(
        errors(&loaded(&[("mcp.json", "{}")], &[])),
        ["mcp.json:1:1 missing key `servers` in mcp.json (add `servers`: map of MCP servers)"]
    );
    assert_eq!(
        errors(&loaded(&[("tools.json", "{}")], &[])),
        ["tools.json:1:1 missing key `tools` in tools file (add `tools`: list of tools)"]
    );
    let typo = r#"{"tools": [{"name": "a", "description": "b", "type": "lcoal", "inputs": {}}]}"#;
    assert_eq!(
        errors(&loaded(&[("tools.json", typo)], &[])),
        ["tools.json:1:54 `lcoal` is not a kind of tool in tool `a` (did you mean `local`?)"]
    );
    let aliased = r#"{"tools": [{"name": "a", "description": "b", "type": "local", "parameters": {}}]}"#;
    assert_eq!(loaded(&[("tools/tools.json", aliased)], &[]).config.unwrap().tools.len(), 1);
    let folder = super::project(&[("x.yaml", "theme: dark")]);
    let unknown = load(folder.path(), Some("x.yaml".as_ref()), &environment(&[]));
    assert_eq!(
        errors(&unknown),
        [
            "x.yaml:1:1 unknown kind of configuration file (a project has `toolbox` or `registries` at its top; `toolgate init` writes one)"
        ]
    );
}
