//! The page of a session: its conversation and the actions of users.

use super::*;

pub(super) const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");

pub(super) async fn form(app: &Router, path: &str, body: &str) -> crate::support::HttpResponse {
    request(app, Method::POST, path, &[FORM, ("hx-request", "true")], body).await
}

/// Waits until a call needs an approval; returns its card.
async fn card(app: &Router) -> String {
    loop {
        let page = get(app, "/approvals").await.body;
        if page.contains("class=\"entry ask\"") {
            return part(&page, "<article class=\"entry ask\"", "</article>").to_owned();
        }
        tokio::task::yield_now().await;
    }
}

pub(super) fn field<'a>(html: &'a str, name: &str) -> &'a str {
    let start = format!("name=\"{name}\" value=\"");
    let at = html.find(&start).unwrap_or_else(|| panic!("no {name} in {html}")) + start.len();
    html[at..].split_once('"').expect("an end").0
}

#[tokio::test]
async fn conversation_shows_inputs_answers_and_ends() {
    let (host, app, id) = hosted_with("say <script>alert(1)</script> **now**").await;
    let short = get(&app, &format!("/v1/sessions/{id}")).await.json()["short"].as_str().expect("a name").to_owned();
    let page = get(&app, &format!("/s/{id}")).await.body;
    let ids = [(&*id, "ID"), (&*short, "a")];
    let from = page.find("<article").expect("an entry");
    let entries = &page[from..page.find("</section>").expect("an end")];
    let entries: Vec<_> = plain(entries, &ids).split("<footer").map(str::to_owned).collect();
    assert_eq!(entries.len(), 3, "{entries:?}");
    let texts = [
        "<div class=\"text\">say &#60;script&#62;alert(1)&#60;/script&#62; **now**</div>",
        "<div class=\"md\"><p>Hello. You said: say &lt;script&gt;alert(1)&lt;/script&gt; <strong>now</strong></p>\n</div>",
    ];
    for (entry, text) in entries.iter().zip(texts) {
        assert!(entry.contains(text), "{text} in {entry}");
    }
    assert!(entries[2].contains("<strong>run 1 completed</strong>"), "{}", entries[2]);
    assert!(page.contains("<span class=\"state good\">completed</span>"), "{page}");
    finish(host, app).await;
}

#[tokio::test]
async fn approval_shows_the_whole_call_and_applies_once() {
    let (host, app) = hosted().await;
    let opened = post(&app, "/v1/sessions", &json!({"input": {"text": "make it"}})).await.json();
    let id = opened["session"]["id"].as_str().expect("an id");
    let card = card(&app).await;
    assert!(card.contains("<strong>make.thing</strong> <code>a boat</code>"), "{card}");
    let listed = get(&app, "/v1/approvals").await.json();
    let deadline = listed[0]["deadline_ms"].as_i64().expect("a deadline");
    assert_eq!((&listed[0]["agent"], &listed[0]["title"]), (&json!("general"), &json!("make it")));
    assert!(deadline > host.runtime().now_ms(), "{listed}");
    assert!(
        card.contains(&format!(">general {}</a> make it · run 1", listed[0]["path"].as_str().expect("a path"))),
        "{card}"
    );
    assert!(card.contains(&format!("<span data-until=\"{deadline}\"></span>")), "{card}");
    assert!(card.contains("<pre tabindex=\"0\">{\n  &#34;what&#34;: &#34;a boat&#34;\n}</pre>"), "{card}");
    let (call, digest) = (field(&card, "call"), field(&card, "digest"));
    let path = format!("/s/{id}/approve");
    let other = form(&app, &path, &format!("call={call}&digest={}&verdict=allow", "0".repeat(32))).await;
    assert_eq!(other.status, StatusCode::CONFLICT, "{}", other.body);
    let allow = format!("call={call}&digest={digest}&verdict=allow");
    let first = form(&app, &path, &allow).await;
    assert_eq!((first.status, &*first.body), (StatusCode::OK, "Approved once."));
    assert_eq!(form(&app, &path, &allow).await.status, StatusCode::CONFLICT);
    let run = get(&app, &format!("/v1/sessions/{id}/runs/1?wait=true&timeout=20000")).await.json();
    assert_eq!(run["outcome"], "completed");
    let page = get(&app, &format!("/s/{id}")).await.body;
    let call = part(&page, "<details class=\"call\"", "</details>");
    let expected = "<details class=\"call\" id=\"c-1-0\">\n\
        <summary><code>make {&#34;what&#34;:&#34;a boat&#34;}</code> <span class=\"state good\">ok</span></summary>\n\
        <p class=\"small dim\">make, input</p>\n<pre tabindex=\"0\">{\n&#34;what&#34;: &#34;a boat&#34;\n}</pre>\n\
        <p class=\"small dim\">output</p>\n<pre tabindex=\"0\">made</pre>\n</details>";
    assert_eq!(plain(call, &[]), expected);
    finish(host, app).await;
}

