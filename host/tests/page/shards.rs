//! Lists that cover several shards, each with a host of its own.

use std::collections::BTreeSet;

use futures_util::stream;
use http_body_util::BodyExt as _;
use subtend_host::{PageList, ShardedPage};

use super::*;

const SHARDS: [&str; 2] = ["shard-1", "shard-2"];

/// Returns the list of all shards for a query, without their parts.
fn sharded(list: PageList, query: &str) -> ShardedPage {
    let uri = format!("/{query}").parse().expect("an address");
    ShardedPage::new(list, &uri, SHARDS.map(str::to_owned).to_vec(), None).expect("a valid query")
}

async fn body_of(response: axum::response::Response) -> String {
    let body = response.into_body().collect().await.expect("a body").to_bytes();
    String::from_utf8(body.to_vec()).expect("text")
}

/// Returns the page with the parts of these hosts.
async fn page_of(apps: &[Router], list: PageList, query: &str) -> String {
    let mut page = sharded(list, query);
    for (shard, app) in SHARDS.into_iter().zip(apps) {
        let part = get(app, &page.part_path()).await;
        assert_eq!(part.status, StatusCode::OK, "{}", part.body);
        page.set(shard, Some(part.body.as_bytes()));
    }
    body_of(page.page()).await
}

/// Returns the ids of the listed sessions.
fn listed(page: &str) -> Vec<String> {
    page.split("<li id=\"s-").skip(1).map(|row| row.split('"').next().unwrap_or_default().to_owned()).collect()
}

fn link(page: &str, name: &str) -> Option<String> {
    let (before, _) = page.split_once(&format!("\">{name}</a>"))?;
    let (_, query) = before.rsplit_once("href=\"/")?;
    Some(query.replace("&#38;", "&"))
}

/// The pages of two shards, and the control: those of one host.
#[tokio::test]
async fn d4_pages_of_sessions_lead_back_and_forth() {
    let (first, second) = (hosted().await, hosted().await);
    let apps = [first.1.clone(), second.1.clone()];
    let mut opened: [Vec<(i64, String)>; 2] = Default::default();
    for n in 0..120 {
        // More than a page of the first host in a row.
        let of = usize::from(n > 70 && n % 2 == 0);
        let session = post(&apps[of], "/v1/sessions", &json!({})).await.json()["session"].clone();
        let id = session["id"].as_str().expect("an id").to_owned();
        opened[of].push((session["created_ms"].as_i64().expect("a time"), id));
    }
    let pages_of = |opened: &[(i64, String)]| {
        let mut newest = opened.to_vec();
        newest.sort_by(|one, other| other.cmp(one));
        newest.chunks(50).map(|page| page.iter().map(|(_, id)| id.clone()).collect()).collect::<Vec<Vec<_>>>()
    };
    for (apps, pages) in [(&apps[..], pages_of(&opened.concat())), (&apps[..1], pages_of(&opened[0]))] {
        let read = async |query: &str| match apps {
            [one] => get(one, &format!("/{query}")).await.body,
            all => page_of(all, PageList::Sessions, query).await,
        };
        let mut last = read("").await;
        let mut found = vec![listed(&last)];
        while let Some(older) = link(&last, "Older") {
            last = read(&older).await;
            found.push(listed(&last));
        }
        assert_eq!(found, pages);
        let mut back = vec![listed(&last)];
        while let Some(newer) = link(&last, "Newer") {
            last = read(&newer).await;
            back.push(listed(&last));
        }
        back.reverse();
        assert_eq!(back, pages);
    }
    let bad = get(&apps[0], "/?older=yesterday").await;
    assert_eq!(bad.status, StatusCode::BAD_REQUEST, "{}", bad.body);
    drop(apps);
    finish(first.0, first.1).await;
    finish(second.0, second.1).await;
}

