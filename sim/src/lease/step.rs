//! The steps of the model: by a node, the network, the database, or the clock.

use super::database::{LeaseMessage, LeaseReply, LeaseRequest, MessageBody, NodeProcess};
use super::state::{Awaiting, LeaseState, ModelNode, Ownership};
use super::{EFFECT_TICKS, LeaseBug, LeaseModel, NodeEvent};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseStep {
    /// Five seconds pass. The clocks of the nodes in this mask skip the tick.
    Tick(u8),
    Renew(usize),
    /// The node ends its lost lease in the database: its work has stopped.
    Leave(usize),
    Take(usize, usize),
    Commit(usize, usize),
    Reclaim(usize, usize),
    /// The node counts a sent message as lost. The message may arrive later.
    GiveUp(usize, Option<usize>),
    /// The node checks its lease and starts an effect, in one step.
    Effect(usize, usize),
    /// The node checks its lease for an effect. [`LeaseStep::Start`] starts the effect.
    Check(usize, usize),
    Start(usize, usize),
    /// The node drops its shards because it could not renew in time.
    Drop(usize),
    /// A message arrives at the database or at a node.
    Arrive(LeaseMessage),
    /// A commit arrives, and the network sends it a second time.
    Repeat(LeaseMessage),
    Lose(LeaseMessage),
    Crash(usize),
    Join(usize),
    Pause(usize),
    Resume(usize),
    /// The database restarts: every connection is lost.
    Restart,
}

impl LeaseState {
    pub(super) fn steps(&self, model: &LeaseModel, steps: &mut Vec<LeaseStep>) {
        if self.wrong.is_some() {
            return;
        }
        self.time_steps(model, steps);
        for (at, message) in self.flight.iter().enumerate() {
            if at > 0 && self.flight.get(at.saturating_sub(1)) == Some(message) {
                continue;
            }
            let paused = self.nodes.get(message.of.node).is_some_and(|node| node.paused);
            if !paused || matches!(message.body, MessageBody::Request(_)) {
                steps.push(LeaseStep::Arrive(*message));
            }
            if self.left.repeats > 0 && matches!(message.body, MessageBody::Request(LeaseRequest::Commit { .. })) {
                steps.push(LeaseStep::Repeat(*message));
            }
            if model.size.bounded_failover && self.left.losses > 0 && !message.late {
                steps.push(LeaseStep::Lose(*message));
            }
        }
        for (n, node) in self.nodes.iter().enumerate() {
            self.node_steps(model, n, node, steps);
        }
        if self.left.restarts > 0 {
            steps.push(LeaseStep::Restart);
        }
    }

    fn time_steps(&self, model: &LeaseModel, steps: &mut Vec<LeaseStep>) {
        let due = |(n, node): (usize, &ModelNode)| {
            let owns = |(shard, own): (usize, &Ownership)| match own {
                Ownership::None => self.may_take(model, n, shard),
                Ownership::Held { wait, .. } => matches!(wait, Awaiting::Lost(_)),
                Ownership::Taking => false,
            };
            let lost = self.is_lost(model, n) && self.left.leaves > 0 && !self.is_leaving(n);
            node.is_working() && (lost || self.is_renewal_due(model, n) || node.owns.iter().enumerate().any(owns))
        };
        let in_transit = |message: &LeaseMessage| {
            matches!(message.body, MessageBody::Request(_))
                || self.nodes.get(message.of.node).is_some_and(ModelNode::is_working)
        };
        if model.size.bounded_failover && (self.nodes.iter().enumerate().any(due) || self.flight.iter().any(in_transit))
        {
            return;
        }
        let slows = |n: usize| {
            let drifts = |node: &ModelNode| node.up && (node.steady >= 2 || model.is(LeaseBug::ClockStopsInPause));
            n < usize::from(model.size.slow_nodes) && self.nodes.get(n).is_some_and(drifts)
        };
        steps.extend(
            (0..4_u8).filter(|mask| (mask & 1 == 0 || slows(0)) && (mask & 2 == 0 || slows(1))).map(LeaseStep::Tick),
        );
    }

