use std::collections::BTreeSet;

use subtend_journal::{ReadError, Stored};
use subtend_models::models::{Models, Route};
use subtend_session::ids::{RunKey, RunNo, SessionId, Text};
use subtend_session::place::Owner;
use subtend_session::record::{Record, Reserved};
use subtend_session::usage::Usage;
use subtend_supervision::Spend;

use crate::calls::model_calls::ModelCalls;
use crate::calls::reservation::{failure, spend, tokens_of};

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
            let Some(stored) = self.readable(key.session, root.session)? else { continue };
            for child in self.recount_run(models, key.run, &stored, &mut count) {
                let Some(owned) = self.readable(child, root.session)? else { continue };
                // Visits each run once: a damaged store may hold a cycle.
                todo.extend(owned_runs(key, child, &owned).filter(|owned| seen.insert(*owned)));
            }
        }
        Ok(count)
    }

    /// Returns the records of a session below `root`, or `None` if they are damaged, of a newer format, or erased.
    fn readable(&self, session: SessionId, root: SessionId) -> Result<Option<Vec<Stored>>, ReadError> {
        match self.journal.records(session) {
            Ok(stored) => Ok(Some(stored)),
            Err(error @ (ReadError::Damaged { .. } | ReadError::Newer { .. } | ReadError::NoSuchSession(_)))
                if session != root =>
            {
                tracing::warn!(%session, %error, "the usage of an unreadable session is not counted");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Adds the usage of one run, and returns the sessions with runs that it owns.
    fn recount_run(&self, models: &Models, no: RunNo, stored: &[Stored], count: &mut Recount) -> BTreeSet<SessionId> {
        let (mut within, mut open, mut children) = (false, None::<UnsettledAttempt>, BTreeSet::new());
        let mut add = |spent: Spend| count.spend = count.spend.plus(spent);
        for Stored { record, .. } in stored {
            if let Record::RunOpened(opened) = record {
                within = opened.run == no;
            }
            if !within {
                continue;
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
        }
        add(open.map_or(Spend::NOTHING, |open| self.price_in_full(models, &open)));
        children
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

fn owned_runs(owner: RunKey, child: SessionId, stored: &[Stored]) -> impl Iterator<Item = RunKey> {
    stored.iter().filter_map(move |stored| {
        let Record::RunOpened(opened) = &stored.record else { return None };
        let Owner::Run { session, run, .. } = opened.owner else { return None };
        let owned = RunKey { session, run } == owner;
        owned.then_some(RunKey { session: child, run: opened.run })
    })
}
