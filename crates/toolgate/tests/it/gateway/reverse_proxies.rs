//! nginx and Caddy in front of the gateway, with the configuration of docs/how-to/reverse-proxy.md.

use std::io::Read as _;
use std::process::{Command, Stdio};

use serde_json::json;

use crate::support::gateway::{Gateway, OWNER, wait_until};
use crate::support::program::{Program, RunningProgram};
use crate::support::third_party::{peers, text};
use crate::support::tls::Authority;
use crate::support::typed_page::{block, free_port};

/// The host in the page.
const HOST: &str = "tools.example.com";

/// A proxy before a gateway.
struct Proxy {
    gateway: Gateway,
    /// Has the files of the proxy.
    _program: Program,
    port: u16,
    _running: RunningProgram,
}

impl Proxy {
    /// Starts a gateway, and a proxy with the block of the page for it. `adapt` puts the paths of this machine in place.
    fn start(language: &str, adapt: impl Fn(&str, &Program, u16) -> (String, Command)) -> Self {
        let serve =
            json!({ "hosts": [HOST], "url": format!("https://{HOST}"), "trusted_proxies": ["127.0.0.1"] });
        let gateway = Gateway::start(&json!({ "serve": serve }));
        let (program, port) = (Program::new(&[]), free_port());
        Authority::new().certify(HOST).install(&program);
        let page = include_str!("../../../../../docs/how-to/reverse-proxy.md");
        let config = block(page, language).replace("127.0.0.1:7332", &format!("127.0.0.1:{}", gateway.port));
        let (config, command) = adapt(&config, &program, port);
        program.write("proxy.conf", config);
        let _running = program.start_command(command);
        let proxy = Self { gateway, _program: program, port, _running };
        wait_until("the proxy", || proxy.curl(&["/healthz"]).ends_with("\n200"));
        proxy
    }

    /// Runs `curl` for a path; returns the body, and the status behind it.
    fn curl(&self, arguments: &[&str]) -> String {
        let mut command = self.curl_command(arguments);
        let output = command.args(["--max-time", "60", "--write-out", "\n%{http_code}"]).output();
        String::from_utf8(output.expect("`curl` is installed").stdout).expect("UTF-8")
    }

    /// `curl` for a path with more arguments.
    #[expect(clippy::disallowed_methods, reason = "the client of the proxy")]
    fn curl_command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("curl");
        // The certificate of the test is of no known authority.
        command.args(["--silent", "--insecure", "--no-buffer", "--header", &format!("Host: {HOST}")]);
        command.arg("--resolve").arg(format!("{HOST}:{}:127.0.0.1", self.port));
        command.arg(format!("https://{HOST}:{}{}", self.port, arguments[0])).args(&arguments[1..]);
        command
    }

    /// Checks that credentials, calls and event streams pass the proxy.
    fn check(&self) {
        let key = format!("X-API-Key: {OWNER}");
        // A client behind the proxy is not a local user.
        assert!(self.curl(&["/v1/tools"]).ends_with("\n401"));
        let call = ["/v1/tools/echo/call", "--header", &key, "--json", r#"{"arguments":{}}"#];
        let called = self.curl(&call);
        assert!(called.ends_with("\n200"), "{called}");

        // Events arrive while the stream is open.
        let mut stream = self.curl_command(&["/v1/executions/stream", "--header", &key]);
        let mut stream = stream.stdout(Stdio::piped()).spawn().expect("`curl` is installed");
        let mut events = stream.stdout.take().expect("it is piped");
        let (sender, received) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut text = String::new();
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = events.read(&mut buffer) {
                text.push_str(&String::from_utf8_lossy(&buffer[..length]));
                if text.contains("event: execution") {
                    let _ = sender.send(());
                    return;
                }
            }
        });
        wait_until("an event through the proxy", || {
            assert!(self.curl(&call).ends_with("\n200"));
            received.try_recv().is_ok()
        });
        let _ = stream.kill();
        let _ = stream.wait();
        assert!(!self.gateway.seen().is_empty());
    }
}

#[test]
#[ignore = "needs the programs that `cargo xtask test` installs"]
#[expect(clippy::disallowed_methods, reason = "nginx is the other side of the test")]
fn nginx() {
    let proxy = Proxy::start("nginx", |config, program, port| {
        let file = |name: &str| program.path(name).display().to_string();
        let server = config
            .replace("listen 443 ssl", &format!("listen 127.0.0.1:{port} ssl"))
            .replace(&format!("/etc/letsencrypt/live/{HOST}/fullchain.pem"), &file("cert.pem"))
            .replace(&format!("/etc/letsencrypt/live/{HOST}/privkey.pem"), &file("key.pem"));
        // What the package of a distribution has around the servers.
        let folders = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
        let folders = folders.map(|kind| format!("{kind}_temp_path {};", file(kind))).concat();
        let whole = format!(
            "daemon off; pid {}; error_log stderr;\nevents {{}}\nhttp {{ access_log off; {folders}\n{server}}}\n",
            file("pid")
        );
        let mut command = Command::new(peers().join("debian/usr/sbin/nginx"));
        command.args(["-p", text(&program.project), "-c", &file("proxy.conf")]);
        (whole, command)
    });
    proxy.check();
}

#[test]
#[ignore = "needs the programs that `cargo xtask test` installs"]
#[expect(clippy::disallowed_methods, reason = "Caddy is the other side of the test")]
fn caddy() {
    let proxy = Proxy::start("caddyfile", |config, program, port| {
        let file = |name: &str| program.path(name).display().to_string();
        // A port and a certificate of the test, where Caddy would get one from Let's Encrypt.
        let tls = format!("https://{HOST}:{port} {{\n    tls {} {}\n", file("cert.pem"), file("key.pem"));
        let site = config.replace(&format!("{HOST} {{\n"), &tls);
        let whole = format!("{{\n    admin off\n    auto_https disable_redirects\n}}\n{site}");
        let mut command = Command::new(peers().join("debian/usr/bin/caddy"));
        command.args(["run", "--adapter", "caddyfile", "--config", &file("proxy.conf")]);
        command.env("HOME", &program.home).env("XDG_DATA_HOME", &program.home);
        (whole, command)
    });
    proxy.check();
}
