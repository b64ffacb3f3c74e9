//! Attacks on access: revoked tokens, ended logins, too small scopes, and clients that use up shared limits.

use crate::support::*;
use axum::http::Response;
use futures_util::stream;
use http_body_util::BodyExt as _;
use subtend_session::authority::Authority;
use subtend_tools::policy::HostPolicy;
use tempfile::TempDir;
use tower::ServiceExt as _;

const JSON: (&str, &str) = ("content-type", "application/json");
const OWN: (&str, &str) = ("host", "127.0.0.1:7475");

/// A host over TCP, with a token of each scope.
struct Guarded {
    dir: TempDir,
    tokens: TokenFile,
    guard: Guard,
    host: Host,
    app: Router,
}

impl Guarded {
    async fn new() -> Self {
        Self::with_host(host(&Memory::new()).await)
    }

    fn with_host(host: Host) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let tokens = TokenFile::at(dir.path().join("tokens.json"));
        let address: SocketAddr = "127.0.0.1:7475".parse().expect("an address");
        let guard = Guard::new(address, [], tokens.clone());
        let app = guard.protect(host.router());
        Self { dir, tokens, guard, host, app }
    }

    fn token(&self, scope: TokenScope) -> String {
        format!("Bearer {}", self.tokens.create(&scope.to_string(), scope).expect("a token"))
    }

    async fn login(&self) -> String {
        let link = format!("/login?code={}", self.guard.logins().link().expect("a code"));
        let opened = request(&self.app, Method::GET, &link, &[OWN], "").await;
        opened.headers["set-cookie"].to_str().expect("text").split(';').next().expect("a pair").to_owned()
    }

    async fn send(&self, method: Method, path: &str, by: (&str, &str), body: &Value) -> HttpResponse {
        request(&self.app, method, path, &[OWN, by, JSON], &body.to_string()).await
    }

    async fn open_stream(&self, path: &str, by: (&str, &str)) -> Response<Body> {
        let request = Request::get(path).header(OWN.0, OWN.1).header(by.0, by.1).body(Body::empty());
        self.app.clone().oneshot(request.expect("a request")).await.expect("infallible")
    }

    async fn end(self) {
        let Self { host, app, guard, .. } = self;
        drop((app, guard));
        end(host).await;
    }
}

async fn read_until(stream: &mut Response<Body>, word: &str) {
    let mut text = String::new();
    while !text.contains(word) {
        let frame = stream.body_mut().frame().await.expect("the stream continues").expect("a frame");
        text.push_str(&String::from_utf8_lossy(frame.data_ref().expect("data")));
    }
}

/// Reads a stream to its end. Returns its text, and whether it ended with an error.
async fn read_to_end(stream: Response<Body>) -> (String, bool) {
    let (mut body, mut text) = (stream.into_body(), String::new());
    loop {
        match body.frame().await {
            Some(Ok(frame)) => text.push_str(&String::from_utf8_lossy(frame.data_ref().expect("data"))),
            Some(Err(_)) => return (text, true),
            None => return (text, false),
        }
    }
}

/// The application reads each body to its end. The control: a body with a token is read.
#[tokio::test]
async fn body_of_a_request_without_a_token_is_not_read() {
    let at = Guarded::new().await;
    let app = at.guard.protect(Router::new().fallback(async |body: String| body.len().to_string()));
    let act = at.token(TokenScope::Act);
    let sent =
        async |path: &str, headers: &[(&str, &str)]| request(&app, Method::POST, path, headers, "12345").await.body;
    for path in ["/healthz", "/readyz", "/assets/page.css"] {
        assert_eq!(sent(path, &[OWN]).await, "0", "{path}");
    }
    assert_eq!(sent("/v1/sessions", &[OWN, ("authorization", &act)]).await, "5", "the control");
    drop(app);
    at.end().await;
}

