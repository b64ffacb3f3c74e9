//! Answers of services in the log.

use tracing::field::{Field, Visit};
use tracing::span;

use super::*;

/// Collects the fields of events.
#[derive(Clone, Default)]
struct Logged(Arc<Mutex<String>>);

impl tracing::Subscriber for Logged {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        if event.metadata().target().starts_with("subtend") {
            event.record(&mut FieldVisitor(&mut self.0.lock().unwrap()));
        }
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

struct FieldVisitor<'a>(&'a mut String);

impl Visit for FieldVisitor<'_> {
    fn record_debug(&mut self, _: &Field, value: &dyn std::fmt::Debug) {
        self.0.push_str(&format!("{value:?}\n"));
    }
}

/// The model of titles answers with megabytes of control characters. The control: a short answer is logged whole.
#[tokio::test(start_paused = true)]
async fn unusable_title_is_truncated_in_the_log() {
    let (journal, requests, logged) = (journal(), ServicePrompts::default(), Logged::default());
    let _guard = tracing::subscriber::set_default(logged.clone());
    let runtime = serving(&journal, &requests, |request: Request| async move {
        let long = prompt(&request).contains("long");
        Ok(text(&if long { "\u{1b}\n".repeat(2 << 20) } else { "Sure!\nHello".to_owned() }))
    });
    let runtime = runtime.start().await.expect("a runtime");
    let log_of = async |wording: &str| {
        let session = open(&runtime);
        say(&session, wording).await;
        session.services_done().await;
        std::mem::take(&mut *logged.0.lock().unwrap())
    };
    let short = log_of("a short one").await;
    assert!(short.contains("its answer cannot be used: \"Sure!\\nHello\"\n"), "{short}");
    let long = log_of("a long one").await;
    let excerpt = "\\u{1b}\\n".repeat(100);
    assert!(
        long.contains(&format!("its answer cannot be used: \"{excerpt}\" (cut, 4194304 bytes in all)\n")),
        "{long}"
    );
    assert!(long.len() < 4_096, "{}", long.len());
    shut(runtime).await;
}
