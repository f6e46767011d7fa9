//! Chromium, driven over the DevTools protocol.
//!
//! Clicks and keys are those of a person: they go through the input events of the browser. Each tab records console
//! errors, exceptions, violations of the content security policy, and the host of every request.

use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value as Json, json};
use tempfile::TempDir;
use tungstenite::{Message, WebSocket};

use crate::support::gateway::wait_until;
use crate::support::program::HANG_TIMEOUT;
use crate::support::third_party::peers;

/// Reports violations as console errors, before any script of the page runs.
const WATCH: &str = "document.addEventListener('securitypolicyviolation', (event) => \
                     console.error('CSP: ' + event.violatedDirective + ' ' + event.blockedURI));";

/// A running browser; killed when dropped.
pub(crate) struct Browser {
    child: Child,
    /// Its WebSocket.
    url: String,
    port: u16,
    _profile: TempDir,
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Browser {
    /// Starts the browser that `cargo xtask test` installs.
    #[expect(clippy::disallowed_methods, reason = "the browser is the other side of the test")]
    pub(crate) fn start() -> Self {
        let root = peers().join("chromium");
        let installed = root.join("usr/lib/chromium/chromium");
        let program = if installed.exists() { installed } else { "/usr/bin/chromium".into() };
        let profile = TempDir::new().expect("the temporary folder can be written to");
        let libraries = root.join("usr/lib").join(format!("{}-linux-gnu", std::env::consts::ARCH));
        let path = format!("{}:{}", libraries.display(), libraries.join("pulseaudio").display());
        let mut child = Command::new(program)
            .args([
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
            ])
            .args(["--disable-background-networking", "--disable-component-update", "--hide-scrollbars"])
            .args(["--remote-debugging-port=0", "--remote-allow-origins=*"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .env("LD_LIBRARY_PATH", path)
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the browser starts; `cargo xtask test --only peers` installs it");
        let mut lines =
            BufReader::new(child.stderr.take().expect("it is piped")).lines().map_while(Result::ok);
        let line = lines.find(|line| line.contains("DevTools listening on ws://")).expect("it listens");
        let url = line.split_whitespace().last().expect("a URL").to_owned();
        let port = url::Url::parse(&url).ok().and_then(|url| url.port()).expect("a port");
        // The pipe must not fill up.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, url, port, _profile: profile }
    }

    /// Opens a tab. All tabs share their cookies.
    pub(crate) fn tab(&self) -> Tab {
        self.tab_in(json!({ "url": "about:blank" }))
    }

    fn tab_in(&self, target: Json) -> Tab {
        let mut browser = self.connect(&self.url);
        let target = browser.call("Target.createTarget", target);
        let id = target["targetId"].as_str().expect("an id");
        let mut tab = self.connect(&format!("ws://127.0.0.1:{}/devtools/page/{id}", self.port));
        for domain in ["Page", "Runtime", "Log", "Network"] {
            tab.call(&format!("{domain}.enable"), json!({}));
        }
        tab.call("Page.addScriptToEvaluateOnNewDocument", json!({ "source": WATCH }));
        tab.size(1280, 800);
        tab
    }

    /// Opens a tab of another person: it has cookies of its own.
    pub(crate) fn other_person(&self) -> Tab {
        let mut browser = self.connect(&self.url);
        let context = browser.call("Target.createBrowserContext", json!({}));
        self.tab_in(json!({ "url": "about:blank", "browserContextId": context["browserContextId"] }))
    }

    fn connect(&self, url: &str) -> Tab {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).expect("it listens");
        stream.set_read_timeout(Some(HANG_TIMEOUT)).expect("it is a socket");
        let (socket, _) = tungstenite::client(url, stream).expect("it is a WebSocket");
        Tab { socket, next: 0, events: Vec::new(), problems: Vec::new(), hosts: Vec::new() }
    }
}

/// A tab of the browser.
pub(crate) struct Tab {
    socket: WebSocket<TcpStream>,
    next: u64,
    events: Vec<Json>,
    /// Console errors, exceptions and violations.
    pub(crate) problems: Vec<String>,
    /// Hosts of all requests.
    pub(crate) hosts: Vec<String>,
}

impl Tab {
    /// Calls a method of the protocol.
    pub(crate) fn call(&mut self, method: &str, parameters: Json) -> Json {
        self.next += 1;
        let id = self.next;
        let message = json!({ "id": id, "method": method, "params": parameters });
        self.socket.send(Message::text(message.to_string())).expect("the browser reads");
        loop {
            let message = self.read();
            if message["id"] == id {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].clone();
            }
        }
    }

    /// Reads a message, and records it if it is an event.
    fn read(&mut self) -> Json {
        let text = match self.socket.read().expect("the browser answers") {
            Message::Text(text) => text,
            _ => return Json::Null,
        };
        let message: Json = serde_json::from_str(&text).expect("JSON");
        let parameters = &message["params"];
        match message["method"].as_str() {
            Some("Runtime.exceptionThrown") => self.problems.push(parameters["exceptionDetails"].to_string()),
            Some("Runtime.consoleAPICalled") if parameters["type"] == "error" => {
                self.problems.push(parameters["args"].to_string());
            }
            Some("Log.entryAdded") if parameters["entry"]["level"] == "error" => {
                self.problems.push(parameters["entry"].to_string());
            }
            Some("Network.requestWillBeSent") => {
                let url = parameters["request"]["url"].as_str().unwrap_or_default();
                self.hosts
                    .extend(url::Url::parse(url).ok().and_then(|url| url.host_str().map(str::to_owned)));
            }
            _ => {}
        }
        let is_of_page = parameters["frame"]["parentId"].is_null();
        if message["method"] == "Page.loadEventFired"
            || message["method"] == "Page.frameNavigated" && is_of_page
        {
            self.events.push(message.clone());
        }
        message
    }

    /// Opens a page and waits until it is loaded.
    pub(crate) fn open(&mut self, url: &str) {
        self.events.clear();
        let opened = self.call("Page.navigate", json!({ "url": url }));
        assert!(opened["errorText"].is_null(), "{url}: {opened}");
        let loader = opened["loaderId"].clone();
        self.wait_for_load(&|navigated| navigated["loaderId"] == loader);
    }

    /// Waits until a page that was navigated to has loaded. The page before may still report its own load.
    #[expect(clippy::disallowed_methods, reason = "pages load in real time")]
    fn wait_for_load(&mut self, is_expected: &dyn Fn(&Json) -> bool) {
        let start = Instant::now();
        let has_loaded = |events: &[Json]| {
            let navigated = events.iter().position(|event| is_expected(&event["params"]["frame"]));
            navigated
                .is_some_and(|at| events[at..].iter().any(|event| event["method"] == "Page.loadEventFired"))
        };
        while !has_loaded(&self.events) {
            assert!(start.elapsed() < HANG_TIMEOUT, "the page does not load");
            self.read();
        }
        self.events.clear();
    }

    /// Evaluates an expression in the page.
    pub(crate) fn evaluate(&mut self, expression: &str) -> Json {
        let parameters = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let answer = self.call("Runtime.evaluate", parameters);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    pub(crate) fn text(&mut self, selector: &str) -> String {
        let found = self.evaluate(&format!("document.querySelector({})?.innerText ?? ''", json!(selector)));
        found.as_str().expect("a string").to_owned()
    }

    /// Waits until an expression is true.
    pub(crate) fn wait(&mut self, expression: &str) {
        wait_until(expression, || self.evaluate(&format!("Boolean({expression})")) == true);
    }

    pub(crate) fn path(&mut self) -> String {
        self.evaluate("location.pathname + location.search").as_str().expect("a path").to_owned()
    }

    /// Clicks in the middle of an element.
    pub(crate) fn click(&mut self, selector: &str) {
        let place = self.evaluate(&format!(
            "(() => {{ const one = document.querySelector({}); if (!one) return null; \
             one.scrollIntoView({{ block: 'center', behavior: 'instant' }}); const box = one.getBoundingClientRect(); \
             return {{ x: box.x + box.width / 2, y: box.y + box.height / 2 }}; }})()",
            json!(selector)
        ));
        assert!(place["x"].is_number(), "there is no {selector} on {}", self.path());
        for kind in ["mousePressed", "mouseReleased"] {
            let (x, y) = (&place["x"], &place["y"]);
            let event = json!({ "type": kind, "x": x, "y": y, "button": "left", "clickCount": 1 });
            self.call("Input.dispatchMouseEvent", event);
        }
    }

    /// Clicks, and waits for the page that follows.
    pub(crate) fn follow(&mut self, selector: &str) {
        self.events.clear();
        self.click(selector);
        self.wait_for_load(&Json::is_object);
    }

    /// Clicks, and waits until the script has replaced the content of the page.
    pub(crate) fn submit(&mut self, selector: &str) {
        self.mark();
        self.click(selector);
        self.wait_for_content();
    }

    /// Marks the content of the page, to see when it is replaced.
    pub(crate) fn mark(&mut self) {
        self.evaluate("document.querySelector('main').dataset.before = '1'");
    }

    pub(crate) fn wait_for_content(&mut self) {
        self.wait("document.querySelector('main') && !document.querySelector('main[data-before]')");
    }

    /// Presses a key.
    pub(crate) fn key(&mut self, key: &str) {
        let text = match key {
            "Enter" => "\r",
            key if key.chars().count() == 1 => key,
            _ => "",
        };
        let code = match key {
            "Enter" => 13,
            "Tab" => 9,
            "Escape" => 27,
            _ => 0,
        };
        let event = json!({ "type": "keyDown", "key": key, "text": text, "windowsVirtualKeyCode": code });
        self.call("Input.dispatchKeyEvent", event);
        self.call(
            "Input.dispatchKeyEvent",
            json!({ "type": "keyUp", "key": key, "windowsVirtualKeyCode": code }),
        );
    }

    /// Presses a key, and waits for the page that follows.
    pub(crate) fn key_to_page(&mut self, key: &str) {
        self.events.clear();
        self.key(key);
        self.wait_for_load(&Json::is_object);
    }

    /// Replaces the content of a field.
    pub(crate) fn fill(&mut self, selector: &str, text: &str) {
        self.evaluate(&format!(
            "(() => {{ const field = document.querySelector({}); field.focus(); field.select(); }})()",
            json!(selector)
        ));
        self.call("Input.insertText", json!({ "text": text }));
    }

    /// Sets the size of the page. Below 500 pixels it is that of a phone.
    pub(crate) fn size(&mut self, width: u32, height: u32) {
        let metrics =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500 });
        self.call("Emulation.setDeviceMetricsOverride", metrics);
    }

