//! Finds servers that run Toolgate on the same project: each would start the project again, without end.
//!
//! Looks at the command line only. A server that starts Toolgate in another way is found when it starts, by an
//! environment variable.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use toolgate_types::serve::ServeConfig;
use toolgate_types::server::{StdioTransport, Transport};
use url::{Host, Url};

/// Paths of the MCP endpoints of a gateway.
const ENDPOINTS: [&str; 3] = ["/mcp", "/sse", "/ws"];

/// The suggested fix.
pub(crate) const HINT: &str =
    "remove it: clients connect to the gateway, the gateway does not connect to itself";

/// Returns true if a server is the gateway of this project, started by a command or at its URL.
pub(crate) fn is_own_gateway(transport: &Transport, project: &Path, serve: &ServeConfig) -> bool {
    match transport {
        Transport::Stdio(StdioTransport { command, args, cwd, .. }) => {
            let args: Vec<_> = args.iter().map(|arg| arg.expose()).collect();
            runs_project(command.expose(), &args, cwd, project)
        }
        Transport::Http(remote) | Transport::Sse(remote) | Transport::Websocket(remote) => {
            let public = serve.url.as_deref().and_then(|url| Url::parse(url).ok());
            Url::parse(remote.url.expose()).is_ok_and(|url| {
                is_endpoint_of(&url, serve.listen) || is_endpoint_below(&url, public.as_ref())
            })
        }
    }
}

/// Returns true if a command line runs Toolgate as a server of a project.
pub(crate) fn runs_project(command: &str, args: &[&str], cwd: &Path, project: &Path) -> bool {
    let is_toolgate = Path::new(command).file_stem().is_some_and(|name| name == "toolgate");
    let is_server = args.iter().any(|word| matches!(*word, "stdio" | "serve"));
    if !is_toolgate || !is_server {
        return false;
    }
    let folder = args.iter().enumerate().find_map(|(at, word)| match *word {
        "-C" | "--project" => args.get(at + 1).copied(),
        word => {
            word.strip_prefix("--project=").or_else(|| word.strip_prefix("-C").filter(|it| !it.is_empty()))
        }
    });
    let folder = cwd.join(folder.unwrap_or("."));
    real_path(&folder) == real_path(project)
}

fn real_path(path: &Path) -> PathBuf {
    fs_err::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// Returns true for a URL of an MCP endpoint on this machine, at the port that the gateway listens on.
fn is_endpoint_of(url: &Url, listen: SocketAddr) -> bool {
    let is_here = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback() || listen.ip() == address,
        Some(Host::Ipv6(address)) => address.is_loopback() || listen.ip() == address,
        None => false,
    };
    is_here && url.port_or_known_default() == Some(listen.port()) && is_endpoint(url.path())
}

/// Returns true for a URL of an MCP endpoint below the public URL of the gateway.
fn is_endpoint_below(url: &Url, public: Option<&Url>) -> bool {
    let Some(public) = public else { return false };
    let below = url.path().strip_prefix(public.path().trim_end_matches('/'));
    url.origin() == public.origin() && below.is_some_and(is_endpoint)
}

fn is_endpoint(path: &str) -> bool {
    let is_below = |endpoint: &&str| {
        path.strip_prefix(*endpoint).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    ENDPOINTS.iter().any(is_below)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recognises_the_gateway_of_the_project() {
        let runs = |command: &str, args: &[&str]| {
            runs_project(command, args, Path::new("/work/p"), Path::new("/work/p"))
        };
        assert!(runs("toolgate", &["stdio"]));
        assert!(runs("/usr/bin/toolgate", &["-C", "/work/p", "stdio", "--profile", "x"]));
        assert!(runs("toolgate", &["stdio", "--project=/work/p"]));
        assert!(!runs("toolgate", &["-C", "/work/other", "stdio"]));
        assert!(!runs("toolgate", &["-C", "sub", "stdio"]));
        assert!(!runs("toolgate", &["tools", "list"]) && !runs("npx", &["stdio"]));
    }

    #[test]
    fn recognises_the_url_of_the_gateway() {
        let listen = "127.0.0.1:7332".parse().unwrap();
        let is_own = |url: &str| is_endpoint_of(&Url::parse(url).unwrap(), listen);
        for own in ["http://127.0.0.1:7332/mcp", "http://localhost:7332/mcp/coding", "ws://[::1]:7332/ws"] {
            assert!(is_own(own), "{own}");
        }
        for other in
            ["http://127.0.0.1:7333/mcp", "http://127.0.0.1:7332/mcpx", "http://example.com:7332/mcp"]
        {
            assert!(!is_own(other), "{other}");
        }
        let public = Url::parse("https://tools.example.com/gate/").unwrap();
        let is_below = |url: &str| is_endpoint_below(&Url::parse(url).unwrap(), Some(&public));
        assert!(
            is_below("https://tools.example.com/gate/mcp")
                && is_below("https://tools.example.com:443/gate/sse")
        );
        assert!(
            !is_below("https://tools.example.com/mcp") && !is_below("https://other.example.com/gate/mcp")
        );
    }
}
