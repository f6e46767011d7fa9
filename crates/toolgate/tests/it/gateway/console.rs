//! The web console in a browser: every page, its actions, its colours, its keys, and hostile content.
//!
//! The browser and axe-core are those that `cargo xtask test` installs. With `TOOLGATE_PICTURES` set to a folder, the
//! tests write pictures of all pages there.

use std::path::PathBuf;
use std::thread;

use serde_json::{Value as Json, json};

use crate::support::browser::{Browser, Tab};
use crate::support::gateway::{Gateway, OWNER, project, wait_until};
use crate::support::test_server::testkit;

/// All pages that need no id.
const PAGES: [&str; 15] = [
    "/",
    "/servers",
    "/servers/s",
    "/servers/new",
    "/tools",
    "/tools?q=say+a+message+back",
    "/tools/echo",
    "/tools/new",
    "/executions",
    "/inbox",
    "/runs",
    "/policy?caller=ann&tool=echo",
    "/callers",
    "/callers/ann",
    "/connect",
];

/// A gateway with a good server, a hostile one and one that is down; calls of `ann` to `echo` need an approval.
pub(super) fn gateway() -> Gateway {
    let server = |name: &str, mode: &str| {
        json!({ "name": name, "command": testkit(), "args": [mode], "mode": "dynamic",
            "default_tool_config": { "max_instances": 8, "timeout": "30s" } })
    };
    let servers = json!([
        server("s", "faulty"),
        server("hostile", "poisoned"),
        server("escapes", "escapes"),
        server("down", "broken")
    ]);
    let program = project(&json!({
        "mcps": servers,
        "human_input": {},
        "registries": { "tools": "tools.json", "mcp": "mcp.json" },
        "callers": [
            { "id": "ann", "permissions": ["s:*", "tools:*"], "api_key": "key-of-ann" , "description": "Assistant of Ann" },
            { "id": "bob", "permissions": ["approvals:*", "human_input:*"], "api_key": "key-of-bob" },
            { "id": "admin", "permissions": ["*:*", "servers:exec", "policy:write"], "api_key": "key-of-admin" },
            { "id": "low", "permissions": [], "api_key": "key-of-low" },
        ],
    }));
    program.write("tools.json", "{\"tools\": []}\n");
    program.write("mcp.json", "{\"servers\": {}}\n");
    program.write(
        "policy.cedar",
        r#"@id("ask-before-echo") @ask("Let Ann say this?") forbid(principal == Caller::"ann", action == Action::"call", resource == Tool::"echo");"#,
    );
    let gateway = Gateway::serve(program);
    for message in ["<script>alert(1)</script>", "two\u{202E}evil", "three"] {
        let called = gateway.call(OWNER, "echo", &json!({ "message": message }));
        assert_eq!(called.status, 200, "{called:?}");
    }
    gateway
}

pub(super) fn url(gateway: &Gateway, path: &str) -> String {
    format!("http://127.0.0.1:{}{path}", gateway.port)
}

/// Opens a tab and logs in with a key.
pub(super) fn log_in(browser: &Browser, gateway: &Gateway, key: &str) -> Tab {
    let mut tab = browser.tab();
    tab.open(&url(gateway, "/login"));
    tab.fill("#key", key);
    tab.key_to_page("Enter");
    assert_eq!(tab.path(), "/");
    tab
}

/// A call of `ann` that waits for its approval, with its status in the end.
pub(super) fn waiting_call<'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    gateway: &'scope Gateway,
    message: &'static str,
) -> thread::ScopedJoinHandle<'scope, u16> {
    let call = scope.spawn(move || gateway.call("key-of-ann", "echo", &json!({ "message": message })).status);
    wait_until("the approval", || {
        let open = gateway.get("/v1/approvals", OWNER).json();
        open["approvals"]
            .as_array()
            .is_some_and(|open| open.iter().any(|one| one.to_string().contains(message)))
    });
    call
}

/// Nothing in the console of the browser, and no request to another host.
pub(super) fn assert_clean(tab: &Tab, page: &str) {
    assert!(tab.problems.is_empty(), "{page}: {:#?}", tab.problems);
    let foreign: Vec<_> = tab.hosts.iter().filter(|host| *host != "127.0.0.1").collect();
    assert!(foreign.is_empty(), "{page}: {foreign:?}");
}

fn pictures() -> Option<PathBuf> {
    std::env::var_os("TOOLGATE_PICTURES").map(PathBuf::from)
}

