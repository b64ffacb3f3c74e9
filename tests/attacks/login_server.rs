//! An MCP server that asks for a login, and its authorization server, for tests. Both listen on one port of this machine.

use std::io::{BufRead as _, Read as _, Write as _};
use std::sync::MutexGuard;

use super::scene::*;
use rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256;

#[derive(Clone, Debug)]
pub(crate) struct ReceivedRequest {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
}

/// A response: status, further headers, and body.
pub(crate) type RawAnswer = (&'static str, String, String);
/// Answers a request in place of the server, given the server's address.
type Override = dyn Fn(&ReceivedRequest, &str, &mut TcpStream) -> Option<RawAnswer> + Send + Sync;

pub(crate) struct LoginServer {
    pub(crate) port: u16,
    shared: Arc<ServedLogins>,
}

struct ServedLogins {
    state: Mutex<LoginServerState>,
    instead: Box<Override>,
}

#[derive(Default)]
struct LoginServerState {
    received: Vec<ReceivedRequest>,
    /// The challenge of the last login, and the redirect address.
    challenge: String,
    redirect: String,
    code: Option<String>,
    /// Number of the current tokens; 0 before the first login.
    tokens: u32,
    is_revoked: bool,
    refuses_renewal: bool,
    spoils_renewal: bool,
    /// Lifetime of tokens in seconds: of a login, and of a renewal.
    lasts: [u64; 2],
}

impl LoginServer {
    pub(crate) fn start() -> Self {
        Self::with(|_, _, _| None)
    }

    /// Starts a server in which `instead` can answer requests in place of the real server.
    pub(crate) fn with(
        instead: impl Fn(&ReceivedRequest, &str, &mut TcpStream) -> Option<RawAnswer> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("its address").port();
        let state = Mutex::new(LoginServerState { lasts: [3_600; 2], ..LoginServerState::default() });
        let shared = Arc::new(ServedLogins { state, instead: Box::new(instead) });
        let served = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let served = Arc::clone(&served);
                std::thread::spawn(move || served.serve(stream, &format!("http://127.0.0.1:{port}")));
            }
        });
        Self { port, shared }
    }

    pub(crate) fn base(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub(crate) fn url(&self) -> String {
        format!("{}/mcp", self.base())
    }

    fn state(&self) -> MutexGuard<'_, LoginServerState> {
        self.shared.state.lock().expect("not poisoned")
    }

    /// Returns the requests with this method whose target begins with `target`.
    pub(crate) fn received(&self, method: &str, target: &str) -> Vec<ReceivedRequest> {
        let all = self.state().received.clone();
        all.into_iter().filter(|request| request.method == method && request.target.starts_with(target)).collect()
    }

    pub(crate) fn lasts(&self, lasts: [u64; 2]) {
        self.state().lasts = lasts;
    }

    /// Refuses the current tokens from now on.
    pub(crate) fn revoke(&self) {
        self.state().is_revoked = true;
    }

    /// Makes the next renewal return a token that cannot be sent in a header.
    pub(crate) fn spoil_renewal(&self) {
        self.state().spoils_renewal = true;
    }

    pub(crate) fn refuse_renewal(&self) {
        self.state().refuses_renewal = true;
    }

    pub(crate) fn tokens(&self) -> Vec<String> {
        let count = self.state().tokens;
        (1..=count).flat_map(|number| [access(number), renewing(number)]).collect()
    }
}

fn access(number: u32) -> String {
    format!("at-{number}-0123456789abcdef")
}

fn renewing(number: u32) -> String {
    format!("rt-{number}-0123456789abcdef")
}

