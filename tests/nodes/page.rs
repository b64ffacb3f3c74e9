//! The page of nodes: its lists cover all shards.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::client::{Chunks, Streamed};
use crate::cluster::{Cluster, owned, this_version};

/// Requests a view of a node. Returns its HTML.
fn view(cluster: &Cluster, node: usize, path: &str) -> String {
    let (status, html) = cluster.ask(node, &format!("GET {path}"), "accept: text/html\r\n", &Value::Null);
    assert_eq!(status, 200, "{path}: {html}");
    html.as_str().map_or_else(|| html.to_string(), str::to_owned)
}

fn listed(html: &str) -> BTreeSet<String> {
    html.split("id=\"s-").skip(1).map(|row| row.split('"').next().unwrap().to_owned()).collect()
}

/// A stream of a list, as a browser opens it.
struct LiveList(BufReader<Chunks>);

impl LiveList {
    fn open(cluster: &Cluster, node: usize, path: &str) -> Self {
        let Streamed { status, body, headers } =
            cluster.client.open(cluster.nodes[node].port, &format!("GET {path}"), "", "").unwrap();
        assert_eq!((status, headers.contains("text/event-stream")), (200, true), "{headers}");
        Self(body)
    }

    fn until(&mut self, fits: impl Fn(&str) -> bool) -> String {
        let mut message = String::new();
        for line in self.0.by_ref().lines() {
            match line.unwrap().strip_prefix("data: ") {
                Some(data) => message.extend([data, "\n"]),
                None if fits(&message) => return message,
                None => message.clear(),
            }
        }
        panic!("the stream ended after {message}")
    }
}

/// Sends a form of the page. Returns the status and the address to which it leads.
fn send_form(cluster: &Cluster, node: usize, path: &str, form: &str) -> (u16, String) {
    let form_type = "content-type: application/x-www-form-urlencoded\r\n";
    let answer = cluster.client.open_as(cluster.nodes[node].port, &format!("POST {path}"), form_type, form).unwrap();
    let location = answer.headers.lines().find_map(|line| line.strip_prefix("location: ")).unwrap_or_default();
    (answer.status, location.to_owned())
}

#[test]
fn d4_page_lists_the_sessions_of_all_shards() {
    let mut cluster = Cluster::steady(2, 4);
    let mut sessions: BTreeSet<String> = (0..6).map(|n| cluster.open(n % 2, &format!("quick {n}"))).collect();
    for session in &sessions {
        assert_eq!(cluster.outcome(0, session), "completed");
    }
    for node in 0..2 {
        let page = view(&cluster, node, "/");
        assert_eq!((listed(&page), page.contains("No answer from")), (sessions.clone(), false), "{page}");
        assert_eq!(listed(&view(&cluster, node, "/?q=quick+3")).len(), 1);
    }
    // The control: one shard has a part of them, and its page stays with it.
    let of_shard: Vec<_> = (1..=4).map(|n| listed(&view(&cluster, 0, &format!("/?shard=shard-{n}")))).collect();
    assert_eq!(of_shard.iter().flatten().cloned().collect::<BTreeSet<_>>(), sessions);
    assert!(of_shard.iter().all(|part| part.len() < sessions.len()), "{of_shard:?}");
    let unknown = cluster.ask(0, "GET /?shard=none", "", &Value::Null);
    assert_eq!((unknown.0, &unknown.1["code"]), (422, &json!("unknown_shard")));

    let mut live = LiveList::open(&cluster, 0, "/live/sessions?q=&state=&workspace=");
    let mut one_shard = LiveList::open(&cluster, 1, "/live/sessions?q=&state=&workspace=&shard=shard-2");
    assert_eq!(listed(&live.until(|_| true)), sessions);
    assert_eq!(listed(&one_shard.until(|_| true)), of_shard[1]);
    for node in 0..2 {
        let (status, location) = send_form(&cluster, node, "/open", "agent=general&text=quick+form");
        let id = location.strip_prefix("/s/").unwrap_or_else(|| panic!("{status} {location}")).to_owned();
        sessions.insert(id.clone());
        let row = live.until(|message| message.contains(&id));
        assert_eq!(listed(&row), sessions);
        // Its own view is answered by its shard.
        assert!(view(&cluster, 1 - node, &format!("/s/{id}")).contains("quick form"));
    }
    let (status, location) = send_form(&cluster, 0, "/open?shard=shard-2", "agent=general&text=quick+there");
    let id = location.strip_prefix("/s/").unwrap_or_else(|| panic!("{status} {location}"));
    let shown = listed(&one_shard.until(|message| message.contains(id)));
    // Sessions of the forms above may be placed there too.
    assert_eq!(shown, listed(&view(&cluster, 0, "/?shard=shard-2")));
    assert!(shown.len() > of_shard[1].len() && shown.contains(id), "{shown:?}");
    drop((live, one_shard));
    cluster.end();
}