/// Every page, light and dark, wide and narrow: readable, accessible, without errors and without scrolling sideways.
#[test]
#[ignore = "needs the browser that `cargo xtask test` installs"]
fn pages_are_accessible_and_clean() {
    let gateway = gateway();
    let browser = Browser::start();
    let mut tab = log_in(&browser, &gateway, OWNER);
    thread::scope(|scope| {
        let call = waiting_call(scope, &gateway, "please");
        let newest = gateway.executions("limit=1")[0]["begin"]["call"].as_str().expect("an id").to_owned();
        let pages = PAGES.into_iter().map(str::to_owned).chain([format!("/executions/{newest}")]);
        for page in pages {
            for dark in [false, true] {
                tab.dark(dark);
                tab.size(1280, 800);
                tab.open(&url(&gateway, &page));
                assert!(!tab.text("h1").is_empty(), "{page}");
                assert_eq!(tab.accessibility(), Vec::<String>::new(), "{page}, dark: {dark}");
                save(&mut tab, &page, 1280, dark);
                tab.size(390, 844);
                assert_eq!(tab.accessibility(), Vec::<String>::new(), "{page}, narrow, dark: {dark}");
                let width = tab.evaluate("document.documentElement.scrollWidth");
                assert!(width.as_u64().is_some_and(|width| width <= 390), "{page} is {width} pixels wide");
                save(&mut tab, &page, 390, dark);
            }
            assert_clean(&tab, &page);
        }
        tab.size(1280, 800);
        tab.open(&url(&gateway, "/inbox"));
        tab.follow("button[data-key=r]");
        assert_eq!(call.join().expect("it ends"), 403, "refused");
    });
}

pub(super) fn save(tab: &mut Tab, page: &str, width: u32, dark: bool) {
    let Some(folder) = pictures() else { return };
    let name: String =
        page.chars().map(|one| if one.is_ascii_alphanumeric() { one } else { '-' }).take(24).collect();
    tab.picture(&folder.join(format!("page{name}-{width}-{}.png", if dark { "dark" } else { "light" })));
}

/// One exact call is approved by a key, and refused by a click; the answer is recorded with the person.
#[test]
#[ignore = "needs the browser that `cargo xtask test` installs"]
fn calls_are_approved_in_the_inbox() {
    let gateway = gateway();
    let browser = Browser::start();
    let mut tab = log_in(&browser, &gateway, "key-of-bob");
    thread::scope(|scope| {
        let call = waiting_call(scope, &gateway, "first");
        tab.open(&url(&gateway, "/inbox"));
        assert!(
            tab.text(".question").contains("\"message\": \"first\"")
                || tab.text(".question").contains("\"message\":\"first\""),
            "{}",
            tab.text(".question")
        );
        assert!(tab.text(".question").contains("Let Ann say this?"));
        tab.key_to_page("a");
        assert_eq!(tab.text(".notice.ok"), "The answer was given.");
        assert_eq!(call.join().expect("it ends"), 200);
        let call = waiting_call(scope, &gateway, "second");
        tab.open(&url(&gateway, "/inbox"));
        // Two people answer one question: the second is told. Without scripts, the page does not notice the first answer.
        let mut other = browser.other_person();
        other.open(&url(&gateway, "/login"));
        other.fill("#key", OWNER);
        other.key_to_page("Enter");
        other.scripts(false);
        other.open(&url(&gateway, "/inbox"));
        tab.follow("button[data-key=r]");
        assert_eq!(call.join().expect("it ends"), 403);
        other.follow("button[data-key=a]");
        assert!(other.text(".notice.bad").contains("there is no open question"), "{}", other.text("main"));
        assert_clean(&tab, "inbox");
    });
    let recorded = gateway.executions("tool=echo&caller=ann&limit=2");
    let person: Vec<_> =
        recorded.iter().map(|call| [&call["begin"]["asked"], &call["begin"]["refused_by"]]).collect();
    assert!(person[0][1] == "bob" && person[1][0] == "bob", "{person:?}");
}