/// The control: the streams of a token that was not revoked get the later events.
#[tokio::test(start_paused = true)]
async fn revocation_ends_streams_before_later_events() {
    let at = Guarded::new().await;
    let id = open_and_finish(&at.host.router(), "before").await;
    let (read, other) = (at.token(TokenScope::Read), at.token(TokenScope::Act));
    let attacks: [String; 5] = [
        "/v1/events".into(),
        format!("/v1/sessions/{id}/events"),
        format!("/v1/trees/{id}/events"),
        format!("/s/{id}/live?seen=0"),
        "/live/sessions".into(),
    ];
    let mut open = Vec::new();
    for attack in &attacks {
        for by in [&read, &other] {
            let mut stream = at.open_stream(attack, ("authorization", by)).await;
            assert_eq!(stream.status(), 200, "{attack}");
            read_until(&mut stream, "before").await;
            open.push((attack, by == &read, stream));
        }
    }
    at.tokens.revoke("read").expect("revoked");
    let sent = post(&at.host.router(), &format!("/v1/sessions/{id}/inputs"), &json!({"text": "hidden-word"})).await;
    assert_eq!(sent.status, 202, "{}", sent.body);
    let titled = json!({"title": "hidden-word"});
    let path = format!("/v1/sessions/{id}");
    request(&at.host.router(), Method::PATCH, &path, &[JSON], &titled.to_string()).await;
    for (attack, is_revoked, mut stream) in open {
        if is_revoked {
            let (text, failed) = read_to_end(stream).await;
            assert!(failed && !text.contains("hidden-word"), "{attack}: {text}");
        } else {
            read_until(&mut stream, "hidden-word").await;
        }
    }
    at.end().await;
}

/// The control: before it ends, the login can read both.
#[tokio::test(start_paused = true)]
async fn end_of_a_login_ends_its_streams_and_waits() {
    let at = Guarded::new().await;
    let cookie = at.login().await;
    let by = ("cookie", &*cookie);
    let mut stream = at.open_stream("/v1/events", by).await;
    tokio::time::sleep(Duration::from_secs(12 * 3_600 - 60)).await;
    let opened = post(&at.host.router(), "/v1/sessions", &json!({"input": {"text": "hang"}})).await.json();
    let id = opened["session"]["id"].as_str().expect("an id");
    let run = format!("/v1/sessions/{id}/runs/1?wait=true&timeout=600000");
    read_until(&mut stream, "hang").await;
    assert_eq!(at.send(Method::GET, &run.replace("600000", "1"), by, &json!({})).await.status, 200);
    let waited = at.send(Method::GET, &run, by, &json!({})).await;
    assert_eq!(waited.problem(), (401, "unauthorized".to_owned()));
    assert!(read_to_end(stream).await.1);
    at.end().await;
}

#[tokio::test(start_paused = true)]
async fn revocation_ends_waits() {
    let at = Guarded::new().await;
    let opened = post(&at.host.router(), "/v1/sessions", &json!({"input": {"text": "hang"}})).await.json();
    let id = opened["session"]["id"].as_str().expect("an id").to_owned();
    let read = at.token(TokenScope::Read);
    let input = opened["input"]["input"].as_str().expect("an id");
    let attacks: [String; 2] = [
        format!("/v1/sessions/{id}/runs/1?wait=true&timeout=600000"),
        format!("/v1/sessions/{id}/inputs/{input}?wait=true&timeout=600000"),
    ];
    let body = json!({});
    let waits = attacks.iter().map(|path| at.send(Method::GET, path, ("authorization", &read), &body));
    let revoked = async {
        tokio::time::sleep(Duration::from_secs(30)).await;
        at.tokens.revoke("read").expect("revoked");
        tokio::time::Instant::now()
    };
    let (waited, revoked) = tokio::join!(futures_util::future::join_all(waits), revoked);
    // The control: the waits did not end before the revocation.
    assert!(revoked.elapsed() < Duration::from_secs(2));
    for reply in waited {
        assert_eq!(reply.problem(), (401, "unauthorized".to_owned()));
    }
    at.end().await;
}