/// The control: a short call is shown in full and can be approved.
#[tokio::test]
async fn approvals_of_long_calls_are_bounded() {
    let (host, app) = hosted().await;
    let mut ids = Vec::new();
    // A character that is named takes 16 bytes of HTML.
    for count in std::iter::once(300_000).chain([30_000; 10]) {
        let input = format!("make {}", "\u{7f}".repeat(count));
        let opened = post(&app, "/v1/sessions", &json!({"input": {"text": input}})).await.json();
        ids.push(opened["session"]["id"].as_str().expect("an id").to_owned());
        while get(&app, "/v1/approvals").await.json().as_array().map(Vec::len) != Some(ids.len()) {
            tokio::task::yield_now().await;
        }
    }
    let long = card(&app).await;
    assert!(long.len() < 200_000 && long.contains(&format!("subtend approvals {}</code>", ids[0])), "{}", long.len());
    let buttons = ["allow", "always", "deny"].map(|verdict| long.contains(&format!("value=\"{verdict}\"")));
    assert_eq!(buttons, [false, false, true]);
    let page = get(&app, "/approvals").await.body;
    let shown = page.matches("class=\"entry ask\"").count();
    assert!(page.len() < 5 << 20 && shown > 2, "{} {shown}", page.len());
    assert!(page.contains(&format!("Too long to be shown here: {} further calls. ", ids.len() - shown)), "{shown}");
    let page = get(&app, &format!("/s/{}", ids[10])).await.body;
    let own = ["class=\"entry ask\"", "value=\"allow\"", "value=\"always\""].map(|part| page.matches(part).count());
    assert_eq!(own, [1, 1, 1]);
    drop(app);
    end(host).await;
}

#[tokio::test]
async fn queued_message_is_shown_and_removed() {
    let (host, app) = hosted().await;
    let opened = post(&app, "/v1/sessions", &json!({"input": {"text": "hang"}})).await.json();
    let id = opened["session"]["id"].as_str().expect("an id");
    let sent = form(&app, &format!("/s/{id}/send"), "text=later&lane=send").await;
    assert_eq!((sent.status, &*sent.body), (StatusCode::OK, "Accepted for run 1."));
    let page = get(&app, &format!("/s/{id}")).await.body;
    assert!(page.contains("<span>later</span>"), "{page}");
    let removal = part(&page, &format!("/s/{id}/queue/"), "/remove").to_owned();
    assert_eq!(form(&app, &removal, "").await.body, "Removed.");
    assert!(!get(&app, &format!("/s/{id}")).await.body.contains("<span>later</span>"));
    // A browser without scripts is redirected to the session.
    let plain = request(&app, Method::POST, &format!("/s/{id}/cancel"), &[FORM], "run=1").await;
    assert_eq!(
        (plain.status, &plain.headers["location"]),
        (StatusCode::SEE_OTHER, &format!("/s/{id}").parse().expect("a value"))
    );
    assert!(form(&app, &format!("/s/{id}/cancel"), "run=1").await.body.starts_with("Run 1 had ended: cancelled"));
    finish(host, app).await;
}

/// A form that is sent late must not stop the run that took the next input.
#[tokio::test]
async fn form_of_an_ended_run_does_not_stop_the_next() {
    let (host, app, id) = hosted_with("one").await;
    form(&app, &format!("/s/{id}/send"), "text=hang&lane=send").await;
    let page = get(&app, &format!("/s/{id}")).await.body;
    assert_eq!(page.matches("<input type=\"hidden\" name=\"run\" value=\"2\">").count(), 2, "{page}");
    let cancelled = form(&app, &format!("/s/{id}/cancel"), "run=1").await.body;
    assert!(cancelled.starts_with("Run 1 had ended: completed"), "{cancelled}");
    let interrupted = form(&app, &format!("/s/{id}/interrupt"), "run=1").await.body;
    assert!(interrupted.contains("run 1 is not in flight"), "{interrupted}");
    assert_eq!(get(&app, &format!("/v1/sessions/{id}/runs/2")).await.json()["in_flight"], true);
    assert_eq!(form(&app, &format!("/s/{id}/cancel"), "run=2").await.body, "Cancelled run 2.");
    finish(host, app).await;
}

