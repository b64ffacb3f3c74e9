//! Children and what is heard of them.

use std::sync::Arc;

use crate::call::CallResult;
use crate::ids::CallId;
use crate::message::Message;
use crate::record::{Carrier, ChildSpawned, ContinueAsked, NoticeTaken};
use crate::render;
use crate::state::{Child, Owned, State};

impl State {
    pub(super) fn child_spawned(&mut self, spawned: &ChildSpawned) {
        let key = (!spawned.detached).then_some(spawned.call);
        self.shorts.insert(spawned.short.clone());
        self.children.insert(
            spawned.child,
            Child { short: spawned.short.clone(), agent: Arc::clone(&spawned.agent), call: spawned.call, key },
        );
        if let (Some(key), Some(run)) = (key, &mut self.run) {
            run.owned.insert(key, Owned { child: spawned.child, mode: spawned.mode, cancel_asked: false });
        }
    }

    pub(super) fn continue_asked(&mut self, asked: &ContinueAsked) {
        if let Some(child) = self.children.get_mut(&asked.child) {
            child.key = Some(asked.call);
        }
        if let Some(run) = &mut self.run {
            run.owned.insert(asked.call, Owned { child: asked.child, mode: asked.mode, cancel_asked: false });
        }
    }

    pub(super) fn cancel_asked(&mut self, key: CallId) {
        let Some(run) = &mut self.run else { return };
        if let Some(owned) = run.owned.get_mut(&key) {
            owned.cancel_asked = true;
            run.cancels = run.cancels.saturating_add(1);
        }
    }

    pub(super) fn notice_taken(&mut self, taken: &NoticeTaken) {
        self.arrived.remove(&taken.items);
        for item in &taken.items {
            match (item.key, item.run) {
                (Some(key), _) => self.settle_owned(key, item),
                (None, Some(run)) => {
                    self.noticed.insert((item.child, run));
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
                    self.close_call(key, result);
                }
            }
            Carrier::Await { call } => {
                let content = render::awaited(&taken.items, &self.children, &self.limits);
                self.close_call(call, CallResult::ok(content));
            }
            Carrier::Message => self.notice_message(taken),
        }
    }

    fn settle_owned(&mut self, key: CallId, item: &crate::record::Notice) {
        if let Some(child) = self.children.get_mut(&item.child).filter(|child| child.key == Some(key)) {
            child.key = None;
        }
        if self.owed.remove(&key).is_some() {
            return;
        }
        if let Some(run) = &mut self.run
            && run.owned.remove(&key).is_some()
        {
            run.usage_owned.add(&item.usage);
        }
    }

    fn notice_message(&mut self, taken: &NoticeTaken) {
        let text = render::notices(&taken.items, &self.children, &self.limits);
        let message = Message::Notice { seq: self.next_seq, text };
        let Some(run) = &mut self.run else { return self.say(message) };
        let (busy, at_rest) = match &run.turn {
            None => (false, false),
            Some(turn) => (turn.streaming || turn.open > 0, turn.calls.is_empty() && turn.answered.is_some()),
        };
        if busy {
            run.deferred.push(message);
            return;
        }
        run.by_notices = at_rest && run.unanswered.is_empty();
        self.say(message);
    }
}