    fn node_steps(&self, model: &LeaseModel, n: usize, node: &ModelNode, steps: &mut Vec<LeaseStep>) {
        if !node.up {
            if self.left.joins > 0 {
                steps.push(LeaseStep::Join(n));
            }
            return;
        }
        if self.left.crashes > 0 {
            steps.push(LeaseStep::Crash(n));
        }
        if node.paused {
            steps.push(LeaseStep::Resume(n));
            return;
        }
        if self.left.pauses > 0 {
            steps.push(LeaseStep::Pause(n));
        }
        if self.is_renewal_due(model, n) {
            steps.push(LeaseStep::Renew(n));
        }
        if self.may_leave(model, n) {
            steps.push(LeaseStep::Leave(n));
        }
        let gives_up = !model.size.bounded_failover && self.left.losses > 0;
        if gives_up && self.is_renewing(n) {
            steps.push(LeaseStep::GiveUp(n, None));
        }
        if node.age >= EFFECT_TICKS && node.owns.iter().any(|own| *own != Ownership::None) {
            steps.push(LeaseStep::Drop(n));
        }
        for (shard, own) in node.owns.iter().enumerate() {
            match own {
                Ownership::None if self.may_take(model, n, shard) => steps.push(LeaseStep::Take(n, shard)),
                Ownership::None => {}
                Ownership::Taking => steps.extend(gives_up.then_some(LeaseStep::GiveUp(n, Some(shard)))),
                Ownership::Held { wait, checked, .. } => {
                    match wait {
                        Awaiting::None if self.issued < model.size.groups => steps.push(LeaseStep::Commit(n, shard)),
                        Awaiting::None => {}
                        Awaiting::Lost(_) => steps.push(LeaseStep::Reclaim(n, shard)),
                        Awaiting::Commit(_) | Awaiting::Reclaim(_) => {
                            steps.extend(gives_up.then_some(LeaseStep::GiveUp(n, Some(shard))));
                        }
                    }
                    let starts = node.age < EFFECT_TICKS || model.is(LeaseBug::EffectAfterExpiry);
                    if starts && !checked {
                        let step = if model.size.two_steps { LeaseStep::Check } else { LeaseStep::Effect };
                        steps.push(step(n, shard));
                    }
                    steps.extend(checked.then_some(LeaseStep::Start(n, shard)));
                }
            }
        }
    }

    /// Returns whether a renewal is due: at least one tick has passed since the last, and none is pending.
    fn is_renewal_due(&self, model: &LeaseModel, n: usize) -> bool {
        let due = self.nodes.get(n).is_some_and(|node| node.up && node.age > 0) && !self.is_lost(model, n);
        due && !self.is_renewing(n)
    }

    /// Returns whether the node counts its lease as lost, so that it never renews it again.
    fn is_lost(&self, model: &LeaseModel, n: usize) -> bool {
        model.size.leaves > 0 && self.nodes.get(n).is_some_and(|node| node.up && node.age >= EFFECT_TICKS)
    }

    /// Returns whether the node may end its lost lease. It does not wait for a pending renewal, which may arrive later.
    fn may_leave(&self, model: &LeaseModel, n: usize) -> bool {
        let Some(node) = self.nodes.get(n).filter(|_| self.left.leaves > 0 && !self.is_leaving(n)) else {
            return false;
        };
        let stopped = self.is_lost(model, n) && node.owns.iter().all(|own| *own == Ownership::None);
        stopped || (model.is(LeaseBug::LeftWhileWorking) && node.age > 0)
    }

    fn is_leaving(&self, n: usize) -> bool {
        let leaves =
            |body| matches!(body, MessageBody::Request(LeaseRequest::Leave) | MessageBody::Reply(LeaseReply::Left));
        self.flight.iter().any(|message| message.of.node == n && leaves(message.body) && !message.late)
    }

    fn is_renewing(&self, n: usize) -> bool {
        self.flight.iter().any(|message| message.of.node == n && message.shard.is_none() && !message.late)
    }

