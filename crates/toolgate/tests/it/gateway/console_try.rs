//! “Try it” of the console in a browser: forms from schemas, with and without scripts, and calls that are watched.

use std::path::Path;

use serde_json::{Value as Json, json};

use super::console::{assert_clean, log_in, url};
use crate::support::browser::{Browser, Tab};
use crate::support::gateway::{Gateway, OWNER, project};
use crate::support::test_server::testkit;

/// A gateway with a tool that has a nested schema, and one that sends progress.
fn gateway() -> Gateway {
    let program = project(&json!({}));
    let schema = json!({ "type": "object", "properties": {
        "title": { "type": "string", "default": "Hello" },
        "note": { "anyOf": [{ "type": "string" }, { "type": "null" }] },
        "size": { "enum": ["small", "large"] },
        "lines": { "type": "array", "items": { "$ref": "#/$defs/Line" } },
        "target": { "oneOf": [{ "$ref": "#/$defs/Mail" }, { "$ref": "#/$defs/File" }] },
    }, "$defs": {
        "Line": { "type": "object", "required": ["text"], "properties": { "text": { "type": "string" }, "count": { "type": "integer" } } },
        "Mail": { "type": "object", "required": ["to"], "properties": { "to": { "type": "string" } } },
        "File": { "type": "object", "required": ["path"], "properties": { "path": { "type": "string" } } },
    } });
    let tools =
        json!({ "tools": [{ "name": "compose", "description": "Composes.", "inputSchema": schema }] });
    program.write("scripted.json", tools.to_string());
    let mut config: Json = serde_json::from_str(&program.read("toolgate.yaml")).expect("JSON");
    let scripted = json!({ "name": "scripted", "command": testkit(), "mode": "dynamic", "default_tool_config": { "max_instances": 4, "timeout": "30s" },
        "args": ["scripted", program.path("scripted.json")] });
    config["toolbox"]["mcps"].as_array_mut().expect("a list").push(scripted);
    program.write("toolgate.yaml", config.to_string());
    Gateway::serve(program)
}

/// The arguments of the last call.
fn last_arguments(gateway: &Gateway) -> Json {
    gateway.executions("limit=1")[0]["begin"]["arguments"].clone()
}

/// Builds nested arguments; `press` presses a button and waits.
fn compose(tab: &mut Tab, press: fn(&mut Tab, &str), choose: fn(&mut Tab, &str, &str)) {
    press(tab, "button[value='add:/lines']");
    press(tab, "button[value='add:/lines']");
    tab.fill("[name='a/lines/0/text']", "gone");
    tab.fill("[name='a/lines/1/text']", "kept");
    tab.fill("[name='a/lines/1/count']", "3");
    press(tab, "button[value='remove:/lines/0']");
    assert_eq!(tab.evaluate("document.querySelector(`[name='a/lines/0/text']`).value"), "kept");
    choose(tab, "[name='v/target']", "1");
    tab.fill("[name='a/target/path']", "<b>here</b>");
    tab.click("[name='z/note']");
    tab.evaluate("document.querySelector(`[name='a/size']`).value = '\"large\"'");
    press(tab, "button.primary[value=call]");
    assert!(tab.text("#outcome").contains("called"), "{}", tab.text("main"));
}

fn expected() -> Json {
    json!({ "title": "Hello", "note": null, "size": "large", "lines": [{ "text": "kept", "count": 3 }],
        "target": { "path": "<b>here</b>" } })
}

