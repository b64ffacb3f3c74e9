//! Removes what is not used from a server's answer to the handshake, which the MCP library keeps as long as the connection.

use rmcp::model::{DiscoverResult, Implementation, InitializeResult, ServerCapabilities, ServerResult};

use crate::bounded::head;

/// Maximum bytes of the name and of the version of a server.
const MAX_NAME: usize = 200;
/// Maximum bytes of a protocol version. Versions are dates.
const MAX_VERSION: usize = 40;

pub(super) const LONG_VERSION: &str = "it answered the handshake with a protocol version of more than 40 bytes";

/// Keeps the protocol version, the names of the server, and which kinds of entries it has. Returns false if the version is too long.
pub(super) fn strip(result: &mut ServerResult) -> bool {
    if let ServerResult::DiscoverResult(found) = result {
        let server = found.server_info();
        let DiscoverResult { capabilities, instructions, meta, .. } = found;
        (*instructions, *meta) = (None, None);
        strip_capabilities(capabilities);
        if let Some(server) = server {
            found.set_server_info(names(&server));
        }
    }
    let ServerResult::InitializeResult(result) = result else { return true };
    let InitializeResult { protocol_version, capabilities, server_info, instructions, meta, .. } = result;
    (*instructions, *meta) = (None, None);
    strip_capabilities(capabilities);
    *server_info = names(server_info);
    protocol_version.as_str().len() <= MAX_VERSION
}

fn strip_capabilities(capabilities: &mut ServerCapabilities) {
    let ServerCapabilities { prompts, resources, tools, .. } = std::mem::take(capabilities);
    (capabilities.prompts, capabilities.resources, capabilities.tools) = (prompts, resources, tools);
}

fn names(server: &Implementation) -> Implementation {
    Implementation::new(head(&server.name, MAX_NAME), head(&server.version, MAX_NAME))
}

#[cfg(test)]
mod tests {
    use rmcp::transport::Transport as _;
    use serde_json::{Value, json};
    use tokio::io::AsyncWriteExt as _;

    use super::super::client::Client;
    use super::super::open_requests::{OpenRequests, bounded_transport};

    /// Returns the result that the library receives if a server answers with `result`, or the fault.
    async fn received(result: Value) -> Result<Value, Option<String>> {
        let (server, client) = tokio::io::duplex(4 << 20);
        let open = OpenRequests::default();
        let mut transport = bounded_transport(tokio::io::split(client), open.clone(), Client::default());
        let (_answers, mut out) = tokio::io::split(server);
        let line = json!({"jsonrpc": "2.0", "id": 1, "result": result}).to_string() + "\n";
        out.write_all(line.as_bytes()).await.unwrap();
        let message = transport.receive().await.ok_or_else(|| open.fault())?;
        Ok(serde_json::to_value(message).unwrap()["result"].take())
    }

    /// A server fills each part of its answer. The control: what is used is kept.
    #[tokio::test]
    async fn unused_parts_of_a_handshake_are_dropped() {
        let long = || "x".repeat(200_000);
        let server = |name: String| json!({"name": name, "version": "1", "title": long(), "description": long(), "websiteUrl": long(), "icons": [{"src": long()}]});
        let capabilities = json!({
            "tools": {"listChanged": true}, "resources": {"subscribe": true}, "prompts": {}, "logging": {"a": long()},
            "completions": {"a": long()}, "experimental": {"a": {"a": long()}}, "extensions": {"a": {"a": long()}}
        });
        let kept = json!({"tools": {"listChanged": true}, "resources": {"subscribe": true}, "prompts": {}});
        let initialize = |version: &str| {
            let server = server(long());
            json!({"protocolVersion": version, "capabilities": capabilities, "serverInfo": server, "instructions": long(), "_meta": {"a": long()}})
        };
        let named = json!({"name": "x".repeat(200), "version": "1"});
        let expected = json!({"protocolVersion": "2025-11-25", "capabilities": kept, "serverInfo": named});
        assert_eq!(received(initialize("2025-11-25")).await, Ok(expected));
        let too_long = "it answered the handshake with a protocol version of more than 40 bytes";
        assert_eq!(received(initialize(&"2".repeat(41))).await, Err(Some(too_long.to_owned())));
        let discover = json!({
            "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": capabilities, "instructions": long(),
            "ttlMs": 0, "cacheScope": "private", "_meta": {"io.modelcontextprotocol/serverInfo": server("fake".into()), "a": long()}
        });
        let expected = json!({
            "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": kept, "ttlMs": 0,
            "cacheScope": "private", "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "fake", "version": "1"}}
        });
        assert_eq!(received(discover).await, Ok(expected));
    }
}