/// The runs hang, so that their texts stay in memory. The controls: another token, and a short input.
#[tokio::test]
async fn working_sessions_of_a_token_leave_memory_to_others() {
    let options = Options { working_text: 1 << 20, ..Options::default() };
    let runtime = runtime_with(Box::new(Memory::new()), options).await;
    let at = Guarded::with_host(Host::new(runtime, HostOptions::default()));
    let (act, admin) = (at.token(TokenScope::Act), at.token(TokenScope::Admin));
    let large = json!({"input": {"text": "hang".repeat(50 << 10)}});
    let open = async |by: &str, body: &Value| at.send(Method::POST, "/v1/sessions", ("authorization", by), body).await;
    assert_eq!([open(&act, &large).await.status, open(&act, &large).await.status], [201, 201]);
    let refused = open(&act, &large).await;
    assert_eq!(refused.problem(), (429, "busy".to_owned()));
    let problem = refused.json();
    let detail = "the session is busy: the sender's memory for working sessions, which runs free when they end, is full, \
                  the limit is 524288. Try again when it has room";
    assert_eq!((&problem["detail"], &refused.headers["retry-after"]), (&json!(detail), &"1".parse().expect("a value")));
    assert_eq!(open(&admin, &large).await.status, 201);
    assert_eq!(open(&act, &json!({"input": {"text": "hang"}})).await.status, 201);
    at.end().await;
}

/// A host without free descriptors cannot read its token file; here its directory cannot be opened. The controls: without
/// the file, tokens are refused, and a token that was revoked meanwhile gets no later event.
#[tokio::test(start_paused = true)]
async fn unreadable_token_file_refuses_no_valid_token() {
    let at = Guarded::new().await;
    let id = open_and_finish(&at.host.router(), "before").await;
    let (read, other) = (at.token(TokenScope::Read), at.token(TokenScope::Act));
    let mut kept = at.open_stream("/v1/events", ("authorization", &read)).await;
    let mut revoked = at.open_stream("/v1/events", ("authorization", &other)).await;
    read_until(&mut kept, "before").await;
    read_until(&mut revoked, "before").await;
    let list = async || at.send(Method::GET, "/v1/sessions", ("authorization", &read), &json!({})).await;
    let (dir, moved) = (at.dir.path(), at.dir.path().with_extension("moved"));
    std::fs::rename(dir, &moved).expect("moved");
    std::fs::write(dir, "").expect("a file");
    let reply = list().await;
    assert_eq!((reply.problem(), reply.headers["retry-after"].as_bytes()), ((503, "busy".to_owned()), &b"1"[..]));
    let sent = post(&at.host.router(), &format!("/v1/sessions/{id}/inputs"), &json!({"text": "later-word"})).await;
    assert_eq!(sent.status, 202, "{}", sent.body);
    let early = tokio::time::timeout(Duration::from_secs(30), read_until(&mut kept, "later-word")).await;
    assert!(early.is_err(), "an event was sent before its token was checked");
    TokenFile::at(moved.join("tokens.json")).revoke("act").expect("revoked");
    std::fs::remove_file(dir).expect("removed");
    std::fs::rename(&moved, dir).expect("moved back");
    read_until(&mut kept, "later-word").await;
    let (text, failed) = read_to_end(revoked).await;
    assert!(failed && !text.contains("later-word"), "{text}");
    assert_eq!(list().await.status, 200);
    std::fs::remove_file(dir.join("tokens.json")).expect("removed");
    assert_eq!(list().await.problem(), (401, "unauthorized".to_owned()));
    // An open stream holds the host.
    drop(kept);
    at.end().await;
}

/// A change based on an outdated list would restore a revoked token, or lose a new one. Threads can stand for
/// processes, because each has its own handle of the lock file. The control: tokens that were not revoked stay valid.
#[tokio::test]
async fn concurrent_changes_do_not_restore_revoked_tokens() {
    const WRITERS: usize = 8;
    const ROUNDS: usize = 12;
    let at = Guarded::new().await;
    let secrets: Vec<Vec<String>> = std::thread::scope(|scope| {
        let writes = |writer: usize| {
            let tokens = &at.tokens;
            let round = move |round: usize| {
                let name = format!("{writer}-{round}");
                let secret = tokens.create(&name, TokenScope::Admin).expect("a token");
                if round + 1 < ROUNDS {
                    tokens.revoke(&name).expect("revoked");
                }
                secret
            };
            scope.spawn(move || (0..ROUNDS).map(round).collect())
        };
        let writers: Vec<_> = (0..WRITERS).map(writes).collect();
        writers.into_iter().map(|writer| writer.join().expect("no panic")).collect()
    });
    for secrets in secrets {
        for (round, secret) in secrets.iter().enumerate() {
            let by = format!("Bearer {secret}");
            let reply = at.send(Method::GET, "/v1/sessions", ("authorization", &by), &json!({})).await;
            assert_eq!(reply.status, if round + 1 < ROUNDS { 401 } else { 200 }, "{round}");
        }
    }
    let left = std::fs::read_dir(at.dir.path()).expect("a directory").count();
    assert_eq!(left, 2, "the tokens and their lock");
    at.end().await;
}