impl ServedLogins {
    fn serve(&self, mut stream: TcpStream, base: &str) {
        let Some(request) = read(&stream) else { return };
        self.state.lock().expect("not poisoned").received.push(request.clone());
        let answer = (self.instead)(&request, base, &mut stream).unwrap_or_else(|| self.answer(&request, base));
        let (status, headers, body) = answer;
        let head = format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\nconnection: close\r\n\r\n", body.len());
        // Errors are ignored, because some clients disconnect early.
        drop(stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes())));
    }

    fn answer(&self, request: &ReceivedRequest, base: &str) -> RawAnswer {
        let (path, query) = request.target.split_once('?').unwrap_or((&request.target, ""));
        match (&*request.method, path) {
            (_, "/mcp") => self.mcp(request, base),
            ("GET", "/.well-known/oauth-protected-resource/mcp") => {
                found(&json!({"resource": format!("{base}/mcp"), "authorization_servers": [base]}))
            }
            ("GET", "/.well-known/oauth-authorization-server") => found(&metadata(base)),
            ("POST", "/register") => {
                let asked: Value = serde_json::from_str(&request.body).expect("JSON");
                created(&json!({"client_id": "client-1", "redirect_uris": asked["redirect_uris"]}))
            }
            ("GET", "/authorize") => self.page(&fields(query), base),
            ("POST", "/token") => self.token(&fields(&request.body), base),
            _ => ("404 Not Found", String::new(), String::new()),
        }
    }

    /// Answers for the login page, as if the user agreed at once.
    fn page(&self, asked: &BTreeMap<String, String>, base: &str) -> RawAnswer {
        let expected = [
            ("response_type", "code"),
            ("client_id", "client-1"),
            ("code_challenge_method", "S256"),
            ("resource", &format!("{base}/mcp")),
            ("scope", "tools"),
        ];
        for (name, value) in expected {
            assert_eq!(asked.get(name).map(String::as_str), Some(value), "{asked:?}");
        }
        let mut state = self.state.lock().expect("not poisoned");
        state.challenge.clone_from(&asked["code_challenge"]);
        state.redirect.clone_from(&asked["redirect_uri"]);
        state.code = Some("code-1".to_owned());
        let to =
            format!("{}?code=code-1&state={}&iss={}", asked["redirect_uri"], asked["state"], base.replace(':', "%3A"));
        ("302 Found", format!("location: {to}\r\n"), String::new())
    }

    fn token(&self, asked: &BTreeMap<String, String>, base: &str) -> RawAnswer {
        let mut state = self.state.lock().expect("not poisoned");
        let asks = |name: &str, value: &str| asked.get(name).is_some_and(|asked| asked == value);
        let is_first = asks("grant_type", "authorization_code");
        let is_right = match is_first {
            true => {
                let verifier = asked.get("code_verifier").map(|verifier| challenge_of(verifier)).unwrap_or_default();
                let code = state.code.take();
                code.is_some_and(|code| asks("code", &code))
                    && verifier == state.challenge
                    && asks("redirect_uri", &state.redirect)
            }
            false => {
                let current = renewing(state.tokens);
                asks("grant_type", "refresh_token") && asks("refresh_token", &current) && !state.refuses_renewal
            }
        };
        if !is_right || !asks("client_id", "client-1") || !asks("resource", &format!("{base}/mcp")) {
            return ("400 Bad Request", JSON.to_owned(), json!({"error": "invalid_grant"}).to_string());
        }
        state.tokens += 1;
        state.is_revoked = false;
        let lasts = state.lasts[usize::from(!is_first)];
        let spoiled = !is_first && std::mem::take(&mut state.spoils_renewal);
        let access = if spoiled { "not to be sent".to_owned() } else { access(state.tokens) };
        found(&json!({
            "access_token": access, "refresh_token": renewing(state.tokens), "token_type": "Bearer",
            "expires_in": lasts, "scope": "tools",
        }))
    }

    /// Answers for the MCP server. Its only tool returns the `Authorization` header of the call.
    fn mcp(&self, request: &ReceivedRequest, base: &str) -> RawAnswer {
        let authorization = request.headers.get("authorization").cloned().unwrap_or_default();
        let state = self.state.lock().expect("not poisoned");
        let valid =
            state.tokens > 0 && !state.is_revoked && authorization == format!("Bearer {}", access(state.tokens));
        drop(state);
        if !valid {
            let names = format!("resource_metadata=\"{base}/.well-known/oauth-protected-resource/mcp\"");
            let headers = format!("www-authenticate: Bearer {names}, scope=\"tools\"\r\n");
            return ("401 Unauthorized", headers, String::new());
        }
        if request.method != "POST" {
            return ("405 Method Not Allowed", String::new(), String::new());
        }
        let message: Value = serde_json::from_str(&request.body).expect("JSON");
        let Some(id) = message.get("id") else { return ("202 Accepted", String::new(), String::new()) };
        let result = match message["method"].as_str().unwrap_or_default() {
            "initialize" => json!({
                "protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {}},
                "serverInfo": {"name": "fake", "version": "1"}
            }),
            "tools/list" => {
                json!({"tools": [{"name": "echo", "description": "Echoes.", "inputSchema": {"type": "object"}}]})
            }
            "tools/call" => json!({"content": [{"type": "text", "text": format!("called with {authorization}")}]}),
            other => {
                let error = json!({"code": -32601, "message": format!("no method {other}")});
                return found(&json!({"jsonrpc": "2.0", "id": id, "error": error}));
            }
        };
        found(&json!({"jsonrpc": "2.0", "id": id, "result": result}))
    }
}

