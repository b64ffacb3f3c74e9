//! Tests the page through the router, without a browser: fragments, escaping and streams.

use crate::support::*;
use futures_util::StreamExt as _;
use tower::ServiceExt as _;

mod compaction;
#[cfg(unix)]
mod files;
mod options;
mod shards;
mod transcript;
mod tree;
mod views;

/// Replaces ids, short names and times of a page, which differ between runs, and removes blank lines and indentation.
fn plain(html: &str, ids: &[(&str, &str)]) -> String {
    let mut html = html.to_owned();
    for (id, name) in ids {
        html = html.replace(id, name);
    }
    let lines: Vec<_> = html.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let mut text = lines.join("\n");
    while let Some(from) = text.find("<time>") {
        let to = text[from..].find("</time>").expect("an end");
        text.replace_range(from..from + to + "</time>".len(), "TIME");
    }
    text
}

/// Returns the part of a page from `from` to the first `to` after it, inclusive.
fn part<'a>(html: &'a str, from: &str, to: &str) -> &'a str {
    let at = html.find(from).unwrap_or_else(|| panic!("no {from} in {html}"));
    let len = html[at..].find(to).unwrap_or_else(|| panic!("no {to} in {html}"));
    &html[at..at + len + to.len()]
}

struct Stream(axum::body::BodyDataStream, String);

impl Stream {
    async fn open(app: &Router, path: &str) -> Self {
        let request = Request::builder().uri(path).body(Body::empty()).expect("a request");
        let response = app.clone().oneshot(request).await.expect("infallible");
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self(response.into_body().into_data_stream(), String::new())
    }

    async fn next(&mut self) -> String {
        loop {
            if let Some((message, rest)) = self.1.split_once("\n\n") {
                let lines = message.lines().filter_map(|line| line.strip_prefix("data:"));
                let lines: Vec<_> = lines.map(|line| line.strip_prefix(' ').unwrap_or(line)).collect();
                let data = lines.join("\n");
                self.1 = rest.to_owned();
                if !data.is_empty() {
                    return data;
                }
                continue;
            }
            let bytes = self.0.next().await.expect("another message").expect("bytes");
            self.1.push_str(std::str::from_utf8(&bytes).expect("text"));
        }
    }

    async fn until(&mut self, text: &str) -> String {
        loop {
            let message = self.next().await;
            if message.contains(text) {
                return message;
            }
        }
    }
}

#[tokio::test]
async fn sessions_are_listed_and_filtered() {
    let (host, app) = hosted().await;
    let one = open_and_finish(&app, "one <b>bold</b> & \"more\"").await;
    let short = get(&app, &format!("/v1/sessions/{one}")).await.json()["short"].as_str().expect("a name").to_owned();
    let page = get(&app, "/").await;
    assert_eq!(page.headers["content-type"], "text/html; charset=utf-8");
    // A new session has the default agent of the host, not the first one by name.
    assert!(page.body.contains("<option selected>general</option>"), "{}", page.body);
    let list = part(&page.body, "<ul class=\"rows\">", "</ul>");
    let expected = "<ul class=\"rows\">\n<li id=\"s-ONE\">\n\
        <a href=\"/s/ONE\"><strong>one &#60;b&#62;bold&#60;/b&#62; &#38; &#34;more&#34;</strong></a>\n\
        <span class=\"state good\">completed</span>\n\
        <span class=\"facts\">general SHORT · . · TIME</span>\n</li>\n</ul>";
    let here = std::env::current_dir().expect("a directory").display().to_string();
    assert_eq!(plain(list, &[(&one, "ONE"), (&short, "SHORT"), (&here, ".")]), expected);
    for (query, shown) in [("q=bold", true), ("q=other", false), ("state=busy", false), ("state=quiet", true)] {
        let page = get(&app, &format!("/?{query}")).await.body;
        assert_eq!(page.contains(&format!("id=\"s-{one}\"")), shown, "{query}");
    }
    let elsewhere = get(&app, "/?workspace=%2Felsewhere").await.body;
    assert!(elsewhere.contains("No session matches."), "{elsewhere}");
    finish(host, app).await;
}