#[tokio::test]
async fn stream_continues_where_the_page_was_read() {
    let (host, app, id) = hosted_with("one").await;
    let page = get(&app, &format!("/s/{id}")).await.body;
    let path = part(&page, &format!("/s/{id}/live?seen="), "\"").trim_end_matches('"').to_owned();
    let mut stream = Stream::open(&app, &path).await;
    let first = stream.next().await;
    // The browser has all entries, so none is sent again.
    assert!(!first.contains("<article"), "{first}");
    form(&app, &format!("/s/{id}/send"), "text=two").await;
    let mut entries = String::new();
    while !entries.contains("run 2 completed") {
        entries.push_str(&stream.next().await);
    }
    assert_eq!(entries.matches("hx-target=\"#entries\" hx-swap=\"beforeend\"><article").count(), 3, "{entries}");
    // A page that was read after the first run gets all later entries.
    drop(stream);
    let mut again = Stream::open(&app, &path).await;
    let all = again.next().await;
    assert_eq!(all.matches("hx-target=\"#entries\" hx-swap=\"beforeend\"><article").count(), 3, "{all}");
    drop((again, app));
    end(host).await;
}

/// Without the bounds, the page of this session would have 100 MB. The control: notices say what is left out.
#[tokio::test]
async fn page_of_large_messages_is_bounded() {
    let (host, app) = hosted().await;
    let id = open_and_finish(&app, &"< ".repeat(500_000)).await;
    for run in 2..=20 {
        let sent = post(&app, &format!("/v1/sessions/{id}/inputs"), &json!({"text": "large ".repeat(170_000)})).await;
        assert!(sent.status.is_success(), "{}", sent.body);
        get(&app, &format!("/v1/sessions/{id}/runs/{run}?wait=true&timeout=20000")).await;
    }
    let newest = get(&app, &format!("/s/{id}")).await.body;
    assert!(newest.len() < 9 << 20 && newest.len() > 7 << 20, "{}", newest.len());
    assert!(newest.contains(" bytes more: the API has them]"), "the large messages are clipped");
    let earlier = part(&newest, &format!("<p><a href=\"/s/{id}?all=on\">"), "</a>");
    assert!(earlier.contains("Show ") && earlier.contains(" earlier entries"), "{earlier}");
    let all = get(&app, &format!("/s/{id}?all=on")).await.body;
    assert!(all.len() < 9 << 20, "{}", all.len());
    assert!(all.contains(&format!("left out: <a href=\"/v1/sessions/{id}/transcript\">the API</a>")));
    let mut stream = Stream::open(&app, &format!("/s/{id}/live?seen=0")).await;
    let live = stream.next().await;
    assert!(live.len() < 9 << 20 && live.contains("changes left out here"), "{}", live.len());
    for view in ["replay", "replay?at=2", "tree", "timeline", "usage", "branches"] {
        let page = get(&app, &format!("/s/{id}/{view}")).await;
        assert!(page.status.is_success() && page.body.len() < 9 << 20, "{view}: {}", page.body.len());
    }
    drop((stream, app));
    end(host).await;
}

/// The control: a short entry is shown in full.
#[tokio::test]
async fn entry_of_too_much_html_is_a_notice() {
    let (host, app) = hosted().await;
    let id = open_and_finish(&app, &"<".repeat(1_000_000)).await;
    let page = get(&app, &format!("/s/{id}")).await.body;
    assert!(page.len() < 100_000, "{}", page.len());
    let notices = page.matches("[this entry has more than 1048576 bytes of HTML: GET /v1/sessions/").count();
    assert_eq!(notices, 2, "{page}");
    let short = open_and_finish(&app, "<").await;
    assert!(!get(&app, &format!("/s/{short}")).await.body.contains("bytes of HTML"));
    finish(host, app).await;
}

#[tokio::test]
async fn branch_links_to_its_parent() {
    let (host, app, id) = hosted_with("one").await;
    let page = get(&app, &format!("/s/{id}")).await.body;
    let at = field(&page, "at").to_owned();
    let made = request(&app, Method::POST, &format!("/s/{id}/branch"), &[FORM], &format!("at={at}")).await;
    assert_eq!(made.status, StatusCode::SEE_OTHER, "{}", made.body);
    let branch = get(&app, made.headers["location"].to_str().expect("a place")).await.body;
    assert!(branch.contains(&format!("<a href=\"/s/{id}\">Back to one</a>")), "{branch}");
    let of = field(&page, "of").to_owned();
    let made = request(&app, Method::POST, &format!("/s/{id}/regenerate"), &[FORM], &format!("of={of}")).await;
    assert_eq!(made.status, StatusCode::SEE_OTHER, "{}", made.body);
    let page = get(&app, &format!("/s/{id}")).await.body;
    assert!(page.contains(" of 2</span>"), "{page}");
    finish(host, app).await;
}
