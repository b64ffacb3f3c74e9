//! Renewals of logins for servers over HTTP.

use subtend_tools::mcp::{Login, LoginKey, LoginStore};

use super::posts::{HttpServer, PostAnswer, result, within_seconds, write_json};
use super::*;

/// A store with one login, and the login that replaces it before the next renewal.
#[derive(Debug, Default)]
struct OneLogin(Mutex<Option<Login>>, Mutex<Option<Login>>);

impl LoginStore for OneLogin {
    fn load(&self, _: &LoginKey) -> Result<Option<Login>, String> {
        Ok(self.0.lock().unwrap().clone())
    }

    fn save(&self, _: &LoginKey, login: Option<&Login>) -> Result<(), String> {
        *self.0.lock().unwrap() = login.cloned();
        Ok(())
    }

    fn lock(&self, _: &LoginKey) -> Result<Box<dyn Send>, String> {
        if let Some(later) = self.1.lock().unwrap().take() {
            *self.0.lock().unwrap() = Some(later);
        }
        Ok(Box::new(()))
    }
}

impl OneLogin {
    /// Saves a login with the tokens `at-1` and `rt-1`, which were issued `since` 1970.
    fn put(&self, config: &ServerConfig, token_endpoint: &str, since: Duration) {
        let ServerTransport::Http { url, .. } = &config.transport else { panic!("another transport") };
        let tokens =
            json!({"access_token": "at-1", "token_type": "bearer", "expires_in": 3_600, "refresh_token": "rt-1"});
        let login = json!({
            "url": url, "resource": url, "client_secret": null, "since": 0,
            "metadata": {"authorization_endpoint": url, "token_endpoint": token_endpoint},
            "credentials": {
                "client_id": "c", "token_response": tokens, "granted_scopes": [], "token_received_at": since.as_secs()
            },
        });
        *self.0.lock().unwrap() = Some(serde_json::from_value(login).unwrap());
    }

    /// Changes a value of the login, whose token has expired: now, or before the next renewal.
    fn change(&self, pointer: &str, value: Value, is_later: bool) {
        let mut login = serde_json::to_value(&*self.0.lock().unwrap()).unwrap();
        *login.pointer_mut(pointer).unwrap() = value;
        let place = if is_later { &self.1 } else { &self.0 };
        *place.lock().unwrap() = Some(serde_json::from_value(login).unwrap());
    }

    fn tokens(&self) -> Value {
        serde_json::to_value(&*self.0.lock().unwrap()).unwrap()["credentials"]["token_response"].clone()
    }
}

/// Starts an endpoint that renews `rt-1` once `ended` is cancelled. Returns its address and the requests.
async fn token_endpoint(ended: CancellationToken) -> (String, UnboundedReceiver<String>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}/token", listener.local_addr().unwrap());
    let (received, renewals) = unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            let (received, ended) = (received.clone(), ended.clone());
            tokio::spawn(async move {
                let (mut request, mut piece) = (String::new(), [0; 4096]);
                while !request.contains("rt-1") {
                    let read = connection.read(&mut piece).await.unwrap();
                    request.push_str(&String::from_utf8_lossy(&piece[..read]));
                }
                received.send(request).unwrap();
                ended.cancelled().await;
                let tokens = json!({
                    "access_token": "at-2", "token_type": "bearer", "expires_in": 3_600, "refresh_token": "rt-2"
                });
                write_json(&mut connection, 200, &tokens.to_string()).await;
            });
        }
    });
    (endpoint, renewals)
}

/// Returns a session that uses the server with this login.
fn scene_with(server: &HttpServer, store: &Arc<OneLogin>) -> ServerScene {
    let dir = tempfile::tempdir().unwrap();
    let settings = ConnectionSettings {
        workspace: dir.path().to_owned(),
        elsewhere: None,
        guard: None,
        commands: Commands::default(),
        logins: Some(Arc::clone(store) as Arc<dyn LoginStore>),
        internal_hosts: Vec::new(),
    };
    let list = ServerList { servers: vec![server.config.clone()], problems: Vec::new() };
    let servers = Servers::new(list, settings, known_tools(dir.path()), Secrets::default());
    ServerScene { dir, servers }
}

