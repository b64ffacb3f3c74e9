//! Servers whose certificates are signed by an authority of the system's store.

use std::sync::Arc;

use super::call::*;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::PrivateKeyDer;

use crate::attacks::tls::serve;

/// Text that only the server knows.
const BODY: &str = "over TLS";

/// Returns a certificate for `localhost` with its key, and the file of the authority that signed it.
fn signed(user: &User, name: &str) -> (ServerConfig, PathBuf) {
    let mut authority = CertificateParams::new(Vec::new()).expect("parameters");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().expect("a key")).expect("an authority");
    let key = KeyPair::generate().expect("a key");
    let names = CertificateParams::new(vec!["localhost".to_owned()]).expect("parameters");
    let certificate = names.signed_by(&key, &authority).expect("a certificate");
    let file = user.data().with_file_name(name);
    std::fs::write(&file, authority.pem()).expect("written");
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().expect("versions").with_no_client_auth();
    let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
    (builder.with_single_cert(vec![certificate.der().clone()], key).expect("a configuration"), file)
}

/// Answers as a provider, as a page, or as an MCP server, by the request.
fn answer(request: &str) -> (&'static str, &'static str, String) {
    let (head, body) = request.split_once("\r\n\r\n").unwrap_or((request, ""));
    if head.starts_with("GET /page") {
        return ("200 OK", "text/plain", BODY.to_owned());
    }
    if !head.starts_with("POST /mcp") {
        let event = |json: &Value| format!("data: {json}\n\n");
        let text = event(&json!({"choices": [{"delta": {"content": BODY}}]}));
        let end = event(&json!({"choices": [{"delta": {}, "finish_reason": "stop"}]}));
        return ("200 OK", "text/event-stream", text + &end + "data: [DONE]\n\n");
    }
    let message: Value = serde_json::from_str(body).unwrap_or_default();
    let Some(id) = message.get("id") else { return ("202 Accepted", "text/plain", String::new()) };
    let mut reply = json!({"jsonrpc": "2.0", "id": id});
    match message["method"].as_str().unwrap_or_default() {
        "initialize" => {
            reply["result"] = json!({
                "protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {}},
                "serverInfo": {"name": "fake", "version": "1"}
            });
        }
        "tools/list" => {
            reply["result"] = json!({"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]});
        }
        "tools/call" => reply["result"] = json!({"content": [{"type": "text", "text": BODY}]}),
        other => reply["error"] = json!({"code": -32601, "message": format!("no method {other}")}),
    }
    ("200 OK", "application/json", reply.to_string())
}

/// Returns whether a session got an answer from each kind of server: a provider, a page, and an MCP server.
fn received(user: &User, port: u16, roots: Option<&PathBuf>) -> [bool; 3] {
    let run = |model: &str, more: &[String]| {
        let mut args = ["run", "--store", "memory", "--json", "--model", model, "--limit", "attempts=1"]
            .map(str::to_owned)
            .to_vec();
        args.extend_from_slice(more);
        args.push("hi".to_owned());
        let mut command = user.command(&args.iter().map(String::as_str).collect::<Vec<_>>());
        command.env("OPENAI_API_KEY", "a-key");
        if let Some(roots) = roots {
            command.env("SSL_CERT_FILE", roots);
        }
        RunningCommand::start(command, "").done().out.contains(BODY)
    };
    let url = format!("https://localhost:{port}");
    let provider = run("openai/m", &["--base-url".to_owned(), url.clone()]);
    let file = user.config().join("subtend/subtend.yaml");
    std::fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
    let servers = json!({"notes": {"url": format!("{url}/mcp")}});
    let config = json!({"web": {"internal_hosts": [format!("localhost:{port}")]}, "mcp": {"servers": servers}});
    std::fs::write(file, config.to_string()).expect("a file");
    let called = |tool: &str, args: Value, allowed: String| {
        let steps = json!([{"calls": [{"tool": tool, "args": args}]}, {"text": "done"}]);
        let model = user.script(&json!({"rules": [{"agent": "*", "steps": steps}]}).to_string());
        run(&model, &["--allow".to_owned(), allowed])
    };
    let page = called("fetch", json!({"url": format!("{url}/page")}), format!("net.fetch={url}/*"));
    let server = called("mcp__notes__echo", json!({}), "mcp:notes:*".to_owned());
    [provider, page, server]
}

/// The controls: without the authority, and with another one, every server is refused.
#[test]
fn r13_authorities_of_the_system_are_trusted() {
    let user = User::new();
    let (config, roots) = signed(&user, "roots.pem");
    let (_, others) = signed(&user, "others.pem");
    let port = serve(config, answer);
    assert_eq!(received(&user, port, Some(&roots)), [true; 3]);
    assert_eq!(received(&user, port, Some(&others)), [false; 3]);
    assert_eq!(received(&user, port, None), [false; 3]);
}