const JSON: &str = "content-type: application/json\r\n";

pub(crate) fn found(body: &Value) -> RawAnswer {
    ("200 OK", JSON.to_owned(), body.to_string())
}

fn created(body: &Value) -> RawAnswer {
    ("201 Created", JSON.to_owned(), body.to_string())
}

pub(crate) fn metadata(base: &str) -> Value {
    json!({
        "issuer": base, "authorization_endpoint": format!("{base}/authorize"), "token_endpoint": format!("{base}/token"),
        "registration_endpoint": format!("{base}/register"), "response_types_supported": ["code"],
        "code_challenge_methods_supported": ["S256"], "authorization_response_iss_parameter_supported": true,
    })
}

fn read(stream: &TcpStream) -> Option<ReceivedRequest> {
    let mut from = BufReader::new(stream);
    let mut line = String::new();
    from.read_line(&mut line).ok()?;
    let mut words = line.split_whitespace();
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        from.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    from.read_exact(&mut body).ok()?;
    Some(ReceivedRequest { method, target, headers, body: String::from_utf8_lossy(&body).into_owned() })
}

/// Parses the fields of a query or a form.
fn fields(text: &str) -> BTreeMap<String, String> {
    let decoded = |text: &str| {
        let (mut out, mut bytes) = (Vec::new(), text.bytes());
        while let Some(byte) = bytes.next() {
            match byte {
                b'%' => {
                    let digits: String = bytes.by_ref().take(2).map(char::from).collect();
                    out.push(u8::from_str_radix(&digits, 16).expect("an escape"));
                }
                b'+' => out.push(b' '),
                byte => out.push(byte),
            }
        }
        String::from_utf8(out).expect("UTF-8")
    };
    let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (decoded(name), decoded(value))).collect()
}

/// Returns the S256 challenge of a verifier: its SHA-256 in base64url.
fn challenge_of(verifier: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let suite = TLS13_AES_128_GCM_SHA256.tls13().expect("a suite");
    let hash = suite.common.hash_provider.hash(verifier.as_bytes());
    let mut out = String::new();
    for chunk in hash.as_ref().chunks(3) {
        let bits = chunk.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for digit in 0..=chunk.len() {
            out.push(char::from(DIGITS[(bits >> (18 - 6 * digit)) as usize & 63]));
        }
    }
    out
}

/// Requests an address of this machine as a browser does. Returns the status and the redirect.
pub(crate) fn browse(url: &str) -> (u16, Option<String>) {
    let rest = url.strip_prefix("http://").expect("an address of this machine");
    let (host, path) = rest.split_once('/').expect("a path");
    let mut stream = TcpStream::connect(host).expect("it listens");
    write!(stream, "GET /{path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n").expect("sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    let status = text.split_whitespace().nth(1).and_then(|status| status.parse().ok()).expect("a status");
    let location = text.lines().find_map(|line| line.strip_prefix("location: ")).map(|to| to.trim().to_owned());
    (status, location)
}