    /// Returns whether the database would grant the shard to the node now. A refused claim changes nothing.
    fn may_take(&self, model: &LeaseModel, n: usize, shard: usize) -> bool {
        // A node whose lease cannot be renewed would drop the shard at once.
        let ready = |node: &ModelNode| node.age < EFFECT_TICKS && node.owns.get(shard) == Some(&Ownership::None);
        let claims = self.left.claims > 0 && self.nodes.get(n).is_some_and(ready);
        claims && self.database.grants(self.me(n), shard, model.bug)
    }

    pub(super) fn step(&mut self, model: &LeaseModel, step: LeaseStep) -> Option<()> {
        match step {
            LeaseStep::Tick(mask) => self.tick(model, mask),
            LeaseStep::Renew(n) => self.ask_for_lease(model, n, LeaseRequest::Renew { age: 0 })?,
            LeaseStep::Leave(n) => {
                self.left.leaves = self.left.leaves.checked_sub(1)?;
                self.forget(n, |message| message.shard.is_none());
                self.ask_for_lease(model, n, LeaseRequest::Leave)?;
            }
            LeaseStep::Take(n, shard) => {
                self.left.claims = self.left.claims.checked_sub(1)?;
                *self.own(n, shard)? = Ownership::Taking;
                self.ask(n, Some(shard), LeaseRequest::Take);
            }
            LeaseStep::Commit(n, shard) => self.commit(model, n, shard)?,
            LeaseStep::Reclaim(n, shard) => {
                let Ownership::Held { wait, .. } = self.own(n, shard)? else { return None };
                let Awaiting::Lost(group) = *wait else { return None };
                *wait = Awaiting::Reclaim(group);
                self.ask(n, Some(shard), LeaseRequest::Reclaim);
            }
            LeaseStep::GiveUp(n, shard) => {
                self.left.losses = self.left.losses.checked_sub(1)?;
                self.forget(n, |message| message.shard == shard);
                if let Some(shard) = shard {
                    self.give_up(model, n, shard)?;
                }
            }
            LeaseStep::Effect(n, shard) => self.start(model, n, shard)?,
            LeaseStep::Check(n, shard) => self.check(n, shard, true)?,
            LeaseStep::Start(n, shard) => {
                self.check(n, shard, false)?;
                self.start(model, n, shard)?;
            }
            LeaseStep::Drop(n) => {
                self.forget(n, |message| message.shard.is_some());
                self.nodes.get_mut(n)?.drop_all();
                model.record(NodeEvent::Dropped);
            }
            LeaseStep::Arrive(message) => self.arrive(model, message)?,
            LeaseStep::Repeat(message) => {
                self.left.repeats = self.left.repeats.checked_sub(1)?;
                self.arrive(model, message)?;
                self.put(LeaseMessage { late: true, ..message });
            }
            LeaseStep::Lose(message) => {
                self.left.losses = self.left.losses.checked_sub(1)?;
                self.remove(message);
            }
            LeaseStep::Crash(n) => {
                self.left.crashes = self.left.crashes.checked_sub(1)?;
                self.forget(n, |_| true);
                let node = self.nodes.get_mut(n)?;
                node.drop_all();
                (node.up, node.paused, node.age, node.steady) = (false, false, EFFECT_TICKS, 2);
                self.unserved.fill(0);
            }
            LeaseStep::Join(n) => {
                self.left.joins = self.left.joins.checked_sub(1)?;
                self.join(n)?;
            }
            LeaseStep::Pause(n) => {
                self.left.pauses = self.left.pauses.checked_sub(1)?;
                self.nodes.get_mut(n)?.paused = true;
                self.unserved.fill(0);
            }
            LeaseStep::Resume(n) => self.nodes.get_mut(n)?.paused = false,
            LeaseStep::Restart => {
                self.left.restarts = self.left.restarts.checked_sub(1)?;
                self.flight.clear();
                self.give_up_lost(model);
            }
        }
        if model.bug.is_none() {
            let Self { flight, database, .. } = self;
            flight.retain(|message| !message.late || database.may_change(message));
        }
        Some(())
    }

