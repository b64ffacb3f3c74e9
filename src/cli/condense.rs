use std::io::Write as _;

use hyper::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json as object};

use super::control;
use super::fail::{Code, Fail};
use super::hosted::{self, Hosted};
use super::json;
use super::paint::count;
use super::work::StopSignal;
use super::work::serve::{self, ServeArgs, ServiceError};

/// Summarizes the old part of a conversation with the agent `compaction`; later model calls see the summary in its place.
///
/// Nothing is deleted: `subtend show` marks the messages, and `--undo` shows them to the model again. Sessions do this
/// automatically when their context is nearly full (`limits.compact_at`).
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Session: an id, the start of one, a short name, or a path such as `root/a3f9c1`
    session: String,

    /// Undo the last compaction: the model sees its hidden messages again
    #[arg(long)]
    undo: bool,

    /// Print one JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    serve: ServeArgs,
}

#[derive(Deserialize, Serialize)]
pub(crate) struct CompactionReply {
    messages: u64,
    before: u64,
    after: u64,
}

impl CompactionReply {
    pub(crate) fn sentence(&self) -> String {
        let Self { messages, before, after } = self;
        let messages = count(u32::try_from(*messages).unwrap_or(u32::MAX), "message");
        format!("condensed {messages}: about {before} tokens before, {after} after")
    }
}

pub(crate) fn run(args: &Args) -> Result<Code, Fail> {
    if args.undo {
        return hosted::with(&args.serve.store, &args.session, |hosted| undo(args, hosted));
    }
    // Nothing has begun until the host is found, so a signal may simply end this process.
    if let Some(hosted) = Hosted::find(&args.serve.store, &args.session)? {
        args.serve.refuse_for_other_host()?;
        let (_threads, mut stop) = serve::listen()?;
        return condense(args, &hosted, &mut stop);
    }
    let (threads, mut stop) = serve::listen()?;
    let ready = args.serve.ready(&args.session)?;
    if ready.parts.models.is_offline() {
        return Err(Fail::Usage(
            "cannot condense with the built-in model `offline`: it answers by rules. Name a language model by --model or by `llm.model` \
             in subtend.yaml"
                .to_owned(),
        ));
    }
    serve::with(threads, ready, |hosted| condense(args, hosted, &mut stop))
}

fn condense(args: &Args, hosted: &Hosted, stop: &mut StopSignal) -> Result<Code, Fail> {
    match serve::request::<CompactionReply>(hosted, stop, "/compaction", "compacting the conversation") {
        Ok(done) => {
            let done = done?;
            control::say(&if args.json { json::text(&done)? } else { done.sentence() })?;
            Ok(Code::Done)
        }
        Err(ServiceError::Late) => Err(Fail::Other("the summary took too long: nothing is hidden".to_owned())),
        Err(ServiceError::Stopped) => {
            // A failed write is ignored: the exit code still reports the cancellation.
            drop(writeln!(anstream::stderr(), "cancelled: the conversation is not condensed"));
            Ok(Code::Cancelled)
        }
    }
}

fn undo(args: &Args, hosted: &Hosted) -> Result<Code, Fail> {
    let _: Value = hosted.control(Method::DELETE, "/compaction", None)?;
    let (session, name) = (hosted.id, hosted.id.short().0);
    control::say(&if args.json {
        json::text(&object!({"session": session, "undone": true}))?
    } else {
        format!("session {name}: the messages hidden by the last compaction are visible to the model again")
    })?;
    Ok(Code::Done)
}
