use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, Sender, channel};

use serde_json::json;
use subtend_session::authority::Authority;
use subtend_session::ids::{CallId, RunNo, SessionId, TurnNo};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::http::SystemResolver;
use crate::http::checked::AllowedHosts;
use crate::processes::Processes;
use crate::tool::Progress;
use crate::tool_key::ToolKey;
use crate::workspace::Workspace;

fn client() -> WebClient {
    WebClient::new(AllowedHosts::All, Arc::new(SystemResolver))
}

fn permits(calls: usize, conversions: usize) -> &'static FetchPermits {
    Box::leak(Box::new(FetchPermits::new(calls, conversions)))
}

fn workspace(permits: &'static FetchPermits) -> Fetch {
    Fetch::with_permits(client(), Secrets::default(), permits)
}

fn run(tool: &Fetch, url: &str) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
    let session: SessionId = "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap();
    tool.run(ToolInvocation {
        key: ToolKey { session, run: RunNo(1), call: CallId { turn: TurnNo(2), ix: 3 } },
        args: json!({"url": url}),
        options: Arc::default(),
        workspace: Arc::new(Workspace::open(".").unwrap()),
        authority: Arc::new(Authority::allow_all()),
        cancel: CancellationToken::new(),
        max_bytes: 1 << 16,
        progress: Progress::none(),
        processes: Processes::default(),
        checkpoints: None,
        messenger: None,
        child_tools: None,
        approved: false,
    })
}

/// A server of one page, and the number of times that it was sent.
fn page(media: &'static str) -> (String, Receiver<()>) {
    let (url, sent, _) = held_page(media);
    (url, sent)
}

/// A page whose server answers nothing until the sender is dropped. Calls read it on other threads, where they do not wait for a poll.
fn held_page(media: &'static str) -> (String, Receiver<()>, Sender<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let (sender, receiver) = channel();
    let (hold, held) = channel();
    std::thread::spawn(move || {
        // Nothing is ever sent.
        _ = held.recv();
        for mut stream in listener.incoming().flatten() {
            let answer =
                format!("HTTP/1.1 200 OK\r\ncontent-type: {media}\r\nconnection: close\r\n\r\n<h1>inside</h1>");
            // The test may have ended.
            drop(stream.read(&mut [0; 65_536]).and_then(|_| stream.write_all(answer.as_bytes())));
            _ = sender.send(());
        }
    });
    (url, receiver, hold)
}

/// Attack: calls of several workspaces that are all slow. The control: a call after another one runs.
#[tokio::test]
async fn calls_of_all_workspaces_share_their_permits() {
    let of_process = permits(3, 1);
    let (one, other) = (workspace(of_process), workspace(of_process));
    let (url, _sent, hold) = held_page("text/plain");
    let mut calls: Vec<_> = [&one, &other, &one, &other].map(|tool| run(tool, &url)).into();
    assert!(calls.iter_mut().all(|call| call.now_or_never().is_none()));
    assert_eq!(of_process.calls.available_permits(), 0);
    // The last call waits: it takes the permit of the first one.
    drop(calls.remove(0));
    assert_eq!(of_process.calls.available_permits(), 0);
    drop(hold);
    for call in calls {
        assert!(call.await.unwrap().content.contains("<h1>inside</h1>"));
    }
    assert_eq!(of_process.calls.available_permits(), 3);
    let [one, other] = [(); 2].map(|()| Fetch::new(client(), Secrets::default()).fetcher.of_process);
    assert!(std::ptr::eq(one, other));
}

/// Attack: slow servers of one workspace. The control: calls of another one run.
#[tokio::test]
async fn calls_of_a_workspace_leave_permits_to_others() {
    let of_process = permits(WORKSPACE_CALLS + 2, 1);
    let (one, other) = (workspace(of_process), workspace(of_process));
    let ((url, _sent), (slow, _, _hold)) = (page("text/plain"), held_page("text/plain"));
    let mut slow: Vec<_> = (0..WORKSPACE_CALLS + 2).map(|_| run(&one, &slow)).collect();
    assert!(slow.iter_mut().all(|call| call.now_or_never().is_none()));
    assert_eq!(of_process.calls.available_permits(), 2);
    assert!(run(&other, &url).await.is_ok());
}

/// Attack: large pages that arrive at the same time. The control: a text is not converted, so it does not wait.
#[tokio::test(flavor = "multi_thread")]
async fn page_waits_undecoded_for_a_conversion_of_the_process() {
    let of_process = permits(9, 1);
    let (one, other) = (workspace(of_process), workspace(of_process));
    let ((html, sent), (text, _sent)) = (page("text/html"), page("text/plain"));
    let busy = of_process.conversions.acquire().await.unwrap();
    let waiting = [&one, &other].map(|tool| tokio::spawn(run(tool, &html)));
    tokio::task::spawn_blocking(move || sent.iter().take(2).for_each(drop)).await.unwrap();
    for _ in 0..9 {
        assert!(run(&one, &text).await.unwrap().content.contains("<h1>inside</h1>"));
    }
    assert!(!waiting.iter().any(|call| call.is_finished()));
    drop(busy);
    for call in waiting {
        assert!(call.await.unwrap().unwrap().content.contains("# inside"));
    }
}