    /// Sends a request for the node's lease. It takes time only at slow nodes.
    fn ask_for_lease(&mut self, model: &LeaseModel, n: usize, request: LeaseRequest) -> Option<()> {
        self.ask(n, None, request);
        while n >= usize::from(model.size.slow_nodes) && self.is_renewing(n) {
            let pending = |message: &&LeaseMessage| message.of.node == n && message.shard.is_none() && !message.late;
            let message = *self.flight.iter().find(pending)?;
            self.arrive(model, message)?;
        }
        Some(())
    }

    fn tick(&mut self, model: &LeaseModel, slow: u8) {
        if model.size.bounded_failover {
            self.give_up_lost(model);
            let works = self.nodes.iter().any(ModelNode::is_working);
            for shard in 0..self.unserved.len() {
                let served = self.is_served(shard);
                if let Some(ticks) = self.unserved.get_mut(shard) {
                    *ticks = if works && !served { ticks.saturating_add(1) } else { 0 };
                }
            }
        }
        self.database.tick();
        for (n, node) in self.nodes.iter_mut().enumerate().filter(|(_, node)| node.up) {
            if slow & (1 << n) != 0 {
                node.steady = 0;
                continue;
            }
            node.steady = node.steady.saturating_add(1).min(2);
            node.age = node.age.saturating_add(1).min(EFFECT_TICKS);
            for message in self.flight.iter_mut().filter(|message| message.of.node == n && !message.late) {
                if let MessageBody::Request(LeaseRequest::Renew { age })
                | MessageBody::Reply(LeaseReply::Renewed { age }) = &mut message.body
                {
                    *age = age.saturating_add(1).min(EFFECT_TICKS);
                }
            }
        }
        self.flight.sort_unstable();
    }

    fn commit(&mut self, model: &LeaseModel, n: usize, shard: usize) -> Option<()> {
        self.issued = self.issued.saturating_add(1);
        let group = self.issued;
        let Ownership::Held { epoch, last, wait, .. } = self.own(n, shard)? else { return None };
        *wait = Awaiting::Commit(group);
        let request = LeaseRequest::Commit { epoch: *epoch, last: *last, group };
        let lsn = last.saturating_add(1);
        self.ask(n, Some(shard), request);
        if model.is(LeaseBug::AcknowledgedWhenSent) {
            self.acked.push((shard, lsn, group));
        }
        Some(())
    }

    fn arrive(&mut self, model: &LeaseModel, message: LeaseMessage) -> Option<()> {
        self.remove(message);
        // A renewal concerns the row of the node rather than that of a shard.
        let (n, shard) = (message.of.node, message.shard.unwrap_or(0));
        match message.body {
            MessageBody::Request(request) => {
                if request == LeaseRequest::Leave && self.database.is_alive(message.of) {
                    model.record(NodeEvent::LeftEarly);
                }
                let holder = self.database.shards.get(shard)?.holder;
                let reply = self.database.answer(message.of, shard, request, model.bug)?;
                if reply != LeaseReply::Refused
                    && request == LeaseRequest::Take
                    && holder.is_some_and(|former| former.node != n)
                {
                    model.record(NodeEvent::TakenOver);
                }
                if reply == LeaseReply::Refused && matches!(request, LeaseRequest::Commit { .. }) {
                    model.record(NodeEvent::Fenced);
                }
                if !message.late {
                    self.put(LeaseMessage { body: MessageBody::Reply(reply), ..message });
                }
            }
            MessageBody::Reply(LeaseReply::Renewed { .. }) if self.is_lost(model, n) => {}
            MessageBody::Reply(LeaseReply::Renewed { age }) => {
                self.nodes.get_mut(n)?.age = if model.is(LeaseBug::CountedFromReply) { 0 } else { age };
            }
            MessageBody::Reply(LeaseReply::Expelled | LeaseReply::Left) => {
                self.forget(n, |_| true);
                self.nodes.get_mut(n)?.drop_all();
                self.join(n)?;
                model.record(NodeEvent::JoinedAgain);
            }
            MessageBody::Reply(reply) => self.learn(model, n, shard, reply)?,
        }
        Some(())
    }