/// Attack: a call ends while its login is renewed, and the server has replaced the refresh token. A second request with the old one ends
/// the login. The control: the next call uses the new token.
#[tokio::test(flavor = "multi_thread")]
async fn login_outlives_a_call_that_ends_during_its_renewal() {
    let server = HttpServer::start(PostAnswer::Json(200, result)).await;
    let ended = CancellationToken::new();
    let (endpoint, mut renewals) = token_endpoint(ended.clone()).await;
    let store = Arc::new(OneLogin::default());
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
    store.put(&server.config, &endpoint, now);
    let scene = scene_with(&server, &store);
    assert_eq!(text(within_seconds(scene.call("call", json!({}))).await), "done");
    // The token has expired.
    store.put(&server.config, &endpoint, Duration::ZERO);
    let stop = CancellationToken::new();
    let call = ToolInvocation { cancel: stop.clone(), ..scene.invocation(json!({})) };
    let renewing = async {
        renewals.recv().await.unwrap();
        stop.cancel();
    };
    let (cancelled, ()) = within_seconds(async { tokio::join!(scene.run("call", call), renewing) }).await;
    assert_eq!(cancelled, Err(ToolError::cancelled()));
    let answer = async {
        // The next call waits for the renewal.
        tokio::task::yield_now().await;
        ended.cancel();
    };
    let (done, ()) = within_seconds(async { tokio::join!(scene.call("call", json!({})), answer) }).await;
    assert_eq!(text(done), "done");
    assert_eq!(store.tokens()["refresh_token"], "rt-2");
    assert!(renewals.try_recv().is_err(), "the old refresh token was sent again");
}

/// Attack: the server delays a renewal until the process ends, which would lose the new refresh token. The control: before the answer, the
/// store has the old one.
#[tokio::test(flavor = "multi_thread")]
async fn process_that_ends_waits_for_a_renewal() {
    let server = HttpServer::start(PostAnswer::Json(200, result)).await;
    let ended = CancellationToken::new();
    let (endpoint, mut renewals) = token_endpoint(ended.clone()).await;
    let store = Arc::new(OneLogin::default());
    store.put(&server.config, &endpoint, Duration::ZERO);
    let scene = scene_with(&server, &store);
    let stop = CancellationToken::new();
    let call = ToolInvocation { cancel: stop.clone(), ..scene.invocation(json!({})) };
    let renewing = async {
        renewals.recv().await.unwrap();
        stop.cancel();
    };
    let (cancelled, ()) = within_seconds(async { tokio::join!(scene.run("call", call), renewing) }).await;
    assert_eq!(cancelled, Err(ToolError::cancelled()));
    assert_eq!(store.tokens()["refresh_token"], "rt-1");
    let answer = async { ended.cancel() };
    within_seconds(async { tokio::join!(subtend_tools::mcp::renewals_ended(), answer) }).await;
    assert_eq!(store.tokens()["refresh_token"], "rt-2");
}

/// Attack: the server names another authorization server, and the user logs in there while a session is connected, also between the start
/// of a call and its renewal. The control: the next call reconnects, and renews the new login at its own server.
#[tokio::test(flavor = "multi_thread")]
async fn renewal_is_sent_to_the_parties_of_its_login() {
    let ended = CancellationToken::new();
    ended.cancel();
    let changes = [
        ("/metadata/token_endpoint", None, "grant_type=refresh_token"),
        ("/resource", Some("http://127.0.0.1/other"), "127.0.0.1%2Fother"),
        ("/client_secret", Some("secret-0123456789"), "Basic "),
        ("/credentials/client_id", Some("another"), "client_id=another"),
    ];
    for ((pointer, value, expected), is_later) in changes.into_iter().flat_map(|of| [(of, true), (of, false)]) {
        let server = HttpServer::start(PostAnswer::Authorized).await;
        let (old, mut of_old) = token_endpoint(ended.clone()).await;
        let (new, mut of_new) = token_endpoint(ended.clone()).await;
        let store = Arc::new(OneLogin::default());
        store.put(&server.config, &old, std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap());
        let scene = scene_with(&server, &store);
        assert_eq!(text(within_seconds(scene.call("call", json!({}))).await), "done");
        store.put(&server.config, &old, Duration::ZERO);
        store.change(pointer, json!(value.unwrap_or(&new)), is_later);
        if is_later {
            let refused = within_seconds(scene.call("call", json!({}))).await;
            assert!(of_old.try_recv().is_err() && of_new.try_recv().is_err(), "{pointer}: a token was sent");
            let why = error(refused);
            assert!(why.contains("it requires a login"), "{pointer}: {why}");
            assert_eq!(store.tokens()["refresh_token"], "rt-1");
        }
        assert_eq!(text(within_seconds(scene.call("call", json!({}))).await), "done");
        let renewed = if value.is_none() { of_new.try_recv() } else { of_old.try_recv() }.unwrap();
        assert!(renewed.to_lowercase().contains(&expected.to_lowercase()), "{pointer}: {renewed}");
        assert!(of_old.try_recv().is_err() && of_new.try_recv().is_err(), "{pointer}: a token was sent twice");
        assert_eq!(store.tokens()["refresh_token"], "rt-2");
    }
}
