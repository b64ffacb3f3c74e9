use std::time::Duration;

use serde_json::{Value, json};

use super::call::User;
use super::llm::{Llm, llm};
use super::protocol::Protocol;
use super::provider_run::{ProviderRun, RunOutput};
use super::stored_session::only;
use super::text::agent;

/// Time within which a server must stop a cancelled request.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);

fn becomes_free(llm: &Llm) -> bool {
    let step = Duration::from_millis(50);
    (0..RELEASE_TIMEOUT.as_millis() / step.as_millis()).any(|_| {
        let free = llm.busy() == 0;
        if !free {
            std::thread::sleep(step);
        }
        free
    })
}

#[test]
fn cancel_in_mid_stream_frees_the_server_slot() {
    let llm = llm();
    for protocol in Protocol::REAL {
        let user = User::new();
        agent(&user, "long", "output_tokens: 1500\n");
        let talk = ProviderRun { agent: "long", model: "smollm2", ..ProviderRun::new(protocol, llm.origin()) };
        let run = talk.start(&user, "Write a long story of a fox, a crow and a farmer, with many chapters.");
        let piece = run.until(|event| event["type"] == "delta");
        assert_eq!(llm.busy(), 1, "{protocol:?}: the model has already ended: {piece:#}");
        run.signal("INT");
        let output = RunOutput::of(run.done());
        assert!(becomes_free(&llm), "{protocol:?}: the slot is still busy");

        assert_eq!(
            (output.code, &output.end["outcome"]),
            (Some(130), &json!({"cancelled": {"by": "person"}})),
            "{output:#?}"
        );
        assert_eq!(output.end["answer"], Value::Null, "{protocol:?}");
        let stored = only(&user);
        // The turn has no answer, so its streamed text is discarded.
        assert_eq!(
            (stored.of("turn_started").len(), stored.of("turn_answered").len()),
            (1, 0),
            "{protocol:?}: {stored:#?}"
        );
        assert_eq!(stored.of("run_ended").len(), 1, "{protocol:?}");
    }
}