    /// Applies the reply to a claim or a commit at the node that sent it.
    fn learn(&mut self, model: &LeaseModel, n: usize, shard: usize, reply: LeaseReply) -> Option<()> {
        let own = *self.own(n, shard)?;
        let next = match (own, reply) {
            (Ownership::Taking, LeaseReply::Claimed { epoch, last }) => {
                Ownership::Held { epoch, last, wait: Awaiting::None, checked: false }
            }
            (Ownership::Held { epoch, last, wait: Awaiting::Commit(group), checked }, LeaseReply::Committed) => {
                let last = last.saturating_add(1);
                if !model.is(LeaseBug::AcknowledgedWhenSent) {
                    self.acked.push((shard, last, group));
                }
                Ownership::Held { epoch, last, wait: Awaiting::None, checked }
            }
            (
                Ownership::Held { last, wait: Awaiting::Reclaim(group), checked, .. },
                LeaseReply::Claimed { epoch, last: found },
            ) => {
                let stored = found == last.saturating_add(1) && !model.is(LeaseBug::ResentUnread);
                if stored {
                    self.acked.push((shard, found, group));
                    model.record(NodeEvent::FoundStored);
                    Ownership::Held { epoch, last: found, wait: Awaiting::None, checked }
                } else if found == last || model.is(LeaseBug::ResentUnread) {
                    model.record(NodeEvent::FoundMissing);
                    self.ask(n, Some(shard), LeaseRequest::Commit { epoch, last: found, group });
                    Ownership::Held { epoch, last: found, wait: Awaiting::Commit(group), checked }
                } else {
                    Ownership::None
                }
            }
            _ => Ownership::None,
        };
        *self.own(n, shard)? = next;
        Some(())
    }

    fn give_up(&mut self, model: &LeaseModel, n: usize, shard: usize) -> Option<()> {
        let own = self.own(n, shard)?;
        match *own {
            Ownership::Taking => *own = Ownership::None,
            Ownership::Held { epoch, last, wait: Awaiting::Commit(group) | Awaiting::Reclaim(group), checked } => {
                if model.is(LeaseBug::LostTakenAsStored) {
                    let last = last.saturating_add(1);
                    *own = Ownership::Held { epoch, last, wait: Awaiting::None, checked };
                    self.acked.push((shard, last, group));
                } else {
                    *own = Ownership::Held { epoch, last, wait: Awaiting::Lost(group), checked };
                }
            }
            Ownership::None | Ownership::Held { .. } => {}
        }
        Some(())
    }

    fn give_up_lost(&mut self, model: &LeaseModel) {
        let (nodes, shards) = (self.nodes.len(), self.unserved.len());
        for (n, shard) in (0..nodes).flat_map(|n| (0..shards).map(move |shard| (n, shard))) {
            let sent = |message: &LeaseMessage| message.of.node == n && message.shard == Some(shard) && !message.late;
            if !self.flight.iter().any(sent) {
                self.give_up(model, n, shard);
            }
        }
    }

    fn check(&mut self, n: usize, shard: usize, to: bool) -> Option<()> {
        let Ownership::Held { checked, .. } = self.own(n, shard)? else { return None };
        *checked = to;
        Some(())
    }

    /// Starts an effect, whose intent is in the last group.
    fn start(&mut self, model: &LeaseModel, n: usize, shard: usize) -> Option<()> {
        let me = self.me(n);
        let Ownership::Held { wait, .. } = *self.own(n, shard)? else { return None };
        let log = &self.database.shards.get(shard)?.log;
        let missing = |group: u8| log.iter().all(|stored| stored.group != group);
        let early = model.is(LeaseBug::EffectBeforeIntent) && matches!(wait, Awaiting::Commit(group) if missing(group));
        if !self.database.holds(me, shard) {
            self.wrong = Some(super::EFFECT_OF_OWNER);
        } else if early {
            self.wrong = Some(super::EFFECT_OF_INTENT);
        }
        Some(())
    }

    fn join(&mut self, n: usize) -> Option<()> {
        let node = self.nodes.get_mut(n)?;
        node.incarnation = node.incarnation.saturating_add(1);
        (node.up, node.age, node.steady) = (true, 0, 2);
        let me = NodeProcess { node: n, no: node.incarnation };
        self.database.join(me);
        Some(())
    }
}
