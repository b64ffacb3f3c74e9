use std::collections::BTreeSet;

use subtend_journal::{ReadError, Stored};
use subtend_models::models::{Models, Route};
use subtend_session::ids::{RunKey, SessionId, Text};
use subtend_session::place::Owner;
use subtend_session::record::{Record, Reserved};
use subtend_session::usage::Usage;
use subtend_supervision::Spend;

use crate::calls::model_calls::ModelCalls;
use crate::calls::reservation::{failure, spend, tokens_of};
use crate::views::history;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Recount {
    pub(crate) spawns: u32,
    /// The cost of the run's model calls: the settled amount, or the whole reservation if unsettled.
    pub(crate) spend: Spend,
}

struct UnsettledAttempt {
    reserved: Option<Reserved>,
    model: Text,
}

impl ModelCalls {
    /// Recounts the usage of `root` from the records of every session with runs that it owns.
    /// The result is never below the account at the crash: an unreliable cost counts at least its reservation. Unreadable sessions are skipped, so
    /// that one does not block the others.
    pub(crate) fn recount(&self, models: &Models, root: RunKey) -> Result<Recount, ReadError> {
        let mut count = Recount::default();
        let (mut seen, mut todo) = (BTreeSet::from([root]), vec![root]);
        while let Some(key) = todo.pop() {
            let Some((run, children)) = self.recount_run(models, key, root.session)? else { continue };
            count.spawns = count.spawns.saturating_add(run.spawns);
            count.spend = count.spend.plus(run.spend);
            for child in children {
                let mut owned = Vec::new();
                if self.is_read(child, root.session, |stored| owned.extend(owned_run(key, child, &stored.record)))? {
                    // Visits each run once: a damaged store may hold a cycle.
                    todo.extend(owned.into_iter().filter(|owned| seen.insert(*owned)));
                }
            }
        }
        Ok(count)
    }

    /// Calls `take` with each record of a session below `root`. Returns false if some are damaged, of a newer format, or erased.
    fn is_read(&self, session: SessionId, root: SessionId, take: impl FnMut(&Stored)) -> Result<bool, ReadError> {
        match history::each(&self.journal, session, take) {
            Ok(()) => Ok(true),
            Err(error @ (ReadError::Damaged { .. } | ReadError::Newer { .. } | ReadError::NoSuchSession(_)))
                if session != root =>
            {
                tracing::warn!(%session, %error, "the usage of an unreadable session is not counted");
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the usage of one run, and the sessions with runs that it owns; `None` if its session cannot be read.
    fn recount_run(
        &self,
        models: &Models,
        key: RunKey,
        root: SessionId,
    ) -> Result<Option<(Recount, BTreeSet<SessionId>)>, ReadError> {
        let mut count = Recount::default();
        let (mut within, mut open, mut children) = (false, None::<UnsettledAttempt>, BTreeSet::new());
        let mut add = |spent: Spend| count.spend = count.spend.plus(spent);
        let is_read = self.is_read(key.session, root, |Stored { record, .. }| {
            if let Record::RunOpened(opened) = record {
                within = opened.run == key.run;
            }
            if !within {
                return;
            }
            if let Record::TurnStarted { reserved, model, .. } = record {
                let next = UnsettledAttempt { reserved: reserved.as_deref().copied(), model: model.clone() };
                // The previous attempt has no result, because its activation crashed. It counts in full.
                add(open.replace(next).map_or(Spend::NOTHING, |before| self.price_in_full(models, &before)));
            } else if let Record::TurnAnswered(answered) = record
                && let Some(open) = open.take()
            {
                add(self.price_attempt(models, &open, &answered.usage));
            } else if let Record::AttemptDiscarded(discarded) = record
                && let Some(open) = open.take()
            {
                add(match failure(discarded.error, discarded.usage) {
                    Some(usage) => self.price_attempt(models, &open, &usage),
                    None => self.price_in_full(models, &open),
                });
            } else if let Record::ChildSpawned(spawned) = record {
                count.spawns = count.spawns.saturating_add(1);
                // A detached run has its own account.
                children.extend((!spawned.detached).then_some(spawned.child));
            } else if let Record::ContinueAsked(request) = record {
                count.spawns = count.spawns.saturating_add(1);
                children.insert(request.child);
            }
        })?;
        add(open.map_or(Spend::NOTHING, |open| self.price_in_full(models, &open)));
        Ok(is_read.then_some((count, children)))
    }

    fn price_attempt(&self, models: &Models, open: &UnsettledAttempt, usage: &Usage) -> Spend {
        spend(usage, self.price_in_full(models, open), !usage.unreliable)
    }

    fn price_in_full(&self, models: &Models, open: &UnsettledAttempt) -> Spend {
        let Some(reserved) = &open.reserved else { return Spend::NOTHING };
        let max_cost = |name: &str, model: &dyn subtend_models::model::Model| {
            let own = self.prices.of_model(name, model).map(|price| price.max_cost(reserved));
            own.or_else(|| model.leaves_process().then(|| self.prices.highest_cost(reserved))?).unwrap_or(0)
        };
        let cost_micro = match models.route(&open.model) {
            Route::One(member) => max_cost(&member.name, &*member.model),
            // Only the answer records which member was called, so the most expensive member counts.
            Route::Pool(members) => {
                members.iter().map(|member| max_cost(&member.name, &*member.model)).max().unwrap_or_default()
            }
        };
        Spend { tokens: tokens_of(reserved), cost_micro }
    }
}

fn owned_run(owner: RunKey, child: SessionId, record: &Record) -> Option<RunKey> {
    let Record::RunOpened(opened) = record else { return None };
    let Owner::Run { session, run, .. } = opened.owner else { return None };
    let owned = RunKey { session, run } == owner;
    owned.then_some(RunKey { session: child, run: opened.run })
}
