//! Merges the metrics of the node and of its open shards. Each sample of a shard gets a label with the shard's name.

use std::fmt::Write as _;

use axum::body;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use tower::ServiceExt as _;

use crate::gateway::{BufferedRequest, Gateway};

/// Maximum size of the metrics of one shard, in bytes.
const MAX_TEXT: usize = 16 << 20;

struct MetricFamily {
    name: String,
    about: Vec<String>,
    samples: Vec<String>,
}

pub(super) async fn answer(gateway: &Gateway, request: &BufferedRequest) -> Response {
    let (node, mut families) = (gateway.node(), Vec::new());
    for shard in node.open() {
        // A shard that closes in the meantime must not delay the metrics of the node.
        let Some(open) = node.host(&shard) else { continue };
        let Ok(answer) = open.router.oneshot(request.to_request()).await;
        let text = body::to_bytes(answer.into_body(), MAX_TEXT).await.unwrap_or_default();
        add(&mut families, &shard, &String::from_utf8_lossy(&text));
    }
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], openmetrics_text(&families, &node_metrics(gateway))).into_response()
}

fn node_metrics(gateway: &Gateway) -> String {
    let (node, members) = (gateway.node(), gateway.node().live_members());
    let free = members.shards.iter().filter(|shard| members.owner(&shard.name).is_none()).count();
    let alive = members.nodes.iter().filter(|node| node.alive).count();
    let mut text = String::new();
    for (name, about, value) in [
        ("subtend_node_lease", "Whether the lease of this node is valid", usize::from(node.is_live())),
        ("subtend_node_shards", "Shards that are open here", node.open().len()),
        ("subtend_nodes_alive", "Nodes of the database whose lease is valid", alive),
        ("subtend_shards_without_owner", "Shards that no live node owns", free),
    ] {
        // Writing to a string cannot fail.
        let _ = write!(text, "# HELP {name} {about}.\n# TYPE {name} gauge\n{name} {value}\n");
    }
    text
}

fn add(families: &mut Vec<MetricFamily>, shard: &str, text: &str) {
    let mut current = String::new();
    for line in text.lines().filter(|line| *line != "# EOF") {
        let described = line.strip_prefix("# ").and_then(|line| line.split(' ').nth(1));
        if let Some(name) = described {
            current = name.to_owned();
        }
        let at = families.iter().position(|family| family.name == current);
        let family = match at.and_then(|at| families.get_mut(at)) {
            Some(family) => family,
            None => {
                families.push(MetricFamily { name: current.clone(), about: Vec::new(), samples: Vec::new() });
                let Some(last) = families.last_mut() else { return };
                last
            }
        };
        match described {
            Some(_) if family.about.iter().any(|known| known == line) => {}
            Some(_) => family.about.push(line.to_owned()),
            None => family.samples.push(with_shard_label(line, shard)),
        }
    }
}

fn with_shard_label(sample: &str, shard: &str) -> String {
    let end = sample.find(['{', ' ']).unwrap_or(sample.len());
    let (name, rest) = sample.split_at(end);
    match rest.strip_prefix('{') {
        Some(rest) => format!("{name}{{shard=\"{shard}\",{rest}"),
        None => format!("{name}{{shard=\"{shard}\"}}{rest}"),
    }
}

fn openmetrics_text(families: &[MetricFamily], own: &str) -> String {
    let mut text = own.to_owned();
    for family in families {
        for line in family.about.iter().chain(&family.samples) {
            text.push_str(line);
            text.push('\n');
        }
    }
    text.push_str("# EOF\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d4_metrics_of_shards_are_merged() {
        let text = "# HELP runs Runs.\n# TYPE runs gauge\nruns{state=\"queued\"} 3\n# HELP live Live.\n# TYPE live gauge\nlive 1\n# EOF\n";
        let mut families = Vec::new();
        add(&mut families, "a", text);
        add(&mut families, "b", text);
        assert_eq!(
            openmetrics_text(&families, "x 1\n"),
            "x 1\n# HELP runs Runs.\n# TYPE runs gauge\nruns{shard=\"a\",state=\"queued\"} 3\nruns{shard=\"b\",state=\"queued\"} 3\n\
             # HELP live Live.\n# TYPE live gauge\nlive{shard=\"a\"} 1\nlive{shard=\"b\"} 1\n# EOF\n"
        );
    }
}
