//! Limits the schemas that the MCP library keeps for a connection over HTTP.
//!
//! The library keeps the last input schema of each tool name until the connection ends, for the headers of calls. It keeps the schemas of a
//! page before the limits of a list apply. A server that lists new names after each change would fill the host's memory.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};

use rmcp::model::Tool;

use super::paging::{ListSize, MAX_LIST_BYTES, MAX_LIST_VALUES};

/// The sizes of the schemas that the library keeps, by the hash of the tool's name.
#[derive(Default)]
pub(super) struct KeptSchemas {
    hasher: RandomState,
    sizes: HashMap<u64, ListSize>,
    total: ListSize,
}

impl KeptSchemas {
    /// Counts the tools of a page. A schema replaces the earlier one of its name.
    ///
    /// # Errors
    /// If the connection must end.
    pub(super) fn add(&mut self, tools: &[Tool]) -> Result<(), String> {
        for tool in tools {
            let mut size = ListSize::of(&serde_json::to_string(&*tool.input_schema).unwrap_or_default());
            size.bytes = size.bytes.saturating_add(tool.name.len());
            let before = self.sizes.insert(self.hasher.hash_one(&*tool.name), size).unwrap_or_default();
            self.total.bytes = self.total.bytes.saturating_add(size.bytes).saturating_sub(before.bytes);
            self.total.values = self.total.values.saturating_add(size.values).saturating_sub(before.values);
        }
        match self.total.is_too_large() {
            true => Err(format!(
                "the tools that it listed since it was connected have more than {MAX_LIST_BYTES} bytes of schemas, or {MAX_LIST_VALUES} values"
            )),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use rmcp::transport::Transport as _;
    use serde_json::json;
    use tokio::io::AsyncWriteExt as _;

    use super::super::client::Client;
    use super::super::open_requests::{OpenRequests, bounded_transport};

    /// Returns the number of pages that the library receives of 30, and the fault. `tool(n)` is the name and the schema of page `n`.
    async fn pages(keeps_schemas: bool, tool: impl Fn(usize) -> (String, String)) -> (usize, Option<String>) {
        let (server, client) = tokio::io::duplex(1 << 20);
        let open = OpenRequests::default();
        let transport = bounded_transport(tokio::io::split(client), open.clone(), Client::default());
        let mut transport = if keeps_schemas { transport.over_http() } else { transport };
        let (_answers, mut out) = tokio::io::split(server);
        let page = |n: usize| {
            let (name, schema) = tool(n);
            let tool = format!("{{\"name\":\"{name}\",\"inputSchema\":{{\"x\":{schema}}}}}");
            let list =
                format!("{{\"resultType\":\"complete\",\"ttlMs\":0,\"cacheScope\":\"private\",\"tools\":[{tool}]}}");
            format!("{{\"jsonrpc\":\"2.0\",\"id\":{n},\"result\":{list}}}\n")
        };
        let mut received = 0;
        for n in 0..30 {
            out.write_all(page(n).as_bytes()).await.unwrap();
            let Some(message) = transport.receive().await else { break };
            assert_eq!(serde_json::to_value(message).unwrap()["result"]["tools"].as_array().map(Vec::len), Some(1));
            received += 1;
        }
        (received, open.fault())
    }

    /// The controls: the same names again, and a transport whose library keeps no schemas.
    #[tokio::test]
    async fn new_names_in_each_list_end_the_connection() {
        let why =
            "the tools that it listed since it was connected have more than 4194304 bytes of schemas, or 200000 values";
        let fault = || Some(why.to_owned());
        let nested = || format!("[{}]", vec![format!("{}{}", "[".repeat(50), "]".repeat(50)); 400].join(","));
        let long = || json!("x".repeat(500_000)).to_string();
        let name = |n: usize| format!("t{n}");
        assert_eq!(pages(true, |n| (name(n), nested())).await, (9, fault()));
        assert_eq!(pages(true, |n| (name(n), long())).await, (8, fault()));
        assert_eq!(pages(true, |n| (format!("{n}{}", "t".repeat(500_000)), "1".to_owned())).await, (8, fault()));
        // Small schemas first, which larger ones replace.
        let schema = |n: usize| if n < 15 { "1".to_owned() } else { nested() };
        assert_eq!(pages(true, |n| (name(n % 15), schema(n))).await, (15 + 9, fault()));
        assert_eq!(pages(true, |n| (name(n % 9), nested())).await, (30, None));
        assert_eq!(pages(true, |n| (name(n), "1".to_owned())).await, (30, None));
        assert_eq!(pages(false, |n| (name(n), nested())).await, (30, None));
    }
}
