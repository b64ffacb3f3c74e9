//! Answers with many calls of unknown tools: the calls are classified a few at a time, and each one searches the tools once.

use crate::support::*;
use subtend_tools::registry::LiveTools;
use subtend_tools::tool::Tool;

/// A source with one tool. Counts the reads of its list, and the checks of its tool for a list of all tools.
#[derive(Clone, Default)]
struct CountedTools {
    reads: Arc<AtomicUsize>,
    listings: Arc<AtomicUsize>,
}

impl LiveTools for CountedTools {
    fn generation(&self) -> u64 {
        0
    }

    fn tools(&self) -> Registry {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let listings = Arc::clone(&self.listings);
        let look = tool("look", ToolEffect::ReadOnly, |_| async { Ok(ToolOutput::text("looked")) });
        tools([look.access(move |_| {
            listings.fetch_add(1, Ordering::Relaxed);
            Vec::new()
        })])
    }

    fn find_unlisted(&self, _: &str) -> Option<Arc<dyn Tool>> {
        None
    }

    fn settle(&self) -> Option<BoxFuture<'static, ()>> {
        None
    }
}

impl CountedTools {
    fn counts(&self) -> [usize; 2] {
        [&self.reads, &self.listings].map(|count| count.load(Ordering::Relaxed))
    }
}

/// Returns the most reads while no other task ran, and the reads and listings between two requests, of which the first is answered with
/// `count` unknown calls.
async fn classify(count: usize, at_once: bool) -> (usize, [usize; 2]) {
    let (journal, source, most) = (journal(), CountedTools::default(), Arc::new(AtomicUsize::new(0)));
    let requests: Arc<Mutex<Vec<[usize; 2]>>> = Arc::default();
    let (of_model, seen) = (source.clone(), Arc::clone(&requests));
    let answer = move |request: Request| {
        seen.lock().unwrap().push(of_model.counts());
        async move {
            if !at_once {
                tokio::task::yield_now().await;
            }
            Ok(match answers(&request) {
                0 => calls((0..count).map(|_| ("nonesuch", json!({})))),
                _ => text(&results(&request)[count.min(64) - 1]),
            })
        }
    };
    let registry = Registry::builder().live(Arc::new(source.clone())).build();
    let runtime = started(builder(&journal).tools(registry).model(model(answer))).await;
    let (watched, max) = (source.clone(), Arc::clone(&most));
    let watch = tokio::spawn(async move {
        let [mut last, _] = watched.counts();
        loop {
            tokio::task::yield_now().await;
            let [now, _] = watched.counts();
            max.fetch_max(now - last, Ordering::Relaxed);
            last = now;
        }
    });
    let (_, ended) = ask(&runtime, "go").await;
    watch.abort();
    shut(runtime).await;
    assert!(ended.text.unwrap().starts_with("no tool is named `nonesuch`."));
    let requests = requests.lock().unwrap();
    (most.load(Ordering::Relaxed), [0, 1].map(|at| requests[1][at] - requests[0][at]))
}

/// Calls beyond `calls_per_answer` are refused unseen. The controls: few calls, and those of a model that answers at once,
/// which is a local one.
#[tokio::test]
async fn many_unknown_calls_leave_the_thread_to_others() {
    for (count, at_once, expected) in [
        (8, true, 8..=18),
        (8, false, 8..=18),
        (64, false, 8..=18),
        (64, true, 64..=74),
        (200, false, 8..=18),
        (200, true, 64..=74),
    ] {
        let (most, counts) = classify(count, at_once).await;
        // The offer is made by two reads. Two steps may run in a row, because tasks that yielded run in any order.
        assert!(expected.contains(&most), "{count} {at_once}: {most} at once");
        assert_eq!(counts, [count.min(64), 0], "{count} {at_once}");
    }
}
