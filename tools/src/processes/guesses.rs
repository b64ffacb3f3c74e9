//! A model that prints guesses of a key learns nothing from what is shown of a running process, and when.

use super::*;

const KEY: &str = "sk-0123456789";

fn process() -> Arc<BackgroundProcess> {
    let secrets = Secrets::of([("KEY", KEY), ("PIN", "98765432")]);
    let session = "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap();
    let processes = Processes::default().with_secrets(&secrets);
    processes.add(session, &Arc::new(Authority::allow_all()), mpsc::channel(1).0, 1_000).unwrap()
}

/// Returns what is shown of a process that writes `text` in parts of `size` bytes, with a pause after each: the total after each
/// part and each pause, and at the end, and then the text.
async fn shown(text: &str, size: usize, pause: Duration) -> (Vec<u64>, String) {
    let process = process();
    let total = || process.unread(OutputReader::Owner).1;
    let mut totals = Vec::new();
    for part in text.as_bytes().chunks(size) {
        process.push(0, part);
        totals.push(total());
        tokio::time::advance(pause).await;
        totals.push(total());
    }
    process.record_end("ended".to_owned());
    totals.push(total());
    (totals, process.tail(1_000).text)
}

/// Parts and pauses of any length. The control: the whole key is replaced, unless pauses split it.
#[tokio::test(start_paused = true)]
async fn right_guess_in_running_output_looks_like_a_wrong_one() {
    let around = |guess: &str| format!("guess:\n{guess}\nand more output");
    for pause in [0, 499, 500].map(Duration::from_millis) {
        for length in 1..KEY.len() {
            let (right, wrong) = (&KEY[..length], format!("{}?", &KEY[..length - 1]));
            for size in 1..40 {
                let (totals, text) = shown(&around(right), size, pause).await;
                assert_eq!(text, around(right));
                assert_eq!(
                    totals,
                    shown(&around(&wrong), size, pause).await.0,
                    "{right} in parts of {size}, {pause:?}"
                );
            }
        }
    }
    for (pause, size, is_replaced) in [(0, 1, true), (499, 1, true), (500, 40, true), (500, 1, false)] {
        let (_, text) = shown(&around(KEY), size, Duration::from_millis(pause)).await;
        let expected = if is_replaced { "[KEY redacted]" } else { KEY };
        assert_eq!(text, around(expected), "{pause} ms, {size}");
    }
}

/// A prompt without a line break is shown although the process waits for input.
#[tokio::test(start_paused = true)]
async fn r9_wait_returns_when_held_output_is_due() {
    for prompt in ["Password: ", "sk-01234567"] {
        let (process, started) = (process(), Instant::now());
        process.push(1, prompt.as_bytes());
        process.wait(None, Duration::from_millis(100)).await;
        assert_eq!(process.unread(OutputReader::Owner), (0, 0));
        process.wait(Some(OutputReader::Owner), Duration::from_secs(60)).await;
        let (shown, waited) = (process.read(OutputReader::Owner, None, 100).text, started.elapsed());
        assert_eq!((&*shown, waited.as_millis()), (prompt, 500));
    }
}

/// What one stream holds back is shown before the later output of the other one.
#[tokio::test(start_paused = true)]
async fn r9_output_of_two_streams_keeps_its_order() {
    let process = process();
    for (stream, text) in [(0, "Listening\n"), (1, "warning: a deprecated option\n"), (0, "Ready\n")] {
        process.push(stream, text.as_bytes());
    }
    process.record_end("ended".to_owned());
    assert_eq!(process.tail(1_000).text, "Listening\nwarning: a deprecated option\nReady\n");
}