/// A call of each node's shards waits for an approval, and is answered through the other one.
#[test]
fn d4_page_shows_the_approvals_of_all_shards() {
    let mut cluster = Cluster::start_with_args(2, 2, &["--ask", "shell.run"]);
    let asks = |html: &str| html.matches("class=\"entry ask\"").count();
    let mut live = LiveList::open(&cluster, 0, "/live/approvals");
    live.until(|message| message.contains("#cards") && asks(message) == 0);
    let sessions = [cluster.open(0, "mark one"), cluster.open(1, "mark two")];
    let cards = live.until(|message| asks(message) == 2);
    assert!(cards.contains("<hx-partial hx-target=\"#asks\" hx-swap=\"innerMorph\">2</hx-partial>"), "{cards}");
    for (node, session) in sessions.iter().enumerate() {
        let page = view(&cluster, node, "/approvals");
        assert_eq!((asks(&page), &*view(&cluster, node, "/asks")), (2 - node, &*(2 - node).to_string()));
        let card = page.split(&format!("action=\"/s/{session}/approve\"")).nth(1).unwrap();
        let digest = card.split("name=\"digest\" value=\"").nth(1).unwrap().split('"').next().unwrap();
        let form = format!("call=1.0&digest={digest}&verdict=allow");
        let (status, location) = send_form(&cluster, node, &format!("/s/{session}/approve"), &form);
        assert_eq!((status, location), (303, format!("/s/{session}")));
        live.until(|message| asks(message) == 1 - node && message.contains("#cards"));
        assert_eq!(cluster.outcome(1 - node, session), "completed");
    }
    drop(live);
    cluster.end();
}

/// The only node that may claim a shard is killed: the page names it until it is back. The control: before the kill.
#[test]
fn d4_page_names_the_shards_that_it_lacks() {
    let mut cluster = Cluster::start(1, 1);
    let labelled = cluster.add_node(this_version(), &["--label", "gpu"], 1);
    cluster.wait_for(|members| owned(members) == 2);
    let here = cluster.open(0, "quick");
    let (status, there) = cluster.ask(0, "POST /v1/sessions?label=gpu", "", &json!({"input": {"text": "quick"}}));
    assert_eq!(status, 201, "{there}");
    let there = there["session"]["id"].as_str().unwrap().to_owned();
    for session in [&here, &there] {
        assert_eq!(cluster.outcome(0, session), "completed");
    }
    let both = BTreeSet::from([here.clone(), there]);
    let lacks = "No answer from gpu-shard-1:";
    let mut live = LiveList::open(&cluster, 0, "/live/sessions");
    let first = live.until(|_| true);
    assert_eq!((listed(&first), first.contains(lacks)), (both.clone(), false));
    cluster.kill(labelled);
    // The rows remain in a page that has them.
    assert_eq!(listed(&live.until(|message| message.contains(lacks))), both);
    cluster.wait_for(|members| owned(members) == 1);
    let answer = cluster.client.open(cluster.nodes[0].port, "GET /", "", "").unwrap();
    let named = answer.headers.lines().any(|line| line == "subtend-missing-shards: gpu-shard-1");
    assert_eq!((answer.status, named), (200, true), "{}", answer.headers);
    drop(answer);
    let page = view(&cluster, 0, "/");
    assert_eq!((listed(&page), page.contains(lacks)), (BTreeSet::from([here]), true), "{page}");
    assert!(view(&cluster, 0, "/approvals").contains(lacks));
    cluster.start_node(labelled, 1);
    assert_eq!(listed(&live.until(|message| !message.contains(lacks))), both);
    drop(live);
    cluster.end();
}

/// Runs tests/browser/nodes.mjs, which says when the node with a label is killed and started.
#[test]
fn d4_browser_follows_the_lists_of_all_shards() {
    let mut cluster = Cluster::start_with_args(1, 1, &["--ask", "shell.run"]);
    let labelled = cluster.add_node(this_version(), &["--label", "gpu", "--ask", "shell.run"], 1);
    cluster.wait_for(|members| owned(members) == 2);
    let ready: Value = serde_json::from_str(&std::fs::read_to_string(cluster.ready_file(0)).unwrap()).unwrap();
    let mut script = Command::new("node");
    script.current_dir(env!("CARGO_MANIFEST_DIR")).args(["tests/browser/nodes.mjs", ready["login"].as_str().unwrap()]);
    let mut script = script.stdout(Stdio::piped()).spawn().unwrap();
    for line in BufReader::new(script.stdout.take().unwrap()).lines() {
        match &*line.unwrap() {
            "kill" => cluster.kill(labelled),
            "start" => cluster.start_node(labelled, 1),
            other => panic!("{other}"),
        }
    }
    assert!(script.wait().unwrap().success());
    cluster.end();
}
