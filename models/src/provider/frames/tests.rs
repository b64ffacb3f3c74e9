use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;

use futures_util::FutureExt as _;
use subtend_session::ids::{AttemptNo, SessionId, TurnNo};
use subtend_session::record::Prompt;
use subtend_session::settings::Settings;

use super::super::{Provider, Target};
use super::*;
use crate::model::{Deltas, Model as _, Request};

fn permits(count: usize) -> &'static Semaphore {
    Box::leak(Box::new(Semaphore::new(count)))
}

fn draft() -> Draft {
    Draft::new(Protocol::OpenAi, TurnNo(1), Deltas::none())
}

/// Reads `bytes` in pieces. Returns `None` if the stream must wait.
fn read(frames: &mut Frames, draft: &mut Draft, bytes: &[u8]) -> Option<Result<(), Fault>> {
    for piece in bytes.chunks(PIECE) {
        match frames.reserve(piece.len()).now_or_never()? {
            Ok(()) => frames.push(piece, draft).ok()?,
            Err(fault) => return Some(Err(fault)),
        }
    }
    Some(Ok(()))
}

/// Attack: servers that pause within long lines. The controls: short lines need no permit, and finished ones give theirs back.
#[tokio::test(start_paused = true)]
async fn large_unfinished_frames_wait_for_permits() {
    let permits = permits(2);
    let [mut one, mut two, mut three, mut short] =
        [(); 4].map(|()| (Frames::with_permits(Protocol::OpenAi, permits), draft()));
    let large = [b"data: ".to_vec(), vec![b' '; 4 << 20]].concat();
    for (frames, draft) in [&mut one, &mut two] {
        assert_eq!(read(frames, draft, &large), Some(Ok(())));
    }
    assert_eq!((read(&mut three.0, &mut three.1, &large), permits.available_permits()), (None, 0));
    assert!(three.0.unfinished() <= LARGE_FRAME);
    assert_eq!(read(&mut short.0, &mut short.1, &b"data: {}\n\n".repeat(100_000)), Some(Ok(())));
    let fault = three.0.reserve(PIECE).await.unwrap_err();
    let text = "a line of the answer is long, and too many other calls are reading long lines";
    assert_eq!((fault.kind, fault.text.as_str()), (ModelFail::Unavailable, text));
    // The event is finished, and its stream continues.
    assert_eq!(read(&mut one.0, &mut one.1, b"{}\n\n"), Some(Ok(())));
    assert_eq!((permits.available_permits(), one.0.buffer.capacity() < LARGE_FRAME), (1, true));
    assert_eq!(three.0.reserve(PIECE).now_or_never(), Some(Ok(())));
    drop((two, three));
    assert_eq!(permits.available_permits(), 2);
}

/// A server could send an event of the maximum size, and then a line of it. The control: an event just below the maximum.
#[test]
fn event_and_its_unfinished_line_share_their_size() {
    let read = |rest: usize| {
        let (mut frames, mut draft) = (Frames::with_permits(Protocol::OpenAi, permits(1)), draft());
        let line = [b"data: ".to_vec(), vec![b' '; MAX_FRAME / 2], b"\n".to_vec()].concat();
        frames.push(&line, &mut draft).unwrap();
        frames.push(&vec![b' '; rest], &mut draft)
    };
    assert_eq!([MAX_FRAME / 2, MAX_FRAME / 2 + 1].map(read), [Ok(()), Err(length_error())]);
}

fn request() -> Request {
    Request {
        session: SessionId("0190aaaa-0000-7000-8000-000000000001".parse().unwrap()),
        agent: "general".into(),
        model: "m".into(),
        turn: TurnNo(1),
        attempt: AttemptNo(1),
        system: "Be brief.".into(),
        messages: Arc::new(Vec::new()),
        prompt: Prompt::Plain,
        tools: Vec::new().into(),
        settings: Settings::default(),
        format: None,
    }
}

/// Waits until the calls of this process leave `count` permits.
async fn permits_become(count: usize) {
    let reached = async {
        while LARGE_FRAMES.available_permits() != count {
            tokio::task::yield_now().await;
        }
    };
    let reached = tokio::time::timeout(Duration::from_secs(60), reached).await;
    assert!(reached.is_ok(), "{} permits, not {count}", LARGE_FRAMES.available_permits());
}

/// Attack: servers of many calls that pause within a long line. The control: calls that end give their permits to others.
#[tokio::test(flavor = "multi_thread")]
async fn calls_hold_permits_while_their_lines_are_long() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", server.local_addr().unwrap());
    std::thread::spawn(move || {
        let mut open = Vec::new();
        for mut connection in server.incoming().flatten() {
            let answer = format!("HTTP/1.1 200 OK\r\n\r\ndata: {}", " ".repeat(1 << 20));
            // The calls are aborted at the end.
            drop(connection.read(&mut [0; 65_536]).and_then(|_| connection.write_all(answer.as_bytes())));
            open.push(connection);
        }
    });
    let all = LARGE_FRAMES.available_permits();
    let call = || {
        let target = Target::parse("openai/m").and_then(|target| target.with_base_url(&url)).unwrap();
        let provider = Provider::new(target).unwrap();
        tokio::spawn(async move { provider.call(request(), Deltas::none()).await })
    };
    let mut calls: Vec<_> = (1..all).map(|_| call()).collect();
    permits_become(1).await;
    calls.extend([call(), call()]);
    permits_become(0).await;
    calls.drain(1..).for_each(|call| call.abort());
    permits_become(all - 1).await;
    calls[0].abort();
    permits_become(all).await;
}
