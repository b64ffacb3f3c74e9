//! The order of grants, without locks, callbacks or a clock.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};

use foldhash::fast::FixedState;
use tokio::time::Instant;

use super::root_queue::RootQueue;
use super::{Class, Root, Ticket};

/// The state of a pool.
/// Between two operations no queued ticket could be granted: all slots are in use, or every root with tickets is at its
/// bound. So a request that is granted at once does not overtake a ticket.
pub(super) struct Queue<R, T> {
    global: usize,
    in_use: usize,
    accounts: HashMap<R, RootAccount<T>, FixedState>,
    positions: HashMap<T, QueuePosition<R>, FixedState>,
    /// Root queues below their bound, by turn.
    ready_resumed: BTreeSet<(u64, R)>,
    ready_start: BTreeSet<(u64, R)>,
    last_number: u64,
}

struct RootAccount<T> {
    in_use: usize,
    bound: usize,
    resumed: RootQueue<T>,
    start: RootQueue<T>,
    last_grant: Option<Instant>,
}

#[derive(Clone, Copy)]
struct QueuePosition<R> {
    root: R,
    class: Class,
    number: u64,
    since: Instant,
}

impl<T> RootAccount<T> {
    fn new() -> Self {
        Self { in_use: 0, bound: 0, resumed: RootQueue::new(), start: RootQueue::new(), last_grant: None }
    }

    fn queue(&mut self, class: Class) -> &mut RootQueue<T> {
        match class {
            Class::Resume => &mut self.resumed,
            Class::Start => &mut self.start,
        }
    }

    fn is_idle(&self) -> bool {
        self.in_use == 0 && self.resumed.is_empty() && self.start.is_empty()
    }
}

impl<R: Root, T: Ticket> Queue<R, T> {
    pub(super) fn new(global: usize) -> Self {
        Self {
            global,
            in_use: 0,
            accounts: HashMap::default(),
            positions: HashMap::default(),
            ready_resumed: BTreeSet::new(),
            ready_start: BTreeSet::new(),
            last_number: 0,
        }
    }

    pub(super) fn request(&mut self, root: R, ticket: T, class: Class, per_root: u32, now: Instant) -> Vec<(R, T)> {
        let number = self.next_number();
        let account = self.accounts.entry(root).or_insert_with(RootAccount::new);
        account.bound = usize::try_from(per_root).unwrap_or(usize::MAX);
        if let Entry::Vacant(vacant) = self.positions.entry(ticket) {
            vacant.insert(QueuePosition { root, class, number, since: now });
            let queue = account.queue(class);
            if queue.is_empty() {
                queue.turn = number;
            }
            queue.push(number, ticket);
        }
        self.update_ready(root);
        self.grant_ready(now)
    }

    pub(super) fn resize(&mut self, global: usize, now: Instant) -> Vec<(R, T)> {
        self.global = global;
        self.grant_ready(now)
    }

    pub(super) fn release(&mut self, root: R, now: Instant) -> Vec<(R, T)> {
        self.in_use = self.in_use.saturating_sub(1);
        if let Some(account) = self.accounts.get_mut(&root) {
            account.in_use = account.in_use.saturating_sub(1);
        }
        self.update_ready(root);
        self.grant_ready(now)
    }

    pub(super) fn withdraw(&mut self, ticket: T) -> bool {
        let Some(QueuePosition { root, class, number, .. }) = self.positions.remove(&ticket) else { return false };
        if let Some(account) = self.accounts.get_mut(&root) {
            account.queue(class).remove(number);
        }
        self.update_ready(root);
        true
    }

    pub(super) fn queued(&self) -> usize {
        self.positions.len()
    }

    pub(super) fn in_use(&self) -> usize {
        self.in_use
    }

    pub(super) fn in_use_by(&self, root: R) -> usize {
        self.accounts.get(&root).map_or(0, |account| account.in_use)
    }

    pub(super) fn last_grant(&self, root: R) -> Option<Instant> {
        self.accounts.get(&root)?.last_grant
    }

    pub(super) fn waiting_since(&self, ticket: T) -> Option<Instant> {
        let position = self.positions.get(&ticket)?;
        let last_grant = self.last_grant(position.root);
        Some(last_grant.map_or(position.since, |at| at.max(position.since)))
    }

    fn next_number(&mut self) -> u64 {
        self.last_number = self.last_number.wrapping_add(1);
        self.last_number
    }

    fn grant_ready(&mut self, now: Instant) -> Vec<(R, T)> {
        let mut granted = Vec::new();
        while self.in_use < self.global {
            let next = self.ready_resumed.first().map(|(_, root)| (*root, Class::Resume));
            let next = next.or_else(|| self.ready_start.first().map(|(_, root)| (*root, Class::Start)));
            let Some((root, class)) = next else { break };
            if let Some(ticket) = self.grant(root, class, now) {
                granted.push((root, ticket));
            }
        }
        granted
    }

    fn grant(&mut self, root: R, class: Class, now: Instant) -> Option<T> {
        self.remove_ready(root);
        let turn = self.next_number();
        let account = self.accounts.get_mut(&root)?;
        let queue = account.queue(class);
        let ticket = queue.pop()?;
        queue.turn = turn;
        account.in_use += 1;
        account.last_grant = Some(now);
        self.in_use += 1;
        self.positions.remove(&ticket);
        self.update_ready(root);
        Some(ticket)
    }

    /// Marks the grantable queues of `root` as ready, and removes a root without tickets and slots.
    fn update_ready(&mut self, root: R) {
        self.remove_ready(root);
        let Some(account) = self.accounts.get_mut(&root) else { return };
        if account.is_idle() {
            self.accounts.remove(&root);
            return;
        }
        if account.in_use < account.bound {
            for (queue, ready) in
                [(&mut account.resumed, &mut self.ready_resumed), (&mut account.start, &mut self.ready_start)]
            {
                queue.ready = !queue.is_empty() && ready.insert((queue.turn, root));
            }
        }
    }

    fn remove_ready(&mut self, root: R) {
        let Some(account) = self.accounts.get_mut(&root) else { return };
        for (queue, ready) in
            [(&mut account.resumed, &mut self.ready_resumed), (&mut account.start, &mut self.ready_start)]
        {
            if std::mem::take(&mut queue.ready) {
                ready.remove(&(queue.turn, root));
            }
        }
    }
}
