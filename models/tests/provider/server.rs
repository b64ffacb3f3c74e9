//! A server with scripted replies that records requests.

pub(crate) use std::sync::{Arc, Mutex};

pub(crate) use serde_json::json;
pub(crate) use subtend_models::model::{Delta, Deltas, ModelError, Request};
pub(crate) use subtend_models::provider::{Provider, Target};
pub(crate) use subtend_session::ids::TurnNo;
pub(crate) use subtend_session::outcome::ModelFail;
pub(crate) use subtend_session::settings::Settings;
pub(crate) use tokio::net::TcpListener;

use serde_json::Value;
use subtend_models::model::{Answer, Model as _, StreamProgress};
use subtend_models::provider::Key;
use subtend_session::ids::{AttemptNo, Seq, SessionId};
use subtend_session::message::Message;
use subtend_session::record::Prompt;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

pub(crate) const KEY: &str = "topsecret-4711";

#[derive(Clone)]
pub(crate) struct Reply {
    head: String,
    pieces: Vec<Vec<u8>>,
    end: End,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Whole,
    Cut,
    Silence,
}

impl Reply {
    /// Returns a reply with a stream of events. `body` contains the events with their line breaks.
    pub(crate) fn stream(body: impl AsRef<str>) -> Self {
        Self::with_head("200 OK\r\ncontent-type: text/event-stream", body)
    }

    /// Returns a reply. `head` has the status and further headers, such as `429 Too Many Requests\r\nretry-after: 2`.
    pub(crate) fn with_head(head: &str, body: impl AsRef<str>) -> Self {
        Self { head: head.into(), pieces: vec![body.as_ref().as_bytes().to_vec()], end: End::Whole }
    }

    /// Sends the body in pieces of `size` bytes.
    pub(crate) fn in_pieces_of(mut self, size: usize) -> Self {
        self.pieces = self.pieces.concat().chunks(size).map(<[u8]>::to_vec).collect();
        self
    }

    pub(crate) fn truncated(self) -> Self {
        Self { end: End::Cut, ..self }
    }

    pub(crate) fn and_silence(self) -> Self {
        Self { end: End::Silence, ..self }
    }
}

pub(crate) struct Server {
    pub(crate) url: String,
    requests: Arc<Mutex<Vec<ReceivedRequest>>>,
    gone: Arc<tokio::sync::Notify>,
}

#[derive(Clone, Debug)]
pub(crate) struct ReceivedRequest {
    pub(crate) line: String,
    pub(crate) headers: String,
    pub(crate) body: Value,
}

impl Server {
    pub(crate) async fn start(replies: impl IntoIterator<Item = Reply>) -> Self {
        let replies: Vec<Reply> = replies.into_iter().collect();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let gone = Arc::new(tokio::sync::Notify::new());
        let (kept, left) = (Arc::clone(&requests), Arc::clone(&gone));
        tokio::spawn(async move {
            let mut next = 0;
            while let Ok((mut connection, _)) = listener.accept().await {
                let Some(request) = read(&mut connection).await else { continue };
                kept.lock().unwrap().push(request);
                let reply = replies[next.min(replies.len() - 1)].clone();
                next += 1;
                tokio::spawn(say(connection, reply, Arc::clone(&left)));
            }
        });
        Self { url, requests, gone }
    }

    pub(crate) fn received_request(&self) -> ReceivedRequest {
        self.all().remove(0)
    }

    pub(crate) fn all(&self) -> Vec<ReceivedRequest> {
        self.requests.lock().unwrap().clone()
    }

    pub(crate) async fn wait_until_left(&self) {
        self.gone.notified().await;
    }

    /// Returns the model `model` of a provider at this server, with a key.
    pub(crate) fn model(&self, model: &str) -> Provider {
        let target = Target::parse(model).unwrap().with_base_url(&self.url).unwrap().with_key(Key::new(KEY));
        Provider::new(target).unwrap()
    }

    /// Makes one call. Returns the answer and its deltas.
    pub(crate) async fn ask(&self, model: &str, request: Request) -> (Result<Answer, ModelError>, Vec<Delta>) {
        let deltas_received = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&deltas_received);
        let deltas = Deltas::with_progress(move |sign| match sign {
            StreamProgress::Delta(delta) => sink.lock().unwrap().push(delta),
            StreamProgress::Alive => {}
        });
        let answer = self.model(model).call(request, deltas).await;
        let deltas_received = deltas_received.lock().unwrap().clone();
        (answer, deltas_received)
    }
}

/// Calls `model` at a server that sends `reply`, and returns the answer.
pub(crate) async fn answer(model: &str, reply: Reply) -> Result<Answer, ModelError> {
    Server::start([reply]).await.ask(model, request()).await.0
}

pub(crate) fn request() -> Request {
    Request {
        session: SessionId("0190aaaa-0000-7000-8000-000000000001".parse().unwrap()),
        agent: "general".into(),
        model: "m".into(),
        turn: TurnNo(4),
        attempt: AttemptNo(1),
        system: "Be brief.".into(),
        messages: Arc::new(vec![Message::User { seq: Seq(2), text: "hello".into() }]),
        prompt: Prompt::Plain,
        tools: Vec::new().into(),
        settings: Settings::default(),
        format: None,
    }
}

async fn read(connection: &mut TcpStream) -> Option<ReceivedRequest> {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length =
                head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
            if body.len() >= length.unwrap_or(0) {
                let (line, headers) = head.split_once("\r\n").unwrap_or((head, ""));
                let body = serde_json::from_str(body).unwrap_or(Value::Null);
                return Some(ReceivedRequest { line: line.into(), headers: headers.to_lowercase(), body });
            }
        }
        let mut more = [0_u8; 4096];
        match connection.read(&mut more).await {
            Ok(0) | Err(_) => return None,
            Ok(read) => bytes.extend_from_slice(&more[..read]),
        }
    }
}

async fn say(mut connection: TcpStream, reply: Reply, gone: Arc<tokio::sync::Notify>) {
    connection.set_nodelay(true).unwrap();
    let head = format!("HTTP/1.1 {}\r\ntransfer-encoding: chunked\r\n\r\n", reply.head);
    let mut sent = connection.write_all(head.as_bytes()).await;
    for piece in reply.pieces.iter().filter(|piece| !piece.is_empty()) {
        let mut chunk = format!("{:x}\r\n", piece.len()).into_bytes();
        chunk.extend_from_slice(piece);
        chunk.extend_from_slice(b"\r\n");
        if sent.is_ok() {
            sent = connection.write_all(&chunk).await;
        }
        tokio::task::yield_now().await;
    }
    match reply.end {
        End::Whole => {
            // The client may have closed the connection.
            let _ = connection.write_all(b"0\r\n\r\n").await;
        }
        End::Cut => {}
        End::Silence => {
            let mut more = [0_u8; 64];
            while let Ok(1..) = connection.read(&mut more).await {}
            gone.notify_one();
        }
    }
}