/// A tool is called by its form and as JSON; the decision for another caller is explained; nothing hostile runs.
#[test]
#[ignore = "needs the browser that `cargo xtask test` installs"]
fn tools_are_tried_by_form_and_json() {
    let gateway = gateway();
    let browser = Browser::start();
    let mut tab = log_in(&browser, &gateway, OWNER);
    tab.open(&url(&gateway, "/tools/echo"));
    tab.fill("[name='a/message']", "<img src=x onerror=alert(1)>\u{202E}");
    tab.submit("button.primary[value=call]");
    assert_eq!(tab.text("#outcome .result"), "<img src=x onerror=alert(1)>⟦U+202E⟧");
    assert_eq!(tab.evaluate("document.querySelectorAll('#outcome img').length"), 0);
    // A field would send the mark back, so the page changes to JSON.
    let entered = tab.evaluate("document.querySelector('#arguments').value");
    let entered: Json = serde_json::from_str(entered.as_str().expect("text")).expect("JSON");
    assert_eq!(
        entered["message"], "<img src=x onerror=alert(1)>\u{202E}",
        "the value of the field comes back"
    );
    tab.fill("#arguments", r#"{"message": "as JSON", "number": 4}"#);
    tab.submit("button.primary[value=call]");
    assert_eq!(tab.text("#outcome .result"), "as JSON");
    tab.fill("#arguments", "{broken");
    tab.submit("button.primary[value=call]");
    assert!(tab.text("#try .notice").contains("invalid JSON in `arguments`"), "{}", tab.text("#try"));
    tab.open(&url(&gateway, "/tools/echo"));
    tab.fill("#for", "ann");
    tab.submit("button[value=why]");
    assert!(tab.text("#why h2").contains("ask"), "{}", tab.text("#why"));
    assert!(tab.text("#why").contains("ask-before-echo"));
    tab.open(&url(&gateway, "/tools/picture"));
    tab.submit("button.primary[value=call]");
    assert!(tab.text("#outcome").contains("success"), "{}", tab.text("#outcome"));
    assert_clean(&tab, "tools");
}

/// Callers and keys: a key is shown once, works, and its revocation ends the session of the console.
#[test]
#[ignore = "needs the browser that `cargo xtask test` installs"]
fn keys_open_sessions_until_they_are_revoked() {
    let gateway = gateway();
    let browser = Browser::start();
    let mut tab = log_in(&browser, &gateway, OWNER);
    tab.open(&url(&gateway, "/callers"));
    tab.fill("#id", "carl");
    tab.fill("#permissions", "servers:read");
    tab.follow("form[data-operation=addCaller] button");
    let key = tab.text("#secret").trim().to_owned();
    assert!(key.starts_with("tg_"), "{key}");
    tab.open(&url(&gateway, "/callers/carl"));
    assert!(!tab.text("main").contains(&key), "it is shown once");
    tab.click("#account summary");
    tab.follow("form[action='/logout'] button");
    assert_eq!(tab.path(), "/login");
    let mut tab = log_in(&browser, &gateway, &key);
    tab.open(&url(&gateway, "/servers"));
    assert_eq!(tab.text("h1"), "Servers");
    assert_eq!(
        tab.evaluate("document.querySelectorAll('a[href=\"/callers\"], a[href=\"/servers/new\"]').length"),
        0
    );
    tab.open(&url(&gateway, "/callers"));
    assert_eq!(tab.text("h1"), "Not allowed");
    let revoked = gateway.post("/v1/callers/carl/keys/revoke", OWNER, &json!({ "name": "default" }));
    assert_eq!(revoked.status, 204, "{revoked:?}");
    tab.open(&url(&gateway, "/servers"));
    assert_eq!(tab.path(), "/login?next=%2Fservers");
    tab.problems.clear();
    tab.fill("#key", &key);
    tab.key_to_page("Enter");
    assert_eq!(tab.text(".notice.bad p"), "the API key is unknown");
}

/// Without scripts and by keys alone, a person finds a tool, calls it and changes the colours.
#[test]
#[ignore = "needs the browser that `cargo xtask test` installs"]
fn pages_work_without_scripts_and_by_keys() {
    let gateway = gateway();
    let browser = Browser::start();
    let mut tab = log_in(&browser, &gateway, OWNER);
    // The first stop of the keyboard leads past the navigation.
    tab.key("Tab");
    assert_eq!(tab.evaluate("document.activeElement.textContent"), "Skip to content");
    tab.key("/");
    assert_eq!(tab.evaluate("document.activeElement.id"), "search");
    tab.call("Input.insertText", json!({ "text": "echo" }));
    tab.key_to_page("Enter");
    assert!(tab.path().starts_with("/search?q=echo"));
    assert!(tab.text("main").contains("echo"));
    tab.evaluate("document.activeElement.blur()");
    tab.key("?");
    tab.wait("document.querySelector('#keys')?.open");
    tab.key("Escape");
    tab.key("g");
    tab.key_to_page("e");
    assert_eq!(tab.path(), "/executions");
    tab.key("j");
    tab.key_to_page("Enter");
    assert!(tab.path().starts_with("/executions/"));
    tab.scripts(false);
    tab.open(&url(&gateway, "/tools/echo"));
    tab.fill("[name='a/message']", "without scripts");
    tab.follow("button.primary[value=call]");
    assert_eq!(tab.text("#outcome .result"), "without scripts");
    tab.click("#account summary");
    tab.follow("button[value=dark]");
    assert_eq!(tab.evaluate("document.documentElement.dataset.theme"), "dark");
    assert_eq!(tab.path(), "/tools/echo");
}

/// The search shows what it finds while it is typed, and keys choose from it.
#[test]
#[ignore = "needs the browser that `cargo xtask test` installs"]
fn the_palette_finds_pages_tools_and_servers() {
    let gateway = gateway();
    let browser = Browser::start();
    let mut tab = log_in(&browser, &gateway, OWNER);
    tab.key("/");
    tab.call("Input.insertText", json!({ "text": "hostile" }));
    tab.wait("document.querySelector('#palette a[href=\"/servers/hostile\"]')");
    assert_eq!(tab.evaluate("document.querySelector('#search').ariaExpanded"), "true");
    assert_eq!(tab.accessibility(), Vec::<String>::new());
    assert_eq!(tab.evaluate("document.querySelectorAll('#palette script, #palette img').length"), 0);
    tab.key("Escape");
    tab.wait("document.querySelector('#palette').hidden");
    tab.fill("#search", "rules");
    tab.wait("document.querySelector('#palette:not([hidden]) a[href=\"/policy\"]')");
    tab.key("ArrowDown");
    assert_eq!(tab.text("#palette [aria-selected=true] span"), "Policy");
    tab.key_to_page("Enter");
    assert_eq!(tab.path(), "/policy");
    assert_clean(&tab, "palette");
}

/// Charts have the numbers of their tables, also after an update, and pages have a picture without scripts.
#[test]
#[ignore = "needs the browser that `cargo xtask test` installs"]
fn charts_are_drawn_from_their_tables() {
    let gateway = gateway();
    let browser = Browser::start();
    let mut tab = log_in(&browser, &gateway, OWNER);
    for page in ["/", "/?since=7d", "/tools/echo"] {
        tab.open(&url(&gateway, page));
        tab.wait("document.querySelectorAll('figure.drawn .uplot canvas').length === 2");
        assert_eq!(tab.evaluate("document.querySelectorAll('figure svg.chart rect.calls').length > 0"), true);
        let rows = "[...document.querySelectorAll('figure tbody tr[data-time]')]";
        let sum = format!("{rows}.reduce((sum, row) => sum + Number(row.cells[1].dataset.v), 0)");
        assert_eq!(tab.evaluate(&sum), 3, "{page}");
        assert_eq!(tab.accessibility(), Vec::<String>::new(), "{page}");
    }
    tab.open(&url(&gateway, "/"));
    assert_eq!(gateway.call(OWNER, "echo", &json!({ "message": "one more" })).status, 200);
    tab.wait("document.querySelector('#overview').innerText.includes('one more')");
    tab.wait("document.querySelectorAll('figure.drawn .uplot canvas').length === 2");
    assert_clean(&tab, "charts");
}

/// The first page with all it loads, and the time of pages on the server.
#[test]
#[ignore = "needs the browser that `cargo xtask test` installs"]
fn the_first_page_is_small() {
    let gateway = gateway();
    let browser = Browser::start();
    let mut tab = log_in(&browser, &gateway, OWNER);
    tab.open(&url(&gateway, "/"));
    let sizes = tab.evaluate(
        "(() => { const all = [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]; \
         return { sent: all.reduce((sum, one) => sum + one.encodedBodySize, 0), whole: all.reduce((sum, one) => sum + one.decodedBodySize, 0), \
         names: all.map((one) => one.name) }; })()",
    );
    let size = |name: &str| sizes[name].as_u64().expect("a number");
    assert!(size("whole") <= 150_000, "{sizes}");
    assert!(size("sent") <= 50_000, "{sizes}");
}

/// Tabs follow changes over one stream of events.
#[test]
#[ignore = "needs the browser that `cargo xtask test` installs"]
fn pages_follow_changes() {
    let gateway = gateway();
    let browser = Browser::start();
    let mut first = log_in(&browser, &gateway, OWNER);
    let mut second = browser.tab();
    for tab in [&mut first, &mut second] {
        tab.open(&url(&gateway, "/executions"));
    }
    first.wait(
        "navigator.locks.query().then((locks) => locks.held.length === 1 && locks.pending.length >= 1)",
    );
    assert_eq!(gateway.call(OWNER, "echo", &json!({ "message": "followed" })).status, 200);
    for tab in [&mut first, &mut second] {
        // A hidden tab fetches when it is shown again.
        tab.call("Page.bringToFront", json!({}));
        tab.wait("document.querySelector('#executions').innerText.includes('followed')");
    }
    thread::scope(|scope| {
        let call = waiting_call(scope, &gateway, "please");
        second.wait("document.querySelector('#waiting').innerText === '1'");
        second.open(&url(&gateway, "/inbox"));
        second.follow("button[data-key=a]");
        assert_eq!(call.join().expect("it ends"), 200);
    });
    second.open(&url(&gateway, "/executions"));
    second.click("[data-pause]");
    assert_eq!(second.text("[data-pause]"), "Resume");
    assert_clean(&second, "executions");
}

/// A server is tested, added, changed and removed; a held-back definition is approved by its hash.
#[test]
#[ignore = "needs the browser that `cargo xtask test` installs"]
fn servers_are_managed() {
    let gateway = gateway();
    let browser = Browser::start();
    let mut tab = log_in(&browser, &gateway, "key-of-admin");
    tab.open(&url(&gateway, "/servers/new"));
    tab.fill("#name-program", "added");
    tab.fill("#command", &format!("{} good", testkit().display()));
    tab.follow("form:has(#command) button[value=test]");
    assert!(tab.text("#test").contains("It works"), "{}", tab.text("main"));
    assert_eq!(gateway.get("/v1/servers/added", OWNER).status, 404, "nothing was registered");
    tab.follow("form:has(#command) button[value=add]");
    assert_eq!(tab.path(), "/servers/added");
    assert!(tab.text(".notice.ok").contains("was saved"), "{}", tab.text("main"));
    tab.follow("form[data-operation=reconnect] button");
    assert!(tab.text(".notice.ok").contains("was reconnected"), "{}", tab.text("main"));
    tab.click("details.confirm summary");
    tab.follow("form[data-operation=removeServer] button");
    assert_eq!((tab.path().as_str(), gateway.get("/v1/servers/added", OWNER).status), ("/servers", 404));
    tab.open(&url(&gateway, "/servers/hostile"));
    let held = |tab: &mut Tab| {
        tab.evaluate("document.querySelectorAll('.drift').length").as_u64().expect("a number")
    };
    let before = held(&mut tab);
    assert!(before > 0 && tab.text(".drift").contains("⟦U+"), "{}", tab.text("main"));
    tab.follow(".drift form[data-operation=approve] button");
    assert!(tab.text(".notice.ok").contains("was approved"), "{}", tab.text("main"));
    assert_eq!(held(&mut tab), before - 1);
    assert_clean(&tab, "servers");
}

/// Rules are checked, then the calls that would flip are shown, then they apply.
#[test]
#[ignore = "needs the browser that `cargo xtask test` installs"]
fn rules_are_replayed_before_they_apply() {
    let gateway = gateway();
    let browser = Browser::start();
    let mut tab = log_in(&browser, &gateway, "key-of-admin");
    tab.open(&url(&gateway, "/policy"));
    tab.fill("#text", "forbid(principal, action);\nforbid(oops");
    tab.follow("button[data-operation=checkPolicy]");
    assert!(tab.text("#check").contains("line 2"), "{}", tab.text("main"));
    let rule = r#"@id("no-echo") forbid(principal, action == Action::"call", resource == Tool::"echo");"#;
    tab.fill("#text", rule);
    tab.follow("button[data-operation=replayPolicy]");
    assert!(tab.text("#replay").contains("echo"), "{}", tab.text("main"));
    assert!(tab.text("#replay tbody tr").contains("deny"), "{}", tab.text("#replay"));
    tab.follow("button[data-operation=replacePolicy]");
    assert_eq!(tab.text(".notice.ok"), "The rules are in use.", "{}", tab.text("main"));
    wait_until("the rules", || gateway.call(OWNER, "echo", &json!({ "message": "x" })).status != 200);
    tab.open(&url(&gateway, "/policy"));
    assert!(tab.text("#matrix").contains("deny"), "{}", tab.text("#matrix"));
    assert_clean(&tab, "policy");
}
