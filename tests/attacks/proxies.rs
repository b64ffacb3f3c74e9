//! A proxy of the environment, which receives requests with keys.

use std::io::{Read as _, Write as _};

use super::scene::*;

use crate::cli::call::{RunningCommand, User};

/// Starts a proxy that refuses each request. Returns its address, and what it received.
fn proxy() -> (String, Arc<Mutex<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let (port, received) = (listener.local_addr().expect("its address").port(), Arc::<Mutex<String>>::default());
    let seen = Arc::clone(&received);
    std::thread::spawn(move || {
        for mut connection in listener.incoming().flatten() {
            let mut piece = [0; 65_536];
            let read = connection.read(&mut piece).unwrap_or(0);
            seen.lock().expect("no other thread has panicked").push_str(&String::from_utf8_lossy(&piece[..read]));
            drop(connection.write_all(b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"));
        }
    });
    (format!("http://127.0.0.1:{port}"), received)
}

/// The control: a request to another machine goes through the proxy.
#[test]
fn proxy_gets_no_key_for_a_server_of_this_machine() {
    let attacks: [(&str, bool); 4] = [
        ("http://127.0.0.1:1", false),
        ("http://localhost:1", false),
        ("http://[::1]:1", false),
        ("http://models.example:1", true),
    ];
    for (url, is_proxied) in attacks {
        let (user, (proxy, received)) = (User::new(), proxy());
        let config = user.config().join("subtend");
        std::fs::create_dir_all(&config).expect("a directory");
        let servers = r#"{local: {url: "http://127.0.0.1:1/mcp", headers: {Authorization: "Bearer of-the-server"}}}"#;
        std::fs::write(config.join("subtend.yaml"), format!("mcp: {{servers: {servers}}}\n")).expect("written");
        let args = ["run", "--model", "openai/m", "--base-url", url, "--limit", "attempts=1", "hi"];
        let mut command = user.command(&args);
        command.env("OPENAI_API_KEY", "of-the-provider").env("HTTP_PROXY", &proxy).env("http_proxy", &proxy);
        command.env_remove("NO_PROXY").env_remove("no_proxy");
        let done = RunningCommand::start(command, "").done();
        assert_eq!(done.code, Some(1), "{done:?}");
        let received = received.lock().unwrap();
        assert_eq!(received.contains("of-the-provider"), is_proxied, "{url}: {received}");
        assert!(!received.contains("of-the-server"), "{url}: {received}");
    }
}
