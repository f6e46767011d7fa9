//! Logins in the console: of people at an issuer (OpenID Connect), and of the gateway at a server.

use std::sync::Arc;

use jsonwebtoken::Algorithm;
use serde_json::{Value as Json, json};

use super::console::{assert_clean, log_in, url};
use crate::support::authorization_server::AuthorizationServer;
use crate::support::browser::Browser;
use crate::support::gateway::{Gateway, HttpResponse, OWNER, project, wait_until};
use crate::support::issuer::{AUDIENCE, CLIENT, Issuer, Login, Signer, now};

/// An issuer on another site than the gateway, which accepts logins as `ann`, and the gateway.
fn start(exp: i64) -> (Issuer, Login, Gateway) {
    let signer = Arc::new(Signer::new("one", Algorithm::ES256));
    let issuer = Issuer::start_at("localhost", &[&signer]);
    let mut access = issuer.claims("ann", "look other");
    access["exp"] = json!(now(exp));
    access["email"] = json!("ann@example.com");
    let login = Login { signer, access, id_claims: json!({}) };
    issuer.accept_logins(login.clone());
    let entry = json!({ "issuer": issuer.url, "audience": [AUDIENCE], "caller_prefix": "id:", "leeway": "1s",
        "person_claim": "email", "scopes": { "look": ["servers:read", "s:echo"] },
        "login": { "client_id": CLIENT.0, "client_secret": CLIENT.1, "scopes": ["email"], "label": "Example <ID>" } });
    let gateway = Gateway::start(&json!({ "serve": { "jwt": [entry] } }));
    (issuer, login, gateway)
}

/// Sends a GET request of a browser.
fn get(gateway: &Gateway, path: &str, cookie: &str) -> HttpResponse {
    let host = format!("Host: 127.0.0.1:{}", gateway.port);
    gateway.request(&format!("GET {path}"), &[&host, &format!("Cookie: {cookie}")], "")
}

/// The value of a header, as sent.
fn header<'a>(response: &'a HttpResponse, name: &str) -> Vec<&'a str> {
    let lines = response.verbatim.lines().filter_map(|line| line.split_once(": "));
    lines.filter(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value).collect()
}

/// Begins a login; returns the cookie, and the path that the issuer leads back to.
fn begin(gateway: &Gateway, issuer: &Issuer) -> (String, String) {
    let begun = get(gateway, &format!("/oidc/login?issuer={}&next=%2Fservers", issuer.url), "");
    assert_eq!(begun.status, 303, "{begun:?}");
    let cookie = header(&begun, "set-cookie")[0];
    assert!(cookie.contains("; HttpOnly; SameSite=Lax; Max-Age=600"), "{cookie}");
    let location = header(&begun, "location")[0].to_owned();
    let path = location.strip_prefix(&issuer.url).expect("a URL of the issuer");
    let answered = issuer.browse(path);
    let back = answered.split_once("/oidc/").expect("the redirect URI").1.to_owned();
    (cookie.split(';').next().expect("a pair").to_owned(), format!("/oidc/{back}"))
}

/// The cookie of the session that a response begins.
fn session(response: &HttpResponse) -> Option<&str> {
    let cookies = header(response, "set-cookie").into_iter();
    cookies.filter_map(|cookie| cookie.split(';').next()).find(|pair| pair.starts_with("toolgate_session="))
}

#[test]
fn a_login_is_bound_to_its_browser_and_used_once() {
    let (issuer, login, gateway) = start(300);
    let refused = |cookie: &str, path: &str, message: &str| {
        let response = get(&gateway, path, cookie);
        assert!(response.status >= 400 && session(&response).is_none(), "{path}: {response:?}");
        assert!(response.body.contains(message), "{path}: {}", response.body);
    };
    let (cookie, back) = begin(&gateway, &issuer);
    let (other_cookie, other_back) = begin(&gateway, &issuer);
    let expired = "the login has expired, or was begun in another browser";
    refused("", &back, expired);
    refused(&other_cookie, &back, expired);
    refused(&cookie, &other_back, expired);
    refused(&cookie, &back.replace("iss=", "iss=x"), "the response is of another issuer");
    // The metadata of the issuer says that it names itself in every response.
    refused(&cookie, &back.replace("iss=", "i="), "the response is of another issuer");
    refused(&cookie, &format!("{}&error=access_denied", back.replace("code=", "c=")), "`access_denied`");
    let entered = get(&gateway, &back, &cookie);
    let cookies = header(&entered, "set-cookie");
    assert!(cookies.iter().any(|cookie| cookie.starts_with("toolgate_oidc=;")), "{cookies:?}");
    assert!(entered.body.contains("url=/servers"), "{}", entered.body);
    let session_cookie = session(&entered).expect("a session").to_owned();
    refused(&cookie, &back, "the issuer refused the login");
    // The session has the rights of the token in the console, and opens nothing else.
    assert_eq!(get(&gateway, "/servers", &session_cookie).status, 200);
    assert_eq!(get(&gateway, "/callers", &session_cookie).status, 403);
    assert_eq!(get(&gateway, "/v1/servers", &session_cookie).status, 401);
    // Neither is a cookie of a login a session, nor the other way round.
    let renamed = cookie.replace("toolgate_oidc", "toolgate_session");
    assert_eq!(get(&gateway, "/servers", &renamed).status, 303);
    for (what, access, id_claims) in [
        ("another nonce", json!({}), json!({ "nonce": "other" })),
        ("no nonce", json!({}), json!({ "nonce": null })),
        ("an ID token for another client", json!({}), json!({ "aud": "other" })),
        ("another authorized party", json!({}), json!({ "azp": "other" })),
        ("an old ID token", json!({}), json!({ "exp": now(-60) })),
        ("an access token for another audience", json!({ "aud": "other" }), json!({})),
    ] {
        let mut lie = login.clone();
        for (name, value) in access.as_object().expect("claims") {
            lie.access[name] = value.clone();
        }
        lie.id_claims = id_claims;
        issuer.accept_logins(lie);
        let (cookie, back) = begin(&gateway, &issuer);
        let response = get(&gateway, &back, &cookie);
        assert!(response.status == 403 && session(&response).is_none(), "{what}: {response:?}");
    }
    assert_eq!(get(&gateway, "/oidc/login?issuer=https%3A%2F%2Fevil.example", "").status, 404);
}

