//! The same work as supervised, recorded sessions.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use subtend_actors::{OpenOptions, Options, Runtime};
use subtend_agents::catalog::Catalog;
use subtend_agents::manifest::{AgentMode, Manifest};
use subtend_journal::{Journal, StoreSpec, open_store};
use subtend_session::authority::{RuleSet, Verdict};
use subtend_session::limits::Limits;
use subtend_session::outcome::Outcome;
use subtend_tools::registry::Registry;

use crate::Pass;
use crate::fake::{FanOutModel, echo};

#[derive(Clone, Copy)]
pub(crate) enum StoreKind<'a> {
    Memory,
    /// On disk, synced.
    Redb,
    /// A new shard of the database with this address.
    Postgres(&'a str),
}

impl StoreKind<'_> {
    fn open(self, dir: &Path) -> Journal {
        static SHARDS: AtomicU32 = AtomicU32::new(0);
        let spec = match self {
            Self::Memory => "memory".to_owned(),
            Self::Redb => format!("redb:{}", dir.join("store").display()),
            Self::Postgres(address) => {
                let shard = SHARDS.fetch_add(1, Ordering::Relaxed);
                format!("{address}?shard=fan-out-{}-{shard}", std::process::id())
            }
        };
        open_store(&StoreSpec::parse(&spec).expect("a store spec")).expect("a journal")
    }
}

/// Limit of live children.
#[derive(Clone, Copy)]
pub(crate) enum Cap {
    /// No limit.
    Open,
    Default,
    /// The default limit; the fakes also wait until their intent is durable.
    DefaultDurable,
}

#[expect(clippy::disallowed_methods, reason = "a bench measures wall time")]
pub(crate) async fn fan_out(children: u32, store: StoreKind<'_>, cap: Cap) -> Pass {
    let dir = tempfile::tempdir().expect("a directory for the bench");
    let journal = store.open(dir.path());
    let live = matches!(cap, Cap::Open);
    let limits = Limits {
        calls_per_answer: u32::MAX,
        argument_bytes: u64::MAX,
        spawns: u32::MAX,
        live_runs: if live { u32::MAX } else { 3 },
        ..Limits::default()
    };
    let options = Options {
        slots: if live { usize::MAX } else { 256 },
        durable_before_call: matches!(cap, Cap::DefaultDurable),
        ..Options::default()
    };
    let mut catalog = Catalog::builtin();
    catalog.insert(Manifest::new("general", AgentMode::All, "You are a parent."));
    catalog.insert(Manifest::new("worker", AgentMode::Subagent, "You are a worker."));
    let registry = Registry::builder().tool(echo()).expect("one tool").build();
    let runtime = Runtime::builder()
        .journal(journal.clone())
        .catalog(catalog)
        .tools(registry)
        .model(Arc::new(FanOutModel { children }))
        .limits(limits)
        .policy(RuleSet { default: Verdict::Allow, rules: Vec::new() })
        .options(options)
        .start()
        .await
        .expect("a runtime");
    let before = journal.last_appended();
    let started = Instant::now();
    let session = runtime.open(OpenOptions { agent: "general".into(), ..OpenOptions::default() }).expect("a session");
    let receipt = session.send("fan out").await.expect("accepted");
    let ended = session.run_ended(receipt.run).await.expect("ended");
    let wall = started.elapsed();
    assert_eq!(ended.outcome, Outcome::Completed, "{ended:?}");
    assert_eq!(ended.text.as_deref(), Some(&*format!("{children} results")));
    let frames = journal.last_appended().0 - before.0;
    runtime.shutdown(std::time::Duration::from_secs(1)).await;
    Pass { wall, frames }
}