    pub(crate) fn dark(&mut self, dark: bool) {
        let value = if dark { "dark" } else { "light" };
        let features = json!([{ "name": "prefers-color-scheme", "value": value }]);
        self.call("Emulation.setEmulatedMedia", json!({ "features": features }));
    }

    /// Turns the scripts of pages on or off.
    pub(crate) fn scripts(&mut self, on: bool) {
        self.call("Emulation.setScriptExecutionDisabled", json!({ "value": !on }));
    }

    /// Writes a picture of the visible part.
    pub(crate) fn picture(&mut self, path: &Path) {
        let shot = self.call("Page.captureScreenshot", json!({ "format": "png" }));
        let bytes = STANDARD.decode(shot["data"].as_str().expect("a picture")).expect("Base64");
        fs_err::write(path, bytes).expect("the file can be written");
    }

    /// Runs axe-core; returns its serious and critical violations.
    pub(crate) fn accessibility(&mut self) -> Vec<String> {
        let axe = peers().join("npm/node_modules/axe-core/axe.min.js");
        let source = fs_err::read_to_string(axe).expect("axe-core is installed");
        if self.evaluate("typeof axe") == "undefined" {
            self.evaluate(&format!("{source}; null"));
        }
        let found = self.evaluate(
            "axe.run(document).then((found) => found.violations.filter((one) => ['serious', 'critical'].includes(one.impact)) \
             .map((one) => one.id + ': ' + one.nodes.map((node) => node.target.join(' ') + ' ' + node.failureSummary).join('; ')))",
        );
        found.as_array().expect("a list").iter().map(ToString::to_string).collect()
    }
}