/// The policy of the host requires an approval for a child. The control: a token of scope `admin` replaces the policy.
#[tokio::test]
async fn client_cannot_remove_asks_of_the_host() {
    let mut rules = HostPolicy::default_for_workspace();
    rules.rules.push(Rule { action: "task:*".into(), resource: "*".into(), verdict: Verdict::Ask });
    let open = OpenOptions { policy: Some(Authority::of(rules)), ..OpenOptions::agent("general") };
    let at =
        Guarded::with_host(Host::new(runtime(&Memory::new()).await, HostOptions { open, ..HostOptions::default() }));
    let (act, admin) = (at.token(TokenScope::Act), at.token(TokenScope::Admin));
    let children = |ask: &Value| json!({"ask": ask, "input": {"text": "children"}});
    let attacks: [Value; 4] = [json!([]), json!(["fs.write"]), json!(["task:plan"]), json!(["fs.read", "shell.run"])];
    for attack in &attacks {
        let opened = at.send(Method::POST, "/v1/sessions", ("authorization", &act), &children(attack)).await;
        assert_eq!(opened.status, 201, "{attack}: {}", opened.body);
        let id = opened.json()["session"]["id"].clone();
        let asked = async {
            loop {
                let approvals = get(&at.host.router(), "/v1/approvals").await.json();
                if approvals.as_array().expect("a list").iter().any(|one| one["session"] == id) {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), asked)
            .await
            .unwrap_or_else(|_| panic!("{attack}: the call did not wait for an approval"));
        let id = id.as_str().expect("an id");
        post(&at.host.router(), &format!("/v1/sessions/{id}/cancel"), &json!({})).await;
    }
    let opened =
        at.send(Method::POST, "/v1/sessions", ("authorization", &admin), &children(&json!(["fs.write"]))).await;
    let run = format!(
        "/v1/sessions/{}/runs/1?wait=true&timeout=60000",
        opened.json()["session"]["id"].as_str().expect("an id")
    );
    assert_eq!(get(&at.host.router(), &run).await.json()["outcome"], "completed");
    at.end().await;
}

/// The controls: the same limits with the scope `admin`, and lower limits.
#[tokio::test]
async fn act_token_cannot_raise_limits() {
    let at = Guarded::new().await;
    let (act, admin) = (at.token(TokenScope::Act), at.token(TokenScope::Admin));
    let attacks: [Value; 5] = [
        json!({"turns": 51}),
        json!({"turns": 3, "spawns": 201}),
        json!({"run_ms": null}),
        json!({"recorded_bytes": null}),
        json!({"run_ms": 480_001}),
    ];
    let opens = async |by: &str, limits: &Value| {
        at.send(Method::POST, "/v1/sessions", ("authorization", by), &json!({"limits": limits})).await
    };
    for attack in &attacks {
        let refused = opens(&act, attack).await;
        assert_eq!(refused.problem(), (422, "invalid_limit".to_owned()), "{attack}");
        assert!(refused.body.contains("may only be lowered here"), "{}", refused.body);
        assert_eq!(opens(&admin, attack).await.status, 201, "{attack}");
    }
    let lower = json!({"turns": 3, "run_ms": 480_000, "tokens": 5_000, "cost_micro": null, "park": "off"});
    let lowered = opens(&act, &lower).await;
    assert_eq!(lowered.status, 201, "{}", lowered.body);
    at.end().await;
}
/// Returns a request of whose body only `arrived` bytes arrive.
fn partial(read: &str, head: &str, announced: usize, arrived: usize) -> Request<Body> {
    let pieces = [Ok::<_, std::convert::Infallible>(vec![b' '; arrived])];
    let body = Body::from_stream(stream::StreamExt::chain(stream::iter(pieces), stream::pending()));
    let request = Request::post("/v1/tasks/list").header(OWN.0, OWN.1).header("authorization", read);
    let length = if head == "content-length" { announced.to_string() } else { "chunked".to_owned() };
    request.header(JSON.0, JSON.1).header(head, length).body(body).expect("a request")
}

/// Large bodies arrive with one token, and with two tokens. The controls: a small body with the same token, a large one
/// with another token, and one after the others have ended.
#[tokio::test]
async fn concurrent_bodies_share_a_budget() {
    const MIB: usize = 1 << 20;
    let at = Guarded::new().await;
    let (read, other) = (at.token(TokenScope::Read), at.token(TokenScope::Act));
    for head in ["content-length", "transfer-encoding"] {
        let body = |token: &str| at.app.clone().oneshot(partial(token, head, 4 * MIB, 4 * MIB));
        let mut held: Vec<_> = (0..8).map(|_| Box::pin(body(&read))).collect();
        for request in &mut held {
            assert!(futures_util::poll!(request).is_pending());
        }
        let refused = body(&read).await.expect("infallible");
        assert_eq!(
            (refused.status().as_u16(), &refused.headers()["retry-after"]),
            (503, &"1".parse().expect("a value"))
        );
        let small = at.send(Method::POST, "/v1/tasks/list", ("authorization", &read), &json!({})).await;
        assert_eq!(small.status, 200, "{}", small.body);
        let mut large: Vec<_> = (0..4).map(|_| Box::pin(body(&other))).collect();
        for request in &mut large {
            assert!(futures_util::poll!(request).is_pending());
        }
        assert_eq!(body(&other).await.expect("infallible").status(), 503);
        drop(held);
        let mut again = Box::pin(body(&read));
        assert!(futures_util::poll!(&mut again).is_pending());
    }
    at.end().await;
}

/// Requests announce large bodies that never arrive. The control: a large body with the same token is accepted.
#[tokio::test]
async fn announced_bytes_do_not_count_against_the_budget() {
    const MIB: usize = 1 << 20;
    let at = Guarded::new().await;
    let read = at.token(TokenScope::Read);
    let attacks: [usize; 3] = [99_999_999_999, 64 * MIB, 4 * MIB + 1];
    for announced in attacks {
        let sent = at.app.clone().oneshot(partial(&read, "content-length", announced, 2));
        let refused = tokio::time::timeout(Duration::from_secs(60), sent).await.expect("at once").expect("infallible");
        assert_eq!(refused.status(), 413, "{announced}");
    }
    let sends = || Box::pin(at.app.clone().oneshot(partial(&read, "content-length", 4 * MIB, 2)));
    let mut held: Vec<_> = (0..100).map(|_| sends()).collect();
    for request in &mut held {
        assert!(futures_util::poll!(request).is_pending());
    }
    let large = json!({"tag": "x".repeat(MIB)});
    let reply = at.send(Method::POST, "/v1/tasks/list", ("authorization", &read), &large).await;
    assert!(![413, 503].contains(&reply.status.as_u16()), "{}", reply.body);
    drop(held);
    at.end().await;
}

/// A page of another origin on the same host name, whose requests carry the cookie, tries to open a view that commits a
/// worktree. The controls: the host's own pages, and a typed address.
#[tokio::test]
async fn view_with_effects_is_refused_to_other_origins() {
    let at = Guarded::new().await;
    let login = at.login().await;
    let path = "/s/00000000-0000-7000-8000-000000000000/worktree";
    let opens =
        async |header: (&str, &str)| request(&at.app, Method::GET, path, &[OWN, ("cookie", &login), header], "").await;
    let attacks: [(&str, &str); 5] = [
        ("sec-fetch-site", "same-site"),
        ("sec-fetch-site", "cross-site"),
        ("referer", "http://127.0.0.1:9999/s/x"),
        ("referer", "http://evil.example/127.0.0.1:7475"),
        ("accept", "*/*"),
    ];
    for header in attacks {
        assert_eq!(opens(header).await.problem(), (403, "cross_origin".to_owned()), "{header:?}");
    }
    for header in [
        ("sec-fetch-site", "same-origin"),
        ("sec-fetch-site", "none"),
        ("referer", "http://127.0.0.1:7475/s/x"),
        ("origin", "http://127.0.0.1:7475"),
    ] {
        assert_ne!(opens(header).await.status, 403, "{header:?}");
    }
    at.end().await;
}

/// A client with a token requests more turns than the limit of the session. The control: exactly the limit.
#[tokio::test]
async fn turns_of_an_input_cannot_exceed_the_session_limit() {
    let at = Guarded::new().await;
    for scope in [TokenScope::Act, TokenScope::Admin] {
        let token = at.token(scope);
        let by = ("authorization", &*token);
        let opened = at.send(Method::POST, "/v1/sessions", by, &json!({})).await.json();
        let inputs = format!("/v1/sessions/{}/inputs", opened["session"]["id"].as_str().expect("an id"));
        for lane in ["send", "steer"] {
            let asks = |turns: u32| json!({"text": "hi", "lane": lane, "turns": turns});
            let refused = at.send(Method::POST, &inputs, by, &asks(51)).await;
            assert_eq!(refused.problem(), (422, "invalid_input".to_owned()), "{}", refused.body);
            assert!(refused.body.contains("the session's limit `turns` is 50"), "{}", refused.body);
            assert_eq!(at.send(Method::POST, &inputs, by, &asks(50)).await.status, 202);
        }
        let opens = json!({"input": {"text": "hi", "turns": 1_000_000}});
        assert_eq!(at.send(Method::POST, "/v1/sessions", by, &opens).await.status, 422);
    }
    at.end().await;
}

/// A client with a token opens a session with too many rules, all checked for each call. The control: 2,000 rules.
#[tokio::test]
async fn rules_of_a_new_session_are_bounded() {
    let at = Guarded::new().await;
    let token = at.token(TokenScope::Act);
    let opens = async |rules: usize| {
        let ask: Vec<String> = (0..rules).map(|n| format!("fs.read={n:x}")).collect();
        at.send(Method::POST, "/v1/sessions", ("authorization", &token), &json!({"ask": ask})).await
    };
    let refused = opens(Authority::MAX_RULES + 1).await;
    assert_eq!(refused.problem(), (422, "invalid_rule".to_owned()), "{}", refused.body);
    assert_eq!(opens(2_000).await.status, 201);
    at.end().await;
}

/// Another server on the same host name sets a cookie that is sent first. The controls: only that one, only the login.
#[tokio::test]
async fn planted_cookie_does_not_hide_a_login() {
    let at = Guarded::new().await;
    let login = at.login().await;
    let attacks: [(String, u16); 5] = [
        (format!("subtend_login=x; {login}"), 200),
        (format!("a=b; subtend_login=; subtend_login=\"x\"; {login}"), 200),
        (format!("{login}; subtend_login=x"), 200),
        (login, 200),
        ("subtend_login=x".to_owned(), 401),
    ];
    for (cookie, status) in attacks {
        let reply = at.send(Method::GET, "/v1/sessions", ("cookie", &cookie), &json!({})).await;
        assert_eq!(reply.status, status, "{cookie}");
    }
    at.end().await;
}

/// Programs that preview links send HEAD requests. The control: the browser can open the link afterwards.
#[tokio::test]
async fn head_request_does_not_use_up_a_login_link() {
    let at = Guarded::new().await;
    let link = format!("/login?code={}", at.guard.logins().link().expect("a code"));
    assert_eq!(request(&at.app, Method::HEAD, &link, &[OWN], "").await.status, 405);
    assert_eq!(request(&at.app, Method::GET, &link, &[OWN], "").await.status, 303);
    at.end().await;
}