#[test]
#[ignore = "needs the browser that `cargo xtask test` installs"]
fn nested_arguments_are_entered_in_a_form() {
    let gateway = gateway();
    let browser = Browser::start();
    let mut tab = log_in(&browser, &gateway, OWNER);
    tab.open(&url(&gateway, "/tools/compose"));
    let choose = |tab: &mut Tab, field: &str, value: &str| {
        tab.mark();
        let change = format!(
            "(() => {{ const field = document.querySelector({}); field.value = {}; \
             field.dispatchEvent(new Event('change', {{ bubbles: true }})); }})()",
            json!(field),
            json!(value)
        );
        tab.evaluate(&change);
        tab.wait_for_content();
    };
    compose(&mut tab, Tab::submit, choose);
    assert_eq!(last_arguments(&gateway), expected());
    assert_eq!(tab.evaluate("document.activeElement.id"), "outcome", "the result has the focus");
    for width in [1280, 390] {
        tab.size(width, 844);
        assert_eq!(tab.accessibility(), Vec::<String>::new(), "{width}");
        let scroll = tab.evaluate("document.documentElement.scrollWidth");
        assert!(scroll.as_u64().is_some_and(|scroll| scroll <= u64::from(width)), "{scroll}");
    }
    super::console::save(&mut tab, "/try", 390, false);
    tab.size(1280, 800);
    super::console::save(&mut tab, "/try", 1280, false);
    // The form and JSON are two views of the same arguments.
    tab.submit("button[value=json]");
    let entered = tab.evaluate("document.querySelector('#arguments').value");
    assert_eq!(serde_json::from_str::<Json>(entered.as_str().expect("text")).expect("JSON"), expected());
    tab.submit("button[value=fields]");
    assert_eq!(tab.evaluate("document.querySelector(`[name='a/lines/0/count']`).value"), "3");
    assert_clean(&tab, "try");
    // The same without scripts.
    tab.scripts(false);
    tab.open(&url(&gateway, "/tools/compose"));
    let choose = |tab: &mut Tab, field: &str, value: &str| {
        tab.evaluate(&format!("document.querySelector({}).value = {}", json!(field), json!(value)));
        tab.follow("button[value=form]");
    };
    compose(&mut tab, Tab::follow, choose);
    assert_eq!(last_arguments(&gateway), expected());
}

/// Fills the arguments of `echo` as JSON.
fn fill_echo(tab: &mut Tab, gateway: &Gateway, arguments: &Json) {
    tab.open(&url(gateway, "/tools/echo"));
    tab.submit("button[value=json]");
    tab.fill("#arguments", &arguments.to_string());
}

fn waiting_for(file: &Path, steps: u64) -> Json {
    json!({ "fault": "until", "steps": steps, "message": file })
}

/// A call shows its progress, and is cancelled by a button; by keys alone, too.
#[test]
#[ignore = "needs the browser that `cargo xtask test` installs"]
fn a_running_call_shows_progress_and_is_cancelled() {
    let gateway = gateway();
    let browser = Browser::start();
    let mut tab = log_in(&browser, &gateway, OWNER);
    let file = gateway.program.path("go");
    fill_echo(&mut tab, &gateway, &waiting_for(&file, 3));
    tab.mark();
    tab.click("button.primary[value=call]");
    tab.wait(
        "!document.querySelector('#progress').hidden && !document.querySelector('#progress button').disabled",
    );
    assert_eq!(tab.evaluate("document.querySelector('#outcome')"), Json::Null);
    tab.click("#progress [data-cancel] button");
    tab.wait_for_content();
    assert!(tab.text("#outcome").contains("cancelled"), "{}", tab.text("#outcome"));
    gateway.wait("the end", |gateway| gateway.executions("state=running").is_empty());
    // By keys: from the field to the button, and the result has the focus.
    fs_err::write(&file, "").expect("the file can be written");
    fill_echo(&mut tab, &gateway, &waiting_for(&file, 1));
    tab.mark();
    tab.key("Tab");
    assert_eq!(tab.evaluate("document.activeElement.textContent"), "Call as owner");
    tab.key("Enter");
    tab.wait_for_content();
    assert!(tab.text("#outcome").contains("there it is"), "{}", tab.text("#outcome"));
    assert!(tab.text("#outcome .waterfall").contains("invoke"), "{}", tab.text("#outcome"));
    assert_eq!(tab.evaluate("document.activeElement.id"), "outcome");
    // A browser that leaves cancels the call.
    fs_err::remove_file(&file).expect("it exists");
    fill_echo(&mut tab, &gateway, &waiting_for(&file, 1));
    tab.click("button.primary[value=call]");
    tab.wait("!document.querySelector('#progress').hidden");
    gateway.wait("the call", |gateway| !gateway.executions("state=running").is_empty());
    tab.open(&url(&gateway, "/tools"));
    gateway.wait("the end of the call", |gateway| gateway.executions("state=running").is_empty());
    assert_clean(&tab, "running calls");
}

#[test]
#[ignore = "needs the browser that `cargo xtask test` installs"]
fn enter_in_a_field_calls_the_tool() {
    let gateway = gateway();
    let browser = Browser::start();
    let mut tab = log_in(&browser, &gateway, OWNER);
    tab.open(&url(&gateway, "/tools/compose"));
    tab.submit("button[value='add:/lines']");
    tab.fill("[name='a/lines/0/text']", "typed");
    tab.mark();
    tab.key("Enter");
    tab.wait_for_content();
    // The first button of the form is not the one that removes the item.
    assert_eq!(last_arguments(&gateway), json!({ "title": "Hello", "lines": [{ "text": "typed" }] }));
    assert_clean(&tab, "enter");
}
