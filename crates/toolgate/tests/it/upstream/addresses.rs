//! Addresses that connections to servers may use.

use serde_json::json;

use crate::support::test_server::{TestServer, project};

/// The address is checked on every connection of every transport, not only when a server is registered.
#[test]
fn connections_keep_to_the_allowed_networks() {
    let kit = TestServer::start("good");
    let localhost = |scheme: &str, path: &str| kit.url(scheme, path).replace("127.0.0.1", "localhost");
    for (transport, url) in [
        ("http", kit.url("http", "mcp")),
        ("http", localhost("http", "mcp")),
        ("http", localhost("https", "mcp")),
        ("http", kit.url("https", "mcp")),
        ("sse", kit.url("http", "sse")),
        ("websocket", kit.url("ws", "ws")),
        ("websocket", localhost("ws", "ws")),
    ] {
        let server =
            |networks| json!({ "s": { "transport": transport, "url": url, "allow_networks": networks } });
        let refused = project(server(json!([]))).run("tools list");
        assert_eq!(refused.code, 69, "{refused}");
        assert!(
            refused.stderr.contains("leads to this machine; that network is not allowed"),
            "{url}: {refused}"
        );
        assert!(refused.stderr.contains("`allow_networks` of the server"), "{url}: {refused}");
    }
    assert_eq!(kit.count("connected"), 0, "nothing was sent");
    let url = kit.url("http", "mcp");
    for networks in [json!(["127.0.0.0/8"]), json!(null)] {
        let mut server = json!({ "s": { "url": url } });
        if networks.is_array() {
            server["s"]["allow_networks"] = networks;
        }
        let listed = project(server).run("tools list");
        assert_eq!(listed.code, 0, "{listed}");
    }
}
