//! The journal of a user's runs, read after the command has ended.

use std::collections::BTreeMap;

use subtend::format::Record;
use subtend::journal::{StoreSpec, open_store};
use subtend::session::{Outcome, RunNo, SessionId};

use crate::cli::call::{User, no_forks};

pub(crate) type Journals = BTreeMap<SessionId, Vec<Record>>;

pub(crate) fn journals(user: &User) -> Journals {
    let _alone = no_forks();
    let journal = open_store(&StoreSpec::Redb(user.data().join("redb"))).expect("the store opens");
    let of = |session| journal.records(session).expect("records").into_iter().map(|stored| stored.record).collect();
    let all = journal.heads().expect("heads").into_iter().map(|(session, _)| (session, of(session))).collect();
    // The store is closed before this returns.
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(journal.close()).expect("nothing was written");
    all
}

/// Returns the outcome of each run; panics if a run has no end, or several.
pub(crate) fn outcomes(journals: &Journals) -> BTreeMap<(SessionId, RunNo), Outcome> {
    let mut opened = 0;
    let mut ends = BTreeMap::new();
    for (session, record) in journals.iter().flat_map(|(session, all)| all.iter().map(move |record| (*session, record)))
    {
        opened += usize::from(matches!(record, Record::RunOpened(_)));
        if let Record::RunEnded(ended) = record {
            let before = ends.insert((session, ended.run), ended.outcome.clone());
            assert_eq!(before, None, "run {} of {session} ended twice", ended.run);
        }
    }
    assert_eq!(ends.len(), opened, "a run has no end: {journals:#?}");
    ends
}

/// Checks that the store is sound and that every run has one end; returns the ends.
pub(crate) fn sound_outcomes(user: &User) -> BTreeMap<(SessionId, RunNo), Outcome> {
    let verified = user.call(&["verify"]);
    assert_eq!((verified.code, verified.err.as_str()), (Some(0), ""), "{verified:?}");
    let journals = journals(user);
    for records in journals.values() {
        let started = records.iter().filter(|record| matches!(record, Record::CallStarted { .. })).count();
        let finished = records.iter().filter(|record| matches!(record, Record::CallFinished(_))).count();
        let blocking = records.iter().filter(|record| matches!(record, Record::NoticeTaken(_))).count();
        assert!(
            finished <= started && started <= finished + blocking,
            "{started} calls, {finished} ends: {records:#?}"
        );
    }
    outcomes(&journals)
}
