//! TLS servers that choose among offered protocols.

use std::io::{Read, Write as _};

use super::scene::*;
use rustls::crypto::ring;
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::cli::call::{CommandOutput, RunningCommand, User};

/// Answers requests over TLS and prefers the protocols `alpn`. Returns its address and the file of its certificate.
fn server(user: &User, alpn: &[&str]) -> (String, PathBuf) {
    let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let file = user.data().with_file_name("server.pem");
    std::fs::write(&file, certified.cert.pem()).expect("written");
    let key = PrivateKeyDer::try_from(certified.signing_key.serialize_der()).expect("a key");
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().expect("versions").with_no_client_auth();
    let mut config = builder.with_single_cert(vec![certified.cert.der().clone()], key).expect("a configuration");
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    let event = |json: &str| format!("data: {json}\n\n");
    let body = event(r#"{"choices":[{"delta":{"content":"over TLS"}}]}"#)
        + &event(r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#)
        + "data: [DONE]\n\n";
    let port = serve(config, move |_| ("200 OK", "text/event-stream", body.clone()));
    (format!("https://localhost:{port}"), file)
}

/// Answers each request over TLS with the status, the content type and the body of `answer`. Returns its port.
pub(crate) fn serve(
    config: ServerConfig,
    answer: impl Fn(&str) -> (&'static str, &'static str, String) + Send + 'static,
) -> u16 {
    let (config, listener) = (Arc::new(config), TcpListener::bind("127.0.0.1:0").expect("a port"));
    let port = listener.local_addr().expect("its address").port();
    std::thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            let tls = ServerConnection::new(Arc::clone(&config)).expect("a connection");
            let mut stream = StreamOwned::new(tls, connection);
            // A client that refuses the certificate or the protocol disconnects; the test checks its message.
            let Some(request) = request(&mut stream) else { continue };
            let (status, kind, body) = answer(&request);
            let head = format!(
                "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                body.len()
            );
            drop(stream.write_all((head + &body).as_bytes()).and_then(|()| stream.flush()));
        }
    });
    port
}

fn request(stream: &mut impl Read) -> Option<String> {
    let (mut text, mut piece) = (String::new(), [0; 65_536]);
    loop {
        let read = stream.read(&mut piece).ok().filter(|read| *read > 0)?;
        text.push_str(&String::from_utf8_lossy(piece.get(..read)?));
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
        });
        if body.len() >= length.unwrap_or(0) {
            return Some(text);
        }
    }
}

fn run(user: &User, url: &str, roots: Option<&PathBuf>) -> CommandOutput {
    let args = ["run", "--store", "memory", "--model", "openai/m", "--base-url", url, "--limit", "attempts=1", "hi"];
    let mut command = user.command(&args);
    command.env("OPENAI_API_KEY", "a-key");
    if let Some(roots) = roots {
        command.env("SSL_CERT_FILE", roots);
    }
    RunningCommand::start(command, "").done()
}

/// A server that offers HTTP/2, as all providers do, is called over HTTP/1.1. The control: if its certificate is not
/// trusted, the server gets no request.
#[test]
fn server_cannot_choose_an_unsupported_protocol() {
    let attacks: [&[&str]; 4] = [&["h2", "http/1.1"], &["http/1.1", "h2"], &["http/1.1"], &[]];
    for alpn in attacks {
        let user = User::new();
        let (url, roots) = server(&user, alpn);
        let done = run(&user, &url, Some(&roots));
        assert_eq!((done.code, done.out.trim()), (Some(0), "over TLS"), "{alpn:?}: {done:?}");
    }
    let user = User::new();
    // A server with only HTTP/2 is refused in the handshake, without a panic.
    let (url, roots) = server(&user, &["h2"]);
    let done = run(&user, &url, Some(&roots));
    assert!(done.code == Some(1) && !done.err.contains("panicked"), "{done:?}");
    let (url, _) = server(&user, &["http/1.1"]);
    let untrusted = run(&user, &url, None);
    assert!(untrusted.code == Some(1) && !untrusted.out.contains("over TLS"), "{untrusted:?}");
}