#[tokio::test]
async fn d4_page_of_shards_loads_nothing_from_elsewhere() {
    let (first, second) = (hosted_with("in the first").await, hosted_with("in <b>the second</b>").await);
    let apps = [first.1.clone(), second.1.clone()];
    let sessions = page_of(&apps, PageList::Sessions, "?q=in&state=quiet").await;
    assert_eq!(listed(&sessions), [second.2.clone(), first.2.clone()]);
    assert!(sessions.contains("in &#60;b&#62;the second&#60;/b&#62;") && !sessions.contains("<b>"), "{sessions}");
    assert!(sessions.contains("<option selected>general</option>"), "{sessions}");
    assert!(sessions.contains("<option>shard-1</option><option>shard-2</option>"), "{sessions}");
    assert!(sessions.contains("hx-sse:connect=\"/live/sessions?q=in&#38;state=quiet&#38;workspace=\""), "{sessions}");
    let approvals = page_of(&apps, PageList::Approvals, "").await;
    for page in [&sessions, &approvals] {
        for bad in ["http://", "https://", "<style", " style=", "onclick", "hx-on", "javascript:", "No answer"] {
            assert!(!page.contains(bad), "{bad}: {page}");
        }
        assert_eq!(page.matches("<script src=\"/assets/").count(), page.matches("<script").count());
        assert!(page.contains("id=\"asks\" class=\"badge\" hx-get=\"/asks\""), "{page}");
    }
    // The control: a host alone has one count, and no shard to choose.
    let alone = get(&first.1, "/").await.body;
    assert!(alone.contains("id=\"asks\" class=\"badge\"></span>") && !alone.contains("name=\"shard\""), "{alone}");
    drop(apps);
    finish(first.0, first.1).await;
    finish(second.0, second.1).await;
}

/// The control: the same page with an answer of each shard.
#[tokio::test]
async fn d4_page_of_one_shard_leads_to_that_shard() {
    let (host, app, id) = hosted_with("one").await;
    for (list, streams, opens) in [
        (PageList::Sessions, "\"/live/sessions?q=x&#38;state=&#38;workspace=&#38;shard=shard-2\"", true),
        (PageList::Approvals, "\"/live/approvals?shard=shard-2\"", false),
    ] {
        let uri = "/?q=x".parse().expect("an address");
        let all = SHARDS.map(str::to_owned).to_vec();
        let page = ShardedPage::new(list, &uri, all, Some("shard-2".to_owned())).expect("a valid query");
        assert_eq!(page.shards(), ["shard-2"]);
        assert!(!page.part_path().contains("shard") && !page.live_path().contains("shard"), "{page:?}");
        let html = body_of(page.page()).await;
        assert!(html.contains(streams), "{html}");
        assert_eq!(html.contains("action=\"/open?shard=shard-2\""), opens, "{html}");
        assert_eq!(html.contains("<option selected>shard-2</option>"), opens, "{html}");
    }
    let whole = page_of(&[app.clone(), app.clone()], PageList::Sessions, "").await;
    assert!(whole.contains("action=\"/open\"") && whole.contains(&id), "{whole}");
    finish(host, app).await;
}

/// Cards of two hosts, with the number of all of them. The control: the number of one.
#[tokio::test]
async fn d4_approvals_of_shards_are_on_one_page() {
    let (first, second) = (hosted().await, hosted().await);
    let apps = [first.1.clone(), second.1.clone()];
    let mut expected = Vec::new();
    for (app, text) in [(&apps[0], "make one"), (&apps[1], "make two"), (&apps[1], "make three")] {
        let opened = post(app, "/v1/sessions", &json!({"input": {"text": text}})).await.json();
        let id = opened["session"]["id"].as_str().expect("an id").to_owned();
        while !get(app, "/v1/approvals").await.body.contains(&id) {
            tokio::task::yield_now().await;
        }
        expected.push(format!("/s/{id}/approve"));
    }
    let page = page_of(&apps, PageList::Approvals, "").await;
    let forms = page.split("hx-post=\"").skip(1).filter_map(|rest| rest.split('"').next());
    assert_eq!(forms.map(str::to_owned).collect::<Vec<_>>(), expected);
    assert_eq!((&*get(&apps[0], "/asks").await.body, &*get(&apps[1], "/asks").await.body), ("1", "2"));
    let mut parts = Vec::new();
    for (shard, app) in SHARDS.into_iter().zip(&apps) {
        parts.push((shard.to_owned(), Some(get(app, "/parts/approvals").await.body.into_bytes())));
    }
    let followed = sharded(PageList::Approvals, "").follow(stream::iter(parts));
    let sent = body_of(followed).await;
    assert!(sent.contains("<hx-partial hx-target=\"#asks\" hx-swap=\"innerMorph\">3</hx-partial>"), "{sent}");
    drop(apps);
    finish(first.0, first.1).await;
    finish(second.0, second.1).await;
}

