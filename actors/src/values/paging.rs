//! Reads of the records of a session page by page, so that the texts of a long session are not all in memory.

use subtend_journal::{Journal, ReadError, Stored};
use subtend_session::ids::{Seq, SessionId};
use subtend_session::state::{FoldError, State};

/// Bytes after which a page of a session's records ends.
pub(crate) const PAGE_BYTES: u64 = 1 << 20;
/// Maximum number of records read from the journal at a time.
const PAGE_SIZE: usize = 256;
/// Maximum number of records that a page read backwards asks for.
const BACKWARD_PAGE: u64 = 64;

/// Calls `take` with each record of a session up to `last`.
/// # Errors
/// The error of the first page that cannot be read, after `take` had the records of those before it.
pub(crate) fn each_to(
    journal: &Journal,
    session: SessionId,
    last: Seq,
    mut take: impl FnMut(&Stored),
) -> Result<(), ReadError> {
    let took = |stored: &Stored| {
        let is_behind = stored.seq > last;
        if !is_behind {
            take(stored);
        }
        is_behind.then_some(())
    };
    walk(journal, session, &mut Seq(1), took).map(drop)
}

/// A fold of records that arrive one by one.
#[derive(Default)]
pub(crate) struct RecordFold(Option<Result<State, FoldError>>);

impl RecordFold {
    pub(crate) fn add(&mut self, stored: &Stored, session: SessionId) {
        match &mut self.0 {
            None => self.0 = Some(State::fold(session, [&stored.record])),
            Some(Ok(state)) => {
                if let Err(error) = state.follow(&stored.record) {
                    self.0 = Some(Err(error));
                }
            }
            Some(Err(_)) => {}
        }
    }

    /// Returns the state of `session` after these records.
    /// # Errors
    /// If the records are not those of one session in order.
    pub(crate) fn state(self, session: SessionId) -> Result<State, FoldError> {
        self.0.unwrap_or(Err(FoldError::Empty { session }))
    }
}

/// Folds the records of a session up to `last`, page by page.
/// # Errors
/// As for [`each_to`]. The inner error is that of the fold.
pub(crate) fn fold_to(journal: &Journal, session: SessionId, last: Seq) -> Result<Result<State, FoldError>, ReadError> {
    let mut fold = RecordFold::default();
    each_to(journal, session, last, |stored| fold.add(stored, session))?;
    Ok(fold.state(session))
}

/// Calls `take` with the records from `next` on, page by page, until it returns a value or there are no more.
pub(crate) fn walk<T>(
    journal: &Journal,
    session: SessionId,
    next: &mut Seq,
    mut take: impl FnMut(&Stored) -> Option<T>,
) -> Result<Option<T>, ReadError> {
    loop {
        let (page, has_more) = journal.page_from(session, *next, PAGE_SIZE, PAGE_BYTES)?;
        for stored in &page {
            *next = stored.seq.next();
            if let Some(found) = take(stored) {
                return Ok(Some(found));
            }
        }
        if page.is_empty() || !has_more {
            return Ok(None);
        }
    }
}

/// Calls `take` with the records of a session from the last one backwards, page by page, until it returns true.
/// # Errors
/// The error of the first page that cannot be read, after `take` had the records of those behind it.
pub(crate) fn each_backwards(
    journal: &Journal,
    session: SessionId,
    mut take: impl FnMut(Stored) -> bool,
) -> Result<(), ReadError> {
    let last = journal.head(session)?.ok_or(ReadError::NoSuchSession(session))?.last_seq;
    // A page is filled from its start, so a full one lacks the records from `unread` to `until`. They are read first.
    let (mut until, mut unread, mut count) = (last.next(), Seq(1), 1_u64);
    while until > Seq(1) {
        let missing = until.0.saturating_sub(unread.0);
        let (page, bytes) = journal.page_before(session, until, count.min(missing), PAGE_BYTES)?;
        let Some((first, end)) = page.first().zip(page.last()).map(|(first, last)| (first.seq, last.seq.next())) else {
            break;
        };
        if end < until {
            (unread, count) = (end, (count / 4).max(1));
            continue;
        }
        if page.into_iter().rev().any(&mut take) {
            break;
        }
        if first <= unread {
            unread = Seq(1);
        }
        until = first;
        if bytes < PAGE_BYTES / 4 {
            count = count.saturating_mul(4).min(BACKWARD_PAGE);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use subtend_journal::Options;
    use subtend_journal::faulty::Faulty;
    use subtend_journal::memory::Memory;
    use subtend_models::closure::fn_model;
    use subtend_models::model::Answer;

    use super::*;
    use crate::{OpenOptions, Runtime};

    /// Pages that are full of large records lack the last ones, which are read before them. The control: small records.
    #[tokio::test]
    async fn records_are_read_backwards_in_order() {
        let small = [10; 20];
        let [mut mixed, mut many] = [[10; 20]; 2];
        (mixed[4], mixed[15], mixed[19]) = (3 << 20, 700_000, 2 << 20);
        many[3..17].fill(400_000);
        for sizes in [small, mixed, many] {
            let (engine, faults) = Faulty::new(Box::new(Memory::new()));
            let journal = Journal::open(Box::new(engine), Options::default()).expect("a journal");
            let mut sizes = sizes.into_iter();
            let next = std::sync::Mutex::new(move || sizes.next().unwrap_or_default());
            let model = fn_model("script", move |_, _| {
                let text = "x".repeat((next.lock().expect("no panic"))());
                async move { Ok(Answer::of_text(text)) }
            });
            let options = crate::Options { titles: false, summaries: false, ..crate::Options::default() };
            let builder = Runtime::builder().journal(journal.clone()).options(options).model(Arc::new(model));
            let runtime = builder.start().await.expect("a runtime");
            let session = runtime.open(OpenOptions::agent("general")).expect("a session");
            for _ in 0..20 {
                session.send("go").await.expect("accepted").answer().await.expect("an answer");
            }
            let id = session.id();
            let mut all = journal.without_bodies().records(id).expect("records");
            all.reverse();
            let (before, mut read) = (faults.read_bytes(), Vec::new());
            each_backwards(&journal.without_bodies(), id, |stored| {
                read.push(stored);
                false
            })
            .expect("records");
            assert_eq!(read, all);
            let bytes = faults.read_bytes() - before;
            let all_bytes = journal.bytes_from(id, Seq(1), u64::MAX).expect("bytes");
            assert!(bytes <= 3 * all_bytes, "{bytes} bytes for {all_bytes}");
            let mut first = None;
            each_backwards(&journal, id, |stored| first.replace(stored.seq).is_none()).expect("records");
            assert_eq!(first, all.first().map(|stored| stored.seq));
            runtime.shutdown(std::time::Duration::ZERO).await;
        }
    }
}
