//! Files that children begin with: read before the calls that ask for them are admitted, in a task, since a handler waits for
//! no disk.
//!
//! What is read is kept for the one admission alone: an activation that dies meanwhile asks for its calls again, and reads again.

use std::collections::BTreeMap;
use std::sync::Arc;

use subtend_agents::profile::{BOOTSTRAP, Profile};
use subtend_session::authority::{Access, Authority, Verdict};
use subtend_session::call::ToolErrorKind;
use subtend_session::dialect::Dialect;
use subtend_session::ids::{CallId, Text, TurnNo};
use subtend_session::state::State;
use subtend_tools::dialect::{Request, StartRequest};
use subtend_tools::workspace::{Workspace, resource};

use crate::driver::Driver;
use crate::faults::Point;
use crate::hub::Hub;
use crate::lane::Item;
use crate::offer::Offer;
use crate::overrides::model_of;

/// Bytes of one file that a prompt takes in.
const MAX_FILE: u64 = 256 << 10;
/// Bytes of all files that come with one task.
const MAX_FILES: usize = 1 << 20;
/// Calls whose files are read at a time: what they hold until they are admitted is bounded by it.
const AT_ONCE: usize = 16;

/// What was read for the calls of one answer: by the call's place and the path as it was named.
pub(crate) type Read = BTreeMap<(u32, Text), Result<Text, Text>>;

/// Names one reading: what another one brings, of an activation that died, is not taken for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    turn: TurnNo,
    no: u64,
}

/// Calls whose files were read, to be admitted.
pub(crate) struct HasRead {
    reading: Reading,
    calls: Vec<u32>,
    read: Read,
}

/// The files that one call wants, under what its child may do.
struct Wish {
    ix: u32,
    authority: Arc<Authority>,
    /// Files of its system prompt.
    bootstrap: Vec<Text>,
    /// Files that come with its task: bounded together, since one message holds them all.
    files: Vec<Text>,
}

impl Driver {
    /// Whether calls wait for admission, and not for their files.
    pub(crate) fn may_admit(&self) -> bool {
        self.admit.front().is_some_and(|(turn, _)| self.reading.is_none_or(|reading| reading.turn != *turn))
    }

    /// Whether files are read for the turn at hand.
    pub(crate) fn is_reading(&self) -> bool {
        self.reading.is_some_and(|reading| self.state.turn().is_some_and(|turn| turn.no == reading.turn))
    }

    /// Has the files read that `calls` begin with, if there are any. Those that are to wait for the next reading are left in
    /// `calls`' place in the queue, so that births keep the order of the calls.
    ///
    /// Gives `calls` back where nothing is to be read for them.
    pub(crate) fn read_first(&mut self, turn: TurnNo, mut calls: Vec<u32>) -> Option<Vec<u32>> {
        let wishes = self.hub.wishes(&self.state, &self.offer, turn, &calls);
        if wishes.is_empty() {
            return Some(calls);
        }
        let rest = calls.split_off(calls.len().min(AT_ONCE));
        if !rest.is_empty() {
            self.admit.push_front((turn, rest));
        }
        let last = calls.last().copied();
        let wishes: Vec<Wish> = wishes.into_iter().filter(|wish| Some(wish.ix) <= last).collect();
        if wishes.is_empty() {
            return Some(calls);
        }
        let reading = Reading { turn, no: self.hub.readings.fetch_add(1, std::sync::atomic::Ordering::Relaxed) };
        self.reading = Some(reading);
        let (hub, session, halt) = (Arc::clone(&self.hub), self.session(), self.hub.halt.clone());
        self.hub.tasks.spawn(async move {
            let reader = Arc::clone(&hub);
            let reads = tokio::task::spawn_blocking(move || {
                reader.faults.strike(Point::Reading, "files");
                wishes.iter().flat_map(|wish| wish.read(&reader.workspace)).collect()
            });
            // A disk that does not answer holds no shutdown up.
            let read = tokio::select! {
                biased;
                read = reads => read,
                () = halt.cancelled() => return,
            };
            let read = read.unwrap_or_else(|error| {
                tracing::error!(%session, %error, "reading the files of a task failed");
                Read::new()
            });
            hub.deliver(session, Item::HasRead(Box::new(HasRead { reading, calls, read })));
        });
        None
    }

