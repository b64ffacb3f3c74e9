//! A host for commands that control sessions without running an agent.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use subtend_actors::{Options, Runtime};
use subtend_host::{Host, HostOptions};
use subtend_journal::Journal;
use subtend_models::closure::fn_model;
use subtend_models::model::ModelError;
use subtend_session::outcome::ModelFail;
use subtend_tools::registry::Registry;

use super::checkpoints;
use super::data::StoreLocation;
use super::fail::{Code, Fail};
use super::json;
use super::progress::ProgressLine;
use super::trust::Trust;
use super::{work, workspace, worktrees};

/// Time limit of a shutdown.
const GRACE: Duration = Duration::from_secs(1);

/// Hosts a store for controls. Runs of an earlier process end as lost; no agent runs, so queued inputs remain.
pub(crate) async fn begin(journal: Journal, place: &StoreLocation) -> Result<Host, Fail> {
    let none = fn_model("none", |_, _| async {
        Err(ModelError::new(ModelFail::Unavailable, "this process only controls sessions: it does not run agents"))
    });
    let workspace = workspace::open(".".as_ref())?;
    let builder = Runtime::builder()
        .catalog(Trust::decide(&workspace)?.catalog(&workspace)?)
        .workspace(workspace)
        .options(Options { resumes: false, ..Options::default() })
        .tools(Registry::builder().build())
        .model(Arc::new(none));
    let builder = match worktrees::for_store(place)? {
        Some(worktrees) => builder.worktrees(worktrees),
        None => builder,
    };
    let builder = match checkpoints::for_store(place) {
        Some(checkpoints) => builder.checkpoints(checkpoints),
        None => builder,
    };
    let runtime = work::setup::begin(journal, builder, Some(ProgressLine::new())).await?;
    Ok(Host::new(runtime, HostOptions { approvals: false, ..HostOptions::default() }))
}

pub(crate) async fn end(host: Host) {
    work::setup::report_full_disk(host.runtime());
    host.shutdown(GRACE).await;
}

/// Prints the result of a command: as one JSON object with `--json`, otherwise as a sentence.
pub(crate) fn report(is_json: bool, result: &Value, sentence: &str) -> Result<Code, Fail> {
    if is_json { say(&json::text(result)?) } else { say(sentence) }?;
    Ok(Code::Done)
}

pub(crate) fn say(text: &str) -> Result<(), Fail> {
    use std::io::Write as _;
    Ok(writeln!(anstream::stdout(), "{}", super::paint::harmless(text))?)
}
