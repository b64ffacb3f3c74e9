//! Reads the open question, and the calls made for it, from the transcript. The model has no other state, so it can resume after a restart.

use serde_json::Value;
use subtend_session::message::Message;
use subtend_session::values::{MAX_VALUES, ValueCount, parse_recorded};

use crate::notice::{self, ChildEnd};

/// The start of progress texts, which are not the final answer.
pub(super) const AT_WORK: &str = "Offline, at work: ";

/// Maximum bytes of a question. A longer question is slow to analyze and rarely contains further names.
pub(super) const MAX_QUESTION_BYTES: usize = 4096;

#[derive(Clone, Debug)]
pub(super) struct Done<'a> {
    pub(super) tool: &'a str,
    pub(super) args: Value,
    pub(super) error: bool,
    pub(super) content: &'a str,
}

#[derive(Clone, Debug, Default)]
pub(super) struct OpenQuestion<'a> {
    pub(super) first: &'a str,
    /// The inputs since the last final answer, joined.
    pub(super) question: String,
    pub(super) cut: bool,
    /// True if the question consists only of the first message of the session.
    pub(super) only_first: bool,
    pub(super) done: Vec<Done<'a>>,
    pub(super) ends: Vec<ChildEnd<'a>>,
    pub(super) answers: usize,
}

impl<'a> OpenQuestion<'a> {
    pub(super) fn of(messages: &'a [Message]) -> Self {
        let mut open = Self::default();
        let (mut users, mut values) = (0_usize, 0_usize);
        let mut tool_calls: &[_] = &[];
        for message in messages {
            match message {
                Message::User { text, .. } => {
                    users = users.saturating_add(1);
                    open.only_first = users == 1;
                    if users == 1 {
                        open.first = text;
                    }
                    if !open.question.is_empty() {
                        open.question.push('\n');
                    }
                    let room = MAX_QUESTION_BYTES.saturating_sub(open.question.len());
                    let taken = text.get(..text.floor_char_boundary(room)).unwrap_or_default();
                    open.cut |= taken.len() < text.len();
                    open.question.push_str(taken);
                    // Forget failed calls, so that a new input retries them.
                    open.done.retain(|done| !done.error);
                }
                Message::Assistant { text, calls, .. } => {
                    open.answers = open.answers.saturating_add(1);
                    tool_calls = calls;
                    let at_work = text.as_deref().is_some_and(|text| text.starts_with(AT_WORK));
                    if calls.is_empty() && !at_work {
                        open = Self { first: open.first, answers: open.answers, ..Self::default() };
                    }
                }
                Message::Result { call, error, content } => {
                    let ix = usize::try_from(call.ix).unwrap_or(usize::MAX);
                    if let Some(tool_call) = tool_calls.get(ix) {
                        // All arguments are kept, and many calls may have many values.
                        values = values.saturating_add(ValueCount::default().add(tool_call.args.as_bytes()));
                        let args = Some(&tool_call.args).filter(|_| values <= MAX_VALUES);
                        let args = args.and_then(|args| parse_recorded(args).ok()).unwrap_or(Value::Null);
                        open.done.push(Done { tool: &tool_call.tool, args, error: *error, content });
                    }
                }
                Message::Notice { text, .. } => open.ends.extend(notice::ends(text)),
                Message::Prompt { .. } => {}
            }
        }
        open
    }

    /// Returns the last result of a call with this tool and these arguments.
    pub(super) fn find(&self, tool: &str, args: &Value) -> Option<&Done<'a>> {
        self.done.iter().rev().find(|done| done.tool == tool && done.args == *args)
    }
}
