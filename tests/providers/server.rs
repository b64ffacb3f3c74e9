//! Server processes that end with their handle and with this process.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use super::call::no_forks;

/// Time limit for a server to start.
const START: Duration = Duration::from_secs(60);

pub(crate) fn installed(path: &str) -> PathBuf {
    let default = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("target/provider-servers");
    let place = std::env::var_os("SUBTEND_PROVIDER_SERVERS").map_or_else(default, PathBuf::from).join(path);
    assert!(place.exists(), "{} is missing: run `.ci/tools servers`", place.display());
    place
}

pub(crate) fn server_file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/providers/servers").join(name)
}

/// A listening server process. It ends when its stdin is closed.
#[derive(Debug)]
pub(crate) struct ListeningServer {
    child: Child,
    origin: String,
}

impl ListeningServer {
    pub(crate) fn start(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let forking = no_forks();
        let mut child = command.spawn().expect("the server's program starts");
        drop(forking);
        let error_output = Arc::new(Mutex::new(String::new()));
        let mut stderr = child.stderr.take().expect("stderr");
        let noted = Arc::clone(&error_output);
        thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(read @ 1..) = stderr.read(&mut piece) {
                noted.lock().unwrap_or_else(PoisonError::into_inner).push_str(&String::from_utf8_lossy(&piece[..read]));
            }
        });
        let stdout = BufReader::new(child.stdout.take().expect("stdout"));
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if let Some((_, address)) = line.split_once("listening on ") {
                    drop(sender.send(address.trim().to_owned()));
                }
            }
        });
        let Ok(origin) = receiver.recv_timeout(START) else {
            drop(child.kill());
            panic!("{command:?} did not listen: {}", error_output.lock().unwrap_or_else(PoisonError::into_inner));
        };
        Self { child, origin }
    }

    /// `http://127.0.0.1:port`.
    pub(crate) fn origin(&self) -> &str {
        &self.origin
    }
}

impl Drop for ListeningServer {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
