use hyper::Method;
use serde::{Deserialize, Serialize};

use super::super::control;
use super::super::data::StoreArgs;
use super::super::fail::{Code, Fail};
use super::super::hosted::Hosted;
use crate::cli::json;

/// Reloads the agents, instruction files, skills and tools of a running session's tree.
///
/// An open session uses the files as they were when it was opened. After this command, all sessions of the tree use the
/// current files from their next turn on; their own prompts and permissions stay. To use an agent's new manifest in
/// a session, send it an input with `subtend send --agent NAME`.
#[derive(clap::Args, Debug)]
pub(super) struct Args {
    /// Session: an id, the start of one, a short name, or a path such as `root/a3f9c1`
    session: String,

    #[command(flatten)]
    store: StoreArgs,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Names of the agents that changed, and refused files.
#[derive(Deserialize, Serialize)]
struct ReloadReply {
    added: Vec<String>,
    changed: Vec<String>,
    removed: Vec<String>,
    /// Missing in the reply of an earlier version.
    #[serde(default)]
    refused: Vec<String>,
}

impl ReloadReply {
    fn sentence(&self) -> String {
        let parts = [
            ("added", &self.added),
            ("changed", &self.changed),
            ("removed", &self.removed),
            ("refused", &self.refused),
        ];
        let parts: Vec<String> = parts
            .into_iter()
            .filter(|(_, names)| !names.is_empty())
            .map(|(what, texts)| format!("{what}: {}", texts.join(if what == "refused" { "; " } else { ", " })))
            .collect();
        match parts.is_empty() {
            true => "reloaded: no agent changed".to_owned(),
            false => format!("reloaded: {}", parts.join("; ")),
        }
    }
}

pub(super) fn run(args: &Args) -> Result<Code, Fail> {
    let Some(hosted) = Hosted::find(&args.store, &args.session)? else {
        return Err(Fail::Usage(
            "no process hosts the store: nothing needs a reload, since each command reads the current files".to_owned(),
        ));
    };
    let done: ReloadReply = hosted.call(Method::POST, "/reload", None)?;
    control::say(&if args.json { json::text(&done)? } else { done.sentence() })?;
    Ok(Code::Done)
}
