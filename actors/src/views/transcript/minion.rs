//! What a minion did for one call, with the field names of the `minion` tool's result.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use subtend_session::call::CallEnd;
use subtend_session::ids::{CallId, RunNo, SessionId, Short, Text};
use subtend_session::place::Owner;
use subtend_session::record::{Record, RunEnded, TurnAnswered};

/// A call of `minion`: its result, and the run that produced it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Minion {
    /// The short name of the minion.
    pub minion_chat_id: Short,
    /// The response; absent before the end.
    pub minion_response: Option<Text>,
    /// True if it called `return`. Otherwise its last answer is the response.
    pub minion_used_return_tool: bool,
    /// True if the run has ended, also without a response.
    #[serde(skip)]
    pub has_ended: bool,
    /// The messages and tool calls of the run.
    pub activity: Activity,
}

/// The messages and tool calls of one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Activity {
    pub turns: u32,
    /// Blocks in order, grouped by category.
    pub groups: Vec<Group>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Group {
    pub category: Category,
    pub blocks: Vec<Block>,
}

/// The category of a block: for the reader, or internal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Category {
    Text,
    /// Calls of tools and their results.
    Backstage,
}

/// One text, call or result of a minion.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Block {
    Text { text: Text },
    ToolUse { call: CallId, tool: Text, args: Text },
    ToolResult { call: CallId, error: bool, content: Text },
}

/// Collects the runs of a minion that calls of one session opened.
pub(super) struct MinionRuns {
    owner: SessionId,
    chat: Short,
    pub(super) by_call: BTreeMap<CallId, Minion>,
    open: Option<(CallId, RunNo)>,
}

impl MinionRuns {
    /// Creates an empty collection of runs of `owner`'s calls. `chat` is the short name of the minion's session.
    pub(super) fn new(owner: SessionId, chat: Short) -> Self {
        Self { owner, chat, by_call: BTreeMap::new(), open: None }
    }

    /// Adds the next record of the minion's session.
    pub(super) fn add(&mut self, record: &Record) {
        if let Record::RunOpened(opened) = record {
            let call = owning_call(&opened.owner, self.owner).filter(|call| !self.by_call.contains_key(call));
            self.open = call.map(|call| (call, opened.run));
            self.by_call.extend(call.map(|call| (call, Minion::new(self.chat.clone()))));
        }
        if let Some((call, run)) = self.open
            && self.by_call.get_mut(&call).is_some_and(|minion| minion.take(record, run))
        {
            self.open = None;
        }
    }
}

impl Minion {
    fn new(chat: Short) -> Self {
        Self {
            minion_chat_id: chat,
            minion_response: None,
            minion_used_return_tool: false,
            has_ended: false,
            activity: Activity::default(),
        }
    }

    /// Adds one record; returns whether it ends the run.
    fn take(&mut self, record: &Record, of: RunNo) -> bool {
        if let Record::TurnAnswered(answered) = record {
            self.activity.answered(answered);
        } else if let Record::CallFinished(finished) = record {
            let error = !matches!(finished.end, CallEnd::Ok | CallEnd::Backgrounded);
            let call = finished.call;
            self.activity.add(Block::ToolResult { call, error, content: finished.content.clone() });
        } else if let Record::RunEnded(ended) = record
            && ended.run == of
        {
            let RunEnded { text, returned, .. } = &**ended;
            (self.minion_response, self.minion_used_return_tool) = (text.clone(), returned.is_some());
            self.has_ended = true;
            return true;
        }
        false
    }
}

impl Activity {
    fn answered(&mut self, answered: &TurnAnswered) {
        self.turns = self.turns.saturating_add(1);
        if let Some(text) = answered.text.as_ref().filter(|text| !text.trim().is_empty()) {
            self.add(Block::Text { text: text.clone() });
        }
        for (tool_call, ix) in answered.calls.iter().zip(0_u32..) {
            let call = CallId { turn: answered.turn, ix };
            self.add(Block::ToolUse { call, tool: tool_call.tool.clone(), args: tool_call.args.clone() });
        }
    }

    fn add(&mut self, block: Block) {
        let category = match block {
            Block::Text { .. } => Category::Text,
            Block::ToolUse { .. } | Block::ToolResult { .. } => Category::Backstage,
        };
        match self.groups.last_mut().filter(|group| group.category == category) {
            Some(group) => group.blocks.push(block),
            None => self.groups.push(Group { category, blocks: vec![block] }),
        }
    }
}

/// Returns the call of `session` that owns the run.
fn owning_call(owner: &Owner, session: SessionId) -> Option<CallId> {
    if let Owner::Run { session: of, call, .. } = owner { Some(*call).filter(|_| *of == session) } else { None }
}
