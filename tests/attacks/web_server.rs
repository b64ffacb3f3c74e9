//! A test web server with one page.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// Answers requests on a local port and records them.
pub(crate) struct WebServer {
    pub(crate) port: u16,
    heads: Arc<Mutex<Vec<String>>>,
}

impl WebServer {
    /// Starts a server; `answer` gets the first line and the headers of each request.
    pub(crate) fn start(answer: impl Fn(&str, &mut TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("its address").port();
        let heads = Arc::new(Mutex::new(Vec::new()));
        let (kept, answer) = (Arc::clone(&heads), Arc::new(answer));
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let (kept, answer) = (Arc::clone(&kept), Arc::clone(&answer));
                std::thread::spawn(move || {
                    let mut buffer = vec![0; 65_536];
                    let read = stream.read(&mut buffer).unwrap_or(0);
                    let head = String::from_utf8_lossy(&buffer[..read]).into_owned();
                    kept.lock().expect("not poisoned").push(head.clone());
                    answer(&head, &mut stream);
                });
            }
        });
        Self { port, heads }
    }

    pub(crate) fn page(headers: &str, body: impl Into<Vec<u8>>) -> Self {
        let (headers, body) = (headers.to_owned(), body.into());
        Self::start(move |_, stream| send(stream, "200 OK", &headers, &body))
    }

    pub(crate) fn redirect(to: String) -> Self {
        Self::start(move |_, stream| send(stream, "302 Found", &format!("location: {to}\r\n"), b""))
    }

    pub(crate) fn url(&self) -> String {
        format!("http://localhost:{}/", self.port)
    }

    pub(crate) fn host(&self) -> String {
        format!("localhost:{}", self.port)
    }

    pub(crate) fn heads(&self) -> Vec<String> {
        self.heads.lock().expect("not poisoned").clone()
    }
}

/// Sends an answer. Errors are ignored, because some tests are about clients that disconnect.
pub(crate) fn send(stream: &mut TcpStream, status: &str, headers: &str, body: &[u8]) {
    let head = format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\nconnection: close\r\n\r\n", body.len());
    drop(stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body)).and_then(|()| stream.flush()));
}
