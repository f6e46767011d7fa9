//! Large and deep content in the console, and many tabs at the same time.

use serde_json::json;

use super::console::{assert_clean, log_in, url};
use crate::support::browser::Browser;
use crate::support::gateway::{Gateway, OWNER, project};
use crate::support::test_server::testkit;

/// Tabs with a live page.
const TABS: usize = 10;
const TOOLS: usize = 10_000;

#[test]
#[ignore = "needs the browser that `cargo xtask test` installs"]
fn large_and_deep_results_are_shown() {
    let gateway = Gateway::start(
        &json!({ "server": { "default_tool_config": { "max_instances": 4, "timeout": "50s" } } }),
    );
    let file = gateway.program.path("go");
    fs_err::write(&file, "").expect("the file can be written");
    let browser = Browser::start();
    let mut tab = log_in(&browser, &gateway, OWNER);
    let hostile = "<script>alert(1)</script>\u{202E}".repeat(40_000);
    let deep = format!("{}{}", "[".repeat(1_000), "]".repeat(1_000));
    for (what, arguments) in [
        ("5 MB", json!({ "fault": "until", "message": file, "bytes": 5_000_000 })),
        ("1,000 levels", json!({ "fault": "raw", "message": deep })),
        ("1,000 levels of text", json!({ "message": deep })),
        ("a megabyte of markup", json!({ "message": hostile })),
    ] {
        tab.open(&url(&gateway, "/tools/echo"));
        tab.submit("button[value=json]");
        // As a person pastes it.
        tab.fill("#arguments", &arguments.to_string());
        tab.submit("button.primary[value=call]");
        let shown = tab.text("#outcome");
        assert!(!shown.is_empty(), "{what}: {}", tab.text("main"));
        assert_eq!(tab.evaluate("document.querySelectorAll('#outcome script').length"), 0, "{what}");
        let size = tab.evaluate("document.documentElement.outerHTML.length");
        assert!(size.as_u64().is_some_and(|size| size < 8_000_000), "{what}: {size}");
        // The record of the call is a page, too.
        let id = gateway.executions("limit=1")[0]["begin"]["call"].as_str().expect("an id").to_owned();
        tab.open(&url(&gateway, &format!("/executions/{id}")));
        assert!(tab.text("h1").contains("echo"), "{what}");
        tab.open(&url(&gateway, "/executions"));
        assert!(tab.text("#executions").contains("echo"), "{what}");
    }
    assert_clean(&tab, "large results");
}

#[test]
#[ignore = "needs the browser that `cargo xtask test` installs"]
fn ten_thousand_tools_are_listed_and_found() {
    let program = project(&json!({}));
    let tool = |at: usize| {
        json!({ "name": format!("tool-{at}"), "description": format!("Does <i>thing</i> {at}."),
            "inputSchema": { "type": "object", "properties": { "text": { "type": "string" } } } })
    };
    let tools = json!({ "tools": (0..TOOLS).map(tool).collect::<Vec<_>>() });
    program.write("scripted.json", tools.to_string());
    let server = json!({ "name": "many", "command": testkit(), "mode": "dynamic", "default_tool_config": { "max_instances": 4, "timeout": "30s" },
        "args": ["scripted", program.path("scripted.json")] });
    let mut config: serde_json::Value = serde_json::from_str(&program.read("toolgate.yaml")).expect("JSON");
    config["toolbox"]["mcps"].as_array_mut().expect("a list").push(server);
    program.write("toolgate.yaml", config.to_string());
    let gateway = Gateway::serve(program);
    gateway.wait("the tools", |gateway| {
        gateway.get("/v1/servers/many", OWNER).json()["tools"].as_u64() == Some(TOOLS as u64)
    });
    let browser = Browser::start();
    let mut tab = log_in(&browser, &gateway, OWNER);
    tab.open(&url(&gateway, "/tools?server=many"));
    assert_eq!(tab.evaluate("document.querySelectorAll('main tbody tr').length"), 100);
    assert_eq!(tab.evaluate("document.querySelectorAll('main i').length"), 0);
    tab.follow("main a.button[href*='cursor=']");
    assert_eq!(tab.evaluate("document.querySelectorAll('main tbody tr').length"), 100);
    tab.open(&url(&gateway, "/tools?q=tool-7654"));
    assert!(tab.text("main tbody").contains("tool-7654"), "{}", tab.text("main"));
    tab.open(&url(&gateway, "/policy"));
    assert_eq!(tab.text("h1"), "Policy");
    tab.open(&url(&gateway, "/search?q=tool-7654"));
    assert!(tab.text("main").contains("tool-7654"), "{}", tab.text("main"));
    assert_clean(&tab, "many tools");
}

/// Over HTTP/1.1, a browser opens six connections to a host. With a stream for each tab, the seventh would not load.
#[test]
#[ignore = "needs the browser that `cargo xtask test` installs"]
fn ten_live_tabs_share_one_stream() {
    let gateway = Gateway::start(&json!({}));
    let browser = Browser::start();
    let mut first = log_in(&browser, &gateway, OWNER);
    first.open(&url(&gateway, "/executions"));
    let mut tabs: Vec<_> = (1..TABS).map(|_| browser.tab()).collect();
    for tab in &mut tabs {
        tab.open(&url(&gateway, "/executions"));
        assert_eq!(tab.text("h1"), "Executions");
    }
    first.wait(&format!(
        "navigator.locks.query().then((locks) => locks.held.length === 1 && locks.pending.length === {})",
        TABS - 1
    ));
    let called = gateway.call(OWNER, "echo", &json!({ "message": "seen in every tab" }));
    assert_eq!(called.status, 200, "{called:?}");
    for tab in std::iter::once(&mut first).chain(&mut tabs) {
        // A hidden tab fetches when it is shown again.
        tab.call("Page.bringToFront", json!({}));
        tab.wait("document.querySelector('#executions').innerText.includes('seen in every tab')");
        assert_clean(tab, "ten tabs");
    }
    // The tab with the stream closes, and another one takes over.
    first.open("about:blank");
    tabs[0].wait("navigator.locks.query().then((locks) => locks.held.length === 1)");
    assert_eq!(gateway.call(OWNER, "echo", &json!({ "message": "taken over" })).status, 200);
    tabs[0].call("Page.bringToFront", json!({}));
    tabs[0].wait("document.querySelector('#executions').innerText.includes('taken over')");
}
