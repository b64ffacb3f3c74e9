use std::io::Write as _;

use serde::Serialize;
use subtend_actors::UnrecordedWrite;
use subtend_actors::transcript::{MAX_NESTED_LEVELS, Transcript, TranscriptError, TranscriptReading};
use subtend_tools::checkpoint::Patches;

use super::checkpoints;
use super::data::StoreArgs;
use super::fail::{Code, Fail};
use super::store_reader::StoreReader;
use crate::cli::json;

mod draw;

/// Shows the transcript of one session: prompt, messages, calls with their results, and the outcome of each run.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Session: an id, the start of one, a short name, or a path such as `root/a3f9c1`
    #[arg(value_name = "ID")]
    session: String,

    /// Print everything in full: the system prompt, arguments, results, and the transcripts of children that `sessions` does
    /// not list
    #[arg(long)]
    full: bool,

    /// Print one JSON object in full, with the transcripts of such children inside the calls that started them
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    store: StoreArgs,
}

/// A transcript, with file writes whose results the journal does not contain.
#[derive(Serialize)]
struct ShownSession<'a> {
    #[serde(flatten)]
    transcript: &'a Transcript,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    unrecorded_writes: &'a [UnrecordedWrite],
}

pub(crate) fn run(args: &Args) -> Result<Code, Fail> {
    let reader = StoreReader::open_existing(&args.store)?;
    let id = reader.find(&args.session)?;
    let nests = (args.full || args.json).then_some(MAX_NESTED_LEVELS);
    let options = TranscriptReading { nests, ..TranscriptReading::default() };
    let transcript = Transcript::read(reader.journal(), id, options)?;
    let writes = match checkpoints::for_store(&args.store.place()?) {
        // Calls in flight of a running process have no results yet.
        Some(saved) => subtend_actors::checkpoints::unrecorded(
            reader.journal(),
            &saved,
            (id, !reader.is_hosted()),
            &mut Patches::default(),
        )
        .or_else(|error| {
            // Still show the transcript.
            writeln!(anstream::stderr(), "warning: writes without results are not shown: {error}")?;
            Ok::<_, Fail>(Vec::new())
        })?,
        None => Vec::new(),
    };
    let hosted = reader.is_hosted();
    reader.release();
    let mut out = anstream::stdout().lock();
    if args.json {
        json::write_line(&mut out, &ShownSession { transcript: &transcript, unrecorded_writes: &writes })?;
    } else {
        let options = draw::DrawOptions { full: args.full, hosted };
        draw::draw(&mut out, &transcript, options)?;
        if let Some(text) = checkpoints::describe_unrecorded(&writes) {
            writeln!(out, "\n{text}")?;
        }
    }
    Ok(Code::Done)
}

impl From<TranscriptError> for Fail {
    fn from(error: TranscriptError) -> Self {
        match error {
            TranscriptError::Read(error) => error.into(),
            TranscriptError::NoText(_) | TranscriptError::BadText { .. } | TranscriptError::NoReplay { .. } => {
                Self::Store(error.to_string())
            }
        }
    }
}
