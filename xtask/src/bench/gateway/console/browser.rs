//! Chromium, driven over the DevTools protocol, and the page that is open in it.
//!
//! Invariant: dropping the browser ends it and removes its profile.

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::{Value, json};
use tungstenite::{Message, WebSocket};

use crate::peers;
use crate::scratch::ScratchDir;

/// Time limit for every answer of the browser.
const LIMIT: Duration = Duration::from_secs(60);

/// A running browser with one page.
pub(super) struct Browser {
    child: Child,
    socket: WebSocket<TcpStream>,
    next: u64,
    _profile: ScratchDir,
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Browser {
    /// Starts the browser that `cargo xtask test` installs.
    pub(super) fn start() -> anyhow::Result<Self> {
        let root = peers::folder().join("chromium");
        let installed = root.join("usr/lib/chromium/chromium");
        let program = if installed.exists() { installed } else { "/usr/bin/chromium".into() };
        let libraries = root.join("usr/lib").join(format!("{}-linux-gnu", std::env::consts::ARCH));
        let path = format!("{}:{}", libraries.display(), libraries.join("pulseaudio").display());
        let profile = ScratchDir::new("bench-browser")?;
        let mut child = Command::new(&program)
            .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
            .args(["--no-first-run", "--disable-background-networking", "--disable-component-update"])
            .args(["--remote-debugging-port=0", "--remote-allow-origins=*"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .env("LD_LIBRARY_PATH", path)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| {
                format!("cannot start {}: `cargo xtask test --only peers` installs it", program.display())
            })?;
        let mut lines =
            BufReader::new(child.stderr.take().context("stderr is piped")?).lines().map_while(Result::ok);
        let line = lines.find(|line| line.contains("DevTools listening on ws://"));
        let url = line.as_deref().and_then(|line| line.split_whitespace().last()).map(str::to_owned);
        let Some(url) = url else {
            let _ = child.kill();
            child.wait()?;
            bail!("the browser does not listen");
        };
        // The pipe must not fill up.
        thread::spawn(move || lines.for_each(drop));
        let host = url.trim_start_matches("ws://").split('/').next().unwrap_or_default().to_owned();
        let mut browser = Self { child, socket: connect(&url, &host)?, next: 0, _profile: profile };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }))?;
        let id = target["targetId"].as_str().context("the browser opens a page")?;
        browser.socket = connect(&format!("ws://{host}/devtools/page/{id}"), &host)?;
        browser.call("Page.enable", json!({}))?;
        browser.call("Network.enable", json!({}))?;
        let metrics = json!({ "width": 1280, "height": 800, "deviceScaleFactor": 1, "mobile": false });
        browser.call("Emulation.setDeviceMetricsOverride", metrics)?;
        Ok(browser)
    }

    /// Calls a method of the protocol.
    pub(super) fn call(&mut self, method: &str, parameters: Value) -> anyhow::Result<Value> {
        self.next += 1;
        let message = json!({ "id": self.next, "method": method, "params": parameters });
        self.socket.send(Message::text(message.to_string())).context("the browser has ended")?;
        loop {
            let answer = self.read()?;
            if answer["id"] == self.next {
                anyhow::ensure!(answer["error"].is_null(), "{method}: {}", answer["error"]);
                return Ok(answer["result"].clone());
            }
        }
    }

    fn read(&mut self) -> anyhow::Result<Value> {
        match self.socket.read().context("the browser has ended")? {
            Message::Text(text) => Ok(serde_json::from_str(&text)?),
            _ => Ok(Value::Null),
        }
    }

    /// Opens a page and waits until it is loaded.
    pub(super) fn open(&mut self, url: &str) -> anyhow::Result<()> {
        let opened = self.call("Page.navigate", json!({ "url": url }))?;
        anyhow::ensure!(opened["errorText"].is_null(), "{url}: {}", opened["errorText"]);
        self.wait(&format!("document.readyState === 'complete' && location.href === {}", json!(url)))
    }

    /// Evaluates an expression in the page.
    pub(super) fn evaluate(&mut self, expression: &str) -> anyhow::Result<Value> {
        let parameters = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let answer = self.call("Runtime.evaluate", parameters)?;
        anyhow::ensure!(answer["exceptionDetails"].is_null(), "{expression}: {}", answer["exceptionDetails"]);
        Ok(answer["result"]["value"].clone())
    }

    /// Waits until an expression is true.
    pub(super) fn wait(&mut self, expression: &str) -> anyhow::Result<()> {
        let start = Instant::now();
        while self.evaluate(&format!("Boolean({expression})"))? != true {
            anyhow::ensure!(start.elapsed() < LIMIT, "{expression} does not become true");
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

fn connect(url: &str, host: &str) -> anyhow::Result<WebSocket<TcpStream>> {
    let stream = TcpStream::connect(host).context("the browser does not listen")?;
    stream.set_read_timeout(Some(LIMIT))?;
    let (socket, _) = tungstenite::client(url, stream).map_err(|error| anyhow::anyhow!("{error}"))?;
    Ok(socket)
}