/// A link without a text cannot be clicked.
#[tokio::test]
async fn untitled_session_is_named_by_its_agent() {
    let (host, app) = hosted().await;
    let opened = post(&app, "/v1/sessions", &json!({})).await.json()["session"].clone();
    let text = |field: &str| opened[field].as_str().expect("a text").to_owned();
    let (id, name) = (text("id"), format!("general {}", text("short")));
    assert_eq!(text("title"), "");
    let list = get(&app, "/").await.body;
    let link = part(&list, "<a href=\"/s/", "</a>");
    assert_eq!(link, format!("<a href=\"/s/{id}\"><strong>{name}</strong></a>"));
    let conversation = get(&app, &format!("/s/{id}")).await.body;
    assert_eq!(part(&conversation, "<h1>", "</h1>"), format!("<h1>{name}</h1>"));
    finish(host, app).await;
}

#[tokio::test]
async fn session_list_is_updated_when_a_session_opens() {
    let (host, app) = hosted().await;
    let mut stream = Stream::open(&app, "/live/sessions?q=&state=&workspace=").await;
    let first = stream.next().await;
    assert!(first.starts_with("<hx-partial hx-target=\"#list\" hx-swap=\"innerMorph\">"), "{first}");
    let id = open_and_finish(&app, "a new one").await;
    let message = stream.until("completed").await;
    assert!(message.contains(&format!("id=\"s-{id}\"")), "{message}");
    drop((stream, app));
    end(host).await;
}

#[tokio::test]
async fn page_loads_nothing_from_elsewhere_and_runs_no_inline_script() {
    let (host, app, id) = hosted_with("one").await;
    let of_session = ["", "/tree", "/timeline", "/replay", "/branches", "/usage"].map(|view| format!("/s/{id}{view}"));
    let paths = of_session.iter().map(String::as_str).chain(["/", "/approvals", "/agents", "/usage", "/s/none/tree"]);
    for path in paths {
        let page = get(&app, path).await.body;
        for bad in ["http://", "https://", "<style", " style=", "onclick", "hx-on", "javascript:"] {
            assert!(!page.contains(bad), "{bad} in {path}: {page}");
        }
        let scripts = page.matches("<script").count();
        assert_eq!(page.matches("<script src=\"/assets/").count(), scripts, "{path}");
    }
    finish(host, app).await;
}

#[tokio::test]
async fn assets_are_served_from_the_binary() {
    let (host, app) = hosted().await;
    for (name, media) in [
        ("page.css", "text/css; charset=utf-8"),
        ("page.js", "text/javascript; charset=utf-8"),
        ("htmx.min.js", "text/javascript; charset=utf-8"),
        ("hx-sse.min.js", "text/javascript; charset=utf-8"),
        ("icon.svg", "image/svg+xml"),
    ] {
        let asset = get(&app, &format!("/assets/{name}")).await;
        assert_eq!((asset.status, asset.headers["content-type"].to_str().expect("text")), (StatusCode::OK, media));
    }
    let none = get(&app, "/assets/none.js").await;
    assert_eq!(none.status, StatusCode::NOT_FOUND);
    assert!(none.body.contains("no file &#34;none.js&#34;"), "{}", none.body);
    finish(host, app).await;
}

/// A browser shows the reason within the page.
#[tokio::test]
async fn unreadable_request_of_a_view_is_refused_with_a_page() {
    let (host, app, id) = hosted_with("one").await;
    let form = [("content-type", "application/x-www-form-urlencoded")];
    let cases = [
        (Method::GET, format!("/s/{id}/live?seen=no"), &[][..], 400, "malformed"),
        (Method::GET, format!("/s/{id}/replay/at?of=x"), &[], 400, "malformed"),
        (Method::GET, "/s/%ff/tree".into(), &[], 400, "malformed"),
        (Method::POST, format!("/s/{id}/send"), &[], 415, "unsupported_media_type"),
        (Method::POST, format!("/s/{id}/send"), &form[..], 400, "malformed"),
    ];
    for (method, path, headers, status, code) in cases {
        let reply = request(&app, method, &path, headers, "colour=red").await;
        assert_eq!(reply.status, status, "{path}: {}", reply.body);
        assert!(reply.body.starts_with("<!doctype html>") && reply.body.contains(code), "{path}: {}", reply.body);
    }
    finish(host, app).await;
}

