//! Reads the files of new children in a task before their calls are admitted, since a handler must not wait for the disk.
//! The text is kept for that admission only. After a crash, the next activation requests the calls and reads the files again.

use std::collections::hash_map::Entry;
use std::sync::Arc;

use subtend_agents::profile::Profile;
use subtend_session::dialect::Dialect;
use subtend_session::ids::{CallId, Text, TurnNo};
use subtend_session::state::State;
use subtend_tools::dialect::StartRequest;
use subtend_tools::memory_threads::spawn_with_memory;

use crate::calls::files::{FileRequest, FileTexts, FilesRead, FilesReading};
use crate::calls::in_flight::{Parsed, ParsedCalls};
use crate::cell::driver::Driver;
use crate::delivery::inbox::InboxItem;
use crate::faults::Point;
use crate::spawn::agents::Agents;
use crate::spawn::tool_set::ToolSet;
use crate::values::answering::model_of;

/// Maximum number of calls whose files are read at a time, which bounds their memory.
const MAX_CONCURRENT: usize = 16;

impl Driver {
    /// Returns whether calls wait for admission and no file read of their turn is running.
    pub(crate) fn may_admit(&self) -> bool {
        self.todo.admit.front().is_some_and(|(turn, _)| self.work.reading.is_none_or(|reading| reading.turn != *turn))
    }

    pub(crate) fn is_reading(&self) -> bool {
        self.work.reading.is_some_and(|reading| self.state.turn().is_some_and(|turn| turn.no == reading.turn))
    }

    /// Starts reading the files of `calls`, if there are any. Calls for the next read remain in the queue, so that children keep the order of the
    /// calls.
    /// Returns `calls` if there is nothing to read.
    pub(crate) fn read_first(&mut self, turn: TurnNo, mut calls: Vec<u32>) -> Option<Vec<u32>> {
        self.parse_openings(turn, &calls);
        let file_requests = file_requests(&self.state, (&self.agents, &self.offer), (turn, &calls), &self.work.ready);
        if file_requests.is_empty() {
            return Some(calls);
        }
        let rest = calls.split_off(calls.len().min(MAX_CONCURRENT));
        if !rest.is_empty() {
            self.todo.admit.push_front((turn, rest));
        }
        let last = calls.last().copied();
        let file_requests: Vec<FileRequest> =
            file_requests.into_iter().filter(|request| Some(request.ix) <= last).collect();
        if file_requests.is_empty() {
            return Some(calls);
        }
        let reading = FilesReading { turn, no: self.cells.readings.fetch_add(1, std::sync::atomic::Ordering::Relaxed) };
        self.work.reading = Some(reading);
        let (cells, session, halt) = (Arc::clone(&self.cells), self.session(), self.cells.life.halt.clone());
        let place = self.agents.tool_directory(&self.state);
        self.cells.life.tasks.spawn(async move {
            let host = Arc::clone(&cells.host);
            let reads = async {
                let turn = place.turn().await;
                let read = move || {
                    let _turn = turn;
                    host.faults.inject(Point::Reading, "files");
                    match place.open() {
                        Ok(workspace) => file_requests.iter().flat_map(|request| request.read(&workspace)).collect(),
                        Err(error) => {
                            tracing::error!(%error, "the files of a task cannot be read");
                            FileTexts::new()
                        }
                    }
                };
                spawn_with_memory(read).await
            };
            // A disk that does not answer must not delay a shutdown.
            let read = tokio::select! {
                biased;
                read = reads => read,
                () = halt.cancelled() => return,
            };
            let read = read.unwrap_or_else(|error| {
                tracing::error!(%session, %error, "reading the files of a task failed");
                FileTexts::new()
            });
            cells.deliver(session, InboxItem::FilesRead(Box::new(FilesRead { reading, calls, read })));
        });
        None
    }

    fn parse_openings(&mut self, turn: TurnNo, calls: &[u32]) {
        for call in calls.iter().map(|ix| CallId { turn, ix: *ix }) {
            let Entry::Vacant(place) = self.work.ready.entry(call) else { continue };
            let Some(at) = self.state.call(call) else { continue };
            match self.agents.read(&self.offer, &at.tool, &at.args) {
                Some(Ok(request)) => _ = place.insert(Parsed::Spawn(request)),
                Some(Err(error)) => _ = place.insert(Parsed::Refused(error)),
                None => {}
            }
        }
    }

    /// Admits the calls whose files were read. Results for an ended turn or a crashed activation are ignored.
    pub(crate) fn on_files_read(&mut self, outcome: FilesRead) {
        if self.work.reading != Some(outcome.reading) {
            return;
        }
        self.work.reading = None;
        if !self.decide_owner_close() {
            self.admit_now(outcome.reading.turn, &outcome.calls, &outcome.read);
        }
    }
}

fn file_requests(
    state: &State,
    (agents, offer): (&Agents, &ToolSet),
    (turn, calls): (TurnNo, &[u32]),
    ready: &ParsedCalls,
) -> Vec<FileRequest> {
    let request = |ix: &u32| {
        let Some(Parsed::Spawn(request)) = ready.get(&CallId { turn, ix: *ix }) else { return None };
        let start = request.start()?;
        let bootstrap = prompt_files(agents, start);
        if bootstrap.is_empty() && start.files.is_empty() {
            return None;
        }
        let template = agents.template(&start.agent, model_of(state), state.created.source).ok()?;
        let authority = Arc::new(offer.authority.meet(&template.manifest));
        Some(FileRequest { ix: *ix, authority, bootstrap, files: start.files.clone() })
    };
    calls.iter().filter_map(request).collect()
}

/// Returns the files that the prompt of a child begins with, and the prompt file of its profile.
fn prompt_files(agents: &Agents, request: &StartRequest) -> Vec<Text> {
    match request.dialect {
        Dialect::Spawn => {
            let profile = request.profile.as_ref().and_then(|name| agents.dialects.profiles.get(name));
            let own = profile.and_then(|profile| profile.system_prompt_file.clone());
            Profile::bootstrap(profile.map(Arc::as_ref), &agents.instructions).into_iter().chain(own).collect()
        }
        Dialect::Task | Dialect::Subagent | Dialect::SpawnTask | Dialect::Minion => Vec::new(),
    }
}