#[test]
fn a_session_ends_with_its_token_and_follows_the_configuration() {
    let (issuer, mut login, gateway) = start(300);
    let (cookie, back) = begin(&gateway, &issuer);
    let lasting = session(&get(&gateway, &back, &cookie)).expect("a session").to_owned();
    login.access["exp"] = json!(now(3));
    issuer.accept_logins(login);
    let (cookie, back) = begin(&gateway, &issuer);
    let short = session(&get(&gateway, &back, &cookie)).expect("a session").to_owned();
    gateway.wait("the end of the token", |gateway| get(gateway, "/servers", &short).status == 303);
    assert_eq!(get(&gateway, "/servers", &lasting).status, 200);
    let config = gateway.program.read("toolgate.yaml");
    gateway.program.write("toolgate.yaml", config.replace("\"servers:read\",", ""));
    gateway.wait("fewer rights", |gateway| get(gateway, "/servers", &lasting).status == 403);
    let mut without: Json = serde_json::from_str(&config).expect("JSON");
    without["serve"]["jwt"][0].as_object_mut().expect("an issuer").remove("login");
    gateway.program.write("toolgate.yaml", without.to_string());
    gateway.wait("the end of the session", |gateway| get(gateway, "/servers", &lasting).status == 303);
}

#[test]
#[ignore = "needs the browser that `cargo xtask test` installs"]
fn people_log_in_with_an_issuer() {
    let (_issuer, _, gateway) = start(300);
    let browser = Browser::start();
    let mut tab = browser.tab();
    tab.open(&url(&gateway, "/servers"));
    assert_eq!(tab.path(), "/login?next=%2Fservers");
    assert_eq!(tab.text("a.primary"), "Log in with Example <ID>");
    for dark in [false, true] {
        tab.dark(dark);
        assert_eq!(tab.accessibility(), Vec::<String>::new(), "dark: {dark}");
    }
    super::console::save(&mut tab, "/login", 1280, true);
    tab.click("a.primary");
    tab.wait("location.pathname === '/servers' && document.querySelector('h1')?.innerText === 'Servers'");
    assert!(tab.text("#account summary").contains("id:ann"), "{}", tab.text("#account summary"));
    tab.open(&url(&gateway, "/tools/echo"));
    tab.fill("[name='a/message']", "as ann");
    tab.submit("button.primary[value=call]");
    assert_eq!(tab.text("#outcome .result"), "as ann");
    let called = &gateway.executions("caller=id:ann")[0]["begin"];
    assert_eq!(called["person"], "ann@example.com", "{called}");
    tab.click("#account summary");
    tab.follow("form[action='/logout'] button");
    tab.open(&url(&gateway, "/servers"));
    assert_eq!(tab.path(), "/login?next=%2Fservers");
    tab.hosts.retain(|host| host != "localhost");
    assert_clean(&tab, "login at an issuer");
}

/// A server is logged in to with a browser, and the last lines of a program that ended are shown.
#[test]
#[ignore = "needs the browser that `cargo xtask test` installs"]
fn servers_are_logged_in_to_and_show_stderr() {
    let accounts = AuthorizationServer::start();
    let program = project(&json!({}));
    let mut config: Json = serde_json::from_str(&program.read("toolgate.yaml")).expect("JSON");
    let server = json!({ "name": "mail", "url": accounts.mcp("mail"), "oauth": {}, "mode": "dynamic",
        "default_tool_config": { "max_instances": 4, "timeout": "30s" } });
    config["toolbox"]["mcps"].as_array_mut().expect("a list").push(server);
    program.write("toolgate.yaml", config.to_string());
    let gateway = Gateway::serve(program);
    let browser = Browser::start();
    let mut tab = log_in(&browser, &gateway, OWNER);
    tab.open(&url(&gateway, "/servers/mail"));
    tab.follow("form[data-operation=startLogin] button");
    assert!(tab.path().starts_with("/login/") && tab.text("body").contains("mail"), "{}", tab.text("body"));
    tab.click("form button");
    tab.wait("document.querySelector('h1')?.innerText === 'Logged in'");
    gateway.wait("the server", |gateway| gateway.get("/v1/servers/mail", OWNER).json()["state"] == "ready");
    tab.open(&url(&gateway, "/servers/mail"));
    tab.wait("document.querySelector('main')?.innerText.includes('ready')");
    let last_words = "last words <b>of it</b>, token=sk-proj-abcdefghijklmnopqrstuvwx0123456789";
    // The lines are those of the last process: when the server is started again, its page has none.
    let mut shown = String::new();
    wait_until("the lines", || {
        gateway.call(OWNER, "echo", &json!({ "fault": "exit", "message": last_words }));
        tab.open(&url(&gateway, "/servers/s"));
        shown = tab.text("pre[aria-label=stderr]");
        shown.contains("last words")
    });
    assert!(shown.contains("last words <b>of it</b>") && !shown.contains("abcdefghijklm"), "{shown}");
    assert_clean(&tab, "login to a server");
}