/// Browsers get a page with a link back; other clients still get a problem.
#[tokio::test]
async fn unknown_address_gets_a_page_with_a_link_back() {
    let (host, app) = hosted().await;
    let browser = [("accept", "text/html,application/xhtml+xml,*/*;q=0.8")];
    for (path, status) in [("/sesions", StatusCode::NOT_FOUND), ("/open", StatusCode::METHOD_NOT_ALLOWED)] {
        let page = request(&app, Method::GET, path, &browser, "").await;
        assert_eq!((page.status, &page.headers["content-type"]), (status, &HTML.parse().expect("a value")), "{path}");
        assert!(page.body.contains("<a href=\"/\">Back to the sessions</a>"), "{}", page.body);
        let other = request(&app, Method::GET, path, &[("accept", "*/*")], "").await;
        assert_eq!(other.problem().0, status.as_u16(), "{path}");
    }
    let of_api = request(&app, Method::GET, "/v1/sesions", &browser, "").await;
    assert_eq!(of_api.problem(), (404, "no_such_resource".to_owned()));
    finish(host, app).await;
}

const HTML: &str = "text/html; charset=utf-8";

#[tokio::test]
async fn form_of_another_origin_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let host = host(&Memory::new()).await;
    let id = open_and_finish(&host.router(), "one").await;
    let address = "127.0.0.1:7475".parse().expect("an address");
    let guard = Guard::new(address, [], TokenFile::at(dir.path().join("tokens.json")));
    let app = guard.protect(host.router());
    let own = ("host", "127.0.0.1:7475");
    let closed = request(&app, Method::GET, "/", &[own, ("accept", "text/html")], "").await;
    assert_eq!(closed.status, StatusCode::UNAUTHORIZED);
    assert!(closed.body.contains("Open a login link in this browser"), "{}", closed.body);
    let api = request(&app, Method::GET, "/v1/sessions", &[own, ("accept", "text/html")], "").await;
    assert_eq!(api.problem(), (401, "unauthorized".to_owned()));
    let used = request(&app, Method::GET, "/login?code=used", &[own, ("accept", "text/html")], "").await;
    assert!(used.body.contains("the login link was used or is too old"), "{}", used.body);
    let other = [("host", "evil.example"), ("accept", "text/html"), ("hx-request", "true")];
    let text = "the Host header &#34;evil.example&#34; does not name this host: use the address that it printed, or start \
                it with --allow-host";
    let within = request(&app, Method::GET, "/", &other, "").await;
    assert_eq!((within.status, &*within.body), (StatusCode::MISDIRECTED_REQUEST, text));
    let whole = request(&app, Method::GET, "/", &other[..2], "").await;
    assert!(whole.body.starts_with("<!doctype html>") && whole.body.contains(text), "{}", whole.body);
    let of_api = request(&app, Method::GET, "/v1/sessions", &other, "").await;
    assert_eq!(of_api.problem(), (421, "host_not_allowed".to_owned()));
    let path = format!("/login?code={}", guard.logins().link().expect("a code"));
    let opened = request(&app, Method::GET, &path, &[own], "").await;
    let cookie = opened.headers["set-cookie"].to_str().expect("text").to_owned();
    let cookie = ("cookie", cookie.split(';').next().expect("a pair"));
    let page = request(&app, Method::GET, "/", &[own, cookie], "").await;
    assert_eq!(page.status, StatusCode::OK);
    let policy = page.headers["content-security-policy"].to_str().expect("text");
    assert!(
        policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self'") && !policy.contains("unsafe"),
        "{policy}"
    );
    // Otherwise browsers would send the forms of the page with `Origin: null`.
    assert_eq!(page.headers["referrer-policy"], "same-origin");
    let send = format!("/s/{id}/send");
    // The last case is the control: with the host's own origin, the same form is accepted.
    for (origin, status) in [
        (None, StatusCode::FORBIDDEN),
        (Some("null"), StatusCode::FORBIDDEN),
        (Some("http://evil.example"), StatusCode::FORBIDDEN),
        (Some("http://127.0.0.1:7475"), StatusCode::SEE_OTHER),
    ] {
        let form = ("content-type", "application/x-www-form-urlencoded");
        let headers: Vec<_> = [own, cookie, form].into_iter().chain(origin.map(|origin| ("origin", origin))).collect();
        assert_eq!(request(&app, Method::POST, &send, &headers, "text=two").await.status, status, "{origin:?}");
    }
    finish(host, app).await;
}