    /// The files were read: the calls are admitted. Of a turn that is over, or an activation that died, they are none any more.
    pub(crate) fn has_read(&mut self, came: HasRead) {
        if self.reading != Some(came.reading) {
            return;
        }
        self.reading = None;
        if !self.is_cut_off() {
            self.admit_now(came.reading.turn, &came.calls, &came.read);
        }
    }
}

impl Hub {
    /// The files that `calls` want.
    fn wishes(&self, state: &State, offer: &Offer, turn: TurnNo, calls: &[u32]) -> Vec<Wish> {
        let wish = |ix: &u32| {
            let asked = state.call(CallId { turn, ix: *ix })?;
            let Some(Ok(Request::Start(start))) = offer.opens.read(&asked.tool, &asked.args) else { return None };
            let bootstrap = self.bootstrap(&start);
            if bootstrap.is_empty() && start.files.is_empty() {
                return None;
            }
            let template = self.template(&start.agent, model_of(state), state.created.source).ok()?;
            let authority = Arc::new(offer.authority.meet(&template.manifest));
            Some(Wish { ix: *ix, authority, bootstrap, files: start.files })
        };
        calls.iter().filter_map(wish).collect()
    }

    fn bootstrap(&self, asked: &StartRequest) -> Vec<Text> {
        match asked.dialect {
            Dialect::Spawn => {
                let profile = asked.profile.as_ref().and_then(|name| self.dialects.profiles.get(name));
                profile.map_or_else(|| BOOTSTRAP.map(Text::from).to_vec(), |profile: &Arc<Profile>| profile.bootstrap())
            }
            Dialect::Task | Dialect::Subagent | Dialect::SpawnTask | Dialect::Minion => Vec::new(),
        }
    }
}

impl Wish {
    fn read(&self, workspace: &Workspace) -> Read {
        let mut read = Read::new();
        let mut left = MAX_FILES;
        let within = |text: Text, left: &mut usize| {
            let why =
                || Text::from(format!("the files before it leave no room: {MAX_FILES} bytes is the most for all"));
            *left = left.checked_sub(text.len()).ok_or_else(why)?;
            Ok(text)
        };
        for path in &self.files {
            let key = (self.ix, Arc::clone(path));
            let text = self.one(workspace, path).and_then(|text| within(text, &mut left));
            read.entry(key).or_insert(text);
        }
        for path in &self.bootstrap {
            read.entry((self.ix, Arc::clone(path))).or_insert_with(|| self.one(workspace, path));
        }
        read
    }

    /// Reads a file of the workspace, if the child may (B7).
    fn one(&self, workspace: &Workspace, path: &str) -> Result<Text, Text> {
        let resource = resource(path).map_err(|error| Text::from(error.message))?;
        let may = |resource: &Text| {
            let access = Access { action: "fs.read".into(), resource: Arc::clone(resource) };
            self.authority.verdict(&access) == Verdict::Allow
        };
        if !may(&resource) {
            return Err(format!("reading `{path}` is not allowed to the child").into());
        }
        // A link is no way around a rule, as it is none for the tools.
        let real = workspace.real(&resource).map_err(|error| {
            // The tool's own message tells a model what to call next, which a warning must not.
            let missing = error.kind == ToolErrorKind::NotFound;
            if missing { Text::from("there is no such file") } else { error.message.into() }
        })?;
        if !may(&real) {
            return Err(format!("it leads to `{real}`, and reading that is not allowed to the child").into());
        }
        workspace.text_for(&self.authority, &real, MAX_FILE).map(Text::from).map_err(|error| error.to_string().into())
    }
}
