use std::sync::Arc;

use crate::ids::{CallId, RunNo};
use crate::message::Message;
use crate::place::BranchKind;
use crate::record::{Carrier, ChildSpawned, ContinueAsked, Notice, NoticeTaken};
use crate::render;
use crate::state::{Child, Owned, State};

impl State {
    pub(super) fn apply_child_spawned(&mut self, spawned: &ChildSpawned) {
        let key = (!spawned.detached).then_some(spawned.call);
        self.shorts.insert(spawned.short.clone());
        let at = self.turn().and_then(|turn| turn.answered);
        self.children.insert(
            spawned.child,
            Child {
                short: spawned.short.clone(),
                agent: Arc::clone(&spawned.agent),
                kind: BranchKind::Subagent,
                call: Some(spawned.call),
                detached: spawned.detached,
                key,
                owed: None,
                last_taken: RunNo::default(),
                dialect: spawned.dialect,
                label: spawned.label.clone(),
                inspectable: spawned.inspectable,
                described: false,
                at,
                alternative: None,
                given: None,
            },
        );
        if let (Some(key), Some(run)) = (key, &mut self.run) {
            run.owned.insert(key, Owned { child: spawned.child, mode: spawned.mode, cancel_asked: false });
        }
    }

    pub(super) fn apply_continue_asked(&mut self, request: &ContinueAsked) {
        if let Some(child) = self.children.get_mut(&request.child) {
            child.key = Some(request.call);
        }
        if let Some(run) = &mut self.run {
            run.owned.insert(request.call, Owned { child: request.child, mode: request.mode, cancel_asked: false });
        }
    }

    pub(super) fn apply_cancel_asked(&mut self, key: CallId) {
        let Some(run) = &mut self.run else { return };
        if let Some(owned) = run.owned.get_mut(&key) {
            owned.cancel_asked = true;
            run.cancels = run.cancels.saturating_add(1);
        }
    }

    pub(super) fn apply_notice_taken(&mut self, taken: &NoticeTaken) {
        self.arrived.remove(&taken.items);
        for item in &taken.items {
            match (item.key, item.run) {
                (Some(key), _) => self.close_owned(key, item),
                (None, Some(run)) => {
                    self.noticed.insert((item.child, run));
                    if self.reaches_model(item) {
                        self.cache_end(item);
                    }
                }
                (None, None) => {}
            }
        }
        match taken.carrier {
            Carrier::Result => {
                if let Some(item) = taken.items.first()
                    && let Some(key) = item.key
                {
                    let result = render::result(item, self.children.get(&item.child), &self.limits);
                    self.count_rendered(&result.content, &taken.items);
                    self.close_call(key, result);
                }
            }
            Carrier::Await { call } => {
                let result = render::await_result(self, call, &taken.items);
                self.count_rendered(&result.content, &taken.items);
                self.close_call(call, result);
            }
            Carrier::Message => self.notice_message(taken),
        }
    }

    /// Counts the part of a rendered text that is not from `items`, such as the labels of children. A label has a few
    /// kilobytes, and each end of its child repeats it.
    fn count_rendered(&mut self, text: &str, items: &[Notice]) {
        let recorded = items.iter().map(|item| item.prefix.len()).fold(0, usize::saturating_add);
        self.text_bytes = self.text_bytes.saturating_add(text.len().saturating_sub(recorded) as u64);
    }

    fn close_owned(&mut self, key: CallId, item: &Notice) {
        if let Some(child) = self.children.get_mut(&item.child) {
            child.key = child.key.filter(|open| *open != key);
            child.last_taken = child.last_taken.max(item.run.unwrap_or_default());
        }
        self.cache_end(item);
        if let Some(child) = self.owed.remove(&key) {
            if let Some(child) = self.children.get_mut(&child) {
                child.owed = None;
            }
            return;
        }
        if let Some(run) = &mut self.run
            && run.owned.remove(&key).is_some()
        {
            run.usage_owned.add(&item.usage);
        }
    }

    /// Caches an end that the model may read again.
    fn cache_end(&mut self, item: &Notice) {
        if self.is_pulled(item.child) {
            self.kept.keep(&mut self.children, item);
        }
    }

    fn notice_message(&mut self, taken: &NoticeTaken) {
        for item in &taken.items {
            self.store_alternative_text(item);
        }
        let text = if taken.items.iter().all(|item| self.reaches_model(item)) {
            render::notices(self, &taken.items)
        } else {
            let shown: Vec<Notice> = taken.items.iter().filter(|item| self.reaches_model(item)).cloned().collect();
            if shown.is_empty() {
                return;
            }
            render::notices(self, &shown)
        };
        self.count_rendered(&text, &taken.items);
        let message = Message::Notice { seq: self.next_seq, text };
        let Some(run) = &mut self.run else { return self.push_message(message) };
        let (busy, at_rest) = match &run.turn {
            None => (false, false),
            Some(turn) => (turn.streaming || turn.open > 0, turn.calls.is_empty() && turn.answered.is_some()),
        };
        if busy {
            run.deferred.push(message);
            return;
        }
        run.by_notices = at_rest && run.unanswered.is_empty();
        self.push_message(message);
    }
}