/// The first message waits for each shard: the browser has the rows of all. A shard that does not answer is named, and
/// its rows remain.
#[tokio::test]
async fn d4_stream_of_shards_names_those_that_are_missing() {
    let (first, second) = (hosted_with("one").await, hosted_with("two").await);
    let page = sharded(PageList::Sessions, "");
    let mut parts = Vec::new();
    for app in [&first.1, &second.1] {
        parts.push(get(app, &page.part_path()).await.body.into_bytes());
    }
    // All else that is awaited is a stream in memory.
    tokio::time::pause();
    let (updates, mut received) = tokio::sync::mpsc::unbounded_channel();
    let received = stream::poll_fn(move |context| received.poll_recv(context));
    let send = |shard: usize, part: Option<&Vec<u8>>| {
        updates.send((SHARDS[shard].to_owned(), part.cloned())).expect("it is received");
    };
    let mut stream = Stream(page.follow(received).into_body().into_data_stream(), String::new());
    send(0, Some(&parts[0]));
    let early = tokio::time::timeout(Duration::from_secs(5), stream.next()).await;
    assert!(early.is_err(), "{early:?}");
    send(1, None);
    let lacking = stream.next().await;
    assert_eq!((listed(&lacking), lacking.contains("No answer from shard-2:")), (vec![first.2.clone()], true));
    send(1, Some(&parts[1]));
    let whole = stream.next().await;
    let both = vec![second.2.clone(), first.2.clone()];
    assert_eq!((listed(&whole), whole.contains("No answer")), (both.clone(), false));
    send(1, None);
    let outdated = stream.next().await;
    assert_eq!((listed(&outdated), outdated.contains("No answer from shard-2:")), (both, true));
    // A node of another version sent something else.
    send(0, Some(&b"7".to_vec()));
    let invalid = stream.next().await;
    assert!(invalid.contains("No answer from shard-1, shard-2:"), "{invalid}");
    drop(stream);
    tokio::time::resume();
    finish(first.0, first.1).await;
    finish(second.0, second.1).await;
}

/// Small values take many times their bytes. The control: a part with fewer of them.
#[test]
fn d4_part_of_too_many_values_is_not_shown() {
    for (count, missing) in [(90_000, vec![]), (110_000, vec!["shard-1".to_owned()])] {
        let cards: Vec<String> = (0..count).map(|_| String::new()).collect();
        let mut page = sharded(PageList::Approvals, "");
        page.set("shard-1", Some(json!({"cards": cards}).to_string().as_bytes()));
        assert_eq!(page.missing(), missing, "{count}");
    }
}

/// The part of a shard is sent when it changes.
#[tokio::test]
async fn d4_part_of_a_list_is_followed() {
    let (host, app) = hosted().await;
    let page = sharded(PageList::Sessions, "");
    let mut stream = Stream::open(&app, &page.live_path()).await;
    let rows = |json: &str| -> BTreeSet<String> { listed(&json.replace("\\\"", "\"")).into_iter().collect() };
    assert_eq!(rows(&stream.next().await), BTreeSet::new());
    let id = open_and_finish(&app, "a new one").await;
    let message = stream.until("completed").await;
    assert_eq!(rows(&message), BTreeSet::from([id]));
    drop((stream, app));
    end(host).await;
}

/// The control: a host alone.
#[tokio::test]
async fn d4_session_of_a_shard_loads_the_count_of_all_approvals() {
    for is_shard in [true, false] {
        let host = Host::new(runtime(&Memory::new()).await, HostOptions { is_shard, ..HostOptions::default() });
        let app = host.router();
        let opened = post(&app, "/v1/sessions", &json!({"input": {"text": "make it"}})).await.json();
        let id = opened["session"]["id"].as_str().expect("an id");
        while get(&app, "/asks").await.body != "1" {
            tokio::task::yield_now().await;
        }
        let page = get(&app, &format!("/s/{id}")).await.body;
        let badge = part(&page, "<span id=\"asks\"", "</span>").to_owned();
        let mut stream = Stream::open(&app, &format!("/s/{id}/live?seen=0")).await;
        let first = stream.until("#approvals").await;
        let expected = match is_shard {
            true => "<span id=\"asks\" class=\"badge\" hx-get=\"/asks\" hx-trigger=\"every 10s, load\"></span>",
            false => "<span id=\"asks\" class=\"badge\">1</span>",
        };
        assert_eq!((&*badge, first.contains("#asks")), (expected, !is_shard), "{first}");
        drop((stream, app));
        end(host).await;
    }
}
