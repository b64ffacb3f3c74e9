//! Receipts of inputs, and the search for their answers in the journal.

use scan::Scan;
use subtend_journal::{Journal, ReadError, Stored};
use subtend_session::ids::{InputId, Lsn, RunNo, Seq, SessionId, Text, TurnNo};
use subtend_session::outcome::Initiator;
use subtend_session::record::Record;

use crate::delivery::waiters::Wait;
use crate::handle::SessionHandle;
use crate::observe::append_notices::AppendNotice;
use crate::values::ended::Ended;
use crate::values::error::Stopped;
use crate::values::paging::{self, PAGE_BYTES};

mod scan;

const PAGE_SIZE: usize = 128;

/// An accepted input, which is durable.
#[derive(Clone, Debug)]
pub struct Receipt {
    pub input: InputId,
    /// The run that the input opened, or the run in flight at its acceptance. If a model's call opened the run in
    /// flight, only messages sent by [`SessionHandle::steer`] enter it. Others go to the next run, which is then given
    /// here. If the input was accepted earlier, this is the session's last run. [`SessionHandle::run_ended`] returns
    /// `NoSuchRun` if the input is removed before its run is opened.
    pub run: RunNo,
    /// True if an input with the same key had been accepted before.
    pub duplicate: bool,
    pub(crate) session: SessionHandle,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    pub input: InputId,
    /// The run that answered. It may continue, for queued inputs and for the ends of its children.
    pub run: RunNo,
    pub turn: TurnNo,
    pub seq: Seq,
    /// The whole text, including the part before an interruption that it continues.
    pub text: Text,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AnswerError {
    #[error("run {} ended before it answered the input: {}", .0.run, .0.outcome.kind().as_str())]
    Ended(Box<Ended>),
    #[error("the input was removed from the queue before it was taken")]
    Removed { by: Initiator },
    #[error("session {session} has accepted no input {input}")]
    NoSuchInput { session: SessionId, input: InputId },
    /// The runtime is shutting down or its store failed; the input is in the journal.
    #[error("{0}")]
    Stopped(Stopped),
    #[error("the answer cannot be read: {0}")]
    Read(#[source] ReadError),
}

impl PartialEq for Receipt {
    fn eq(&self, other: &Self) -> bool {
        (self.session.id, self.input, self.run, self.duplicate)
            == (other.session.id, other.input, other.run, other.duplicate)
    }
}

impl Eq for Receipt {}

impl Receipt {
    pub fn session(&self) -> &SessionHandle {
        &self.session
    }

    /// Waits for the final answer that names the input. The answer is found in the journal, even if it is older than
    /// this call, or if it came from another run than [`Receipt::run`].
    /// # Errors
    /// [`AnswerError`]. If the run ended without an answer, the error has its outcome and partial text.
    /// # Cancel safety
    /// Dropping the future cancels nothing; call the method again.
    /// # Durability
    /// The answer is durable when it is returned.
    pub async fn answer(&self) -> Result<Answered, AnswerError> {
        let mut wait = AnswerWait::new(self, true);
        loop {
            if let Some(found) = wait.read().await? {
                return Ok(found);
            }
            wait.changed().await?;
        }
    }

    /// Waits as [`Receipt::answer`] does, in steps: the caller limits how many waits read the journal at a time.
    pub fn wait(&self) -> AnswerWait<'_> {
        AnswerWait::new(self, false)
    }

    /// Returns the answer, or `None` while it is missing.
    /// # Errors
    /// As [`Receipt::answer`].
    pub async fn try_answer(&self) -> Result<Option<Answered>, AnswerError> {
        let (mut next, mut scan) = self.session.find(self.input).await?;
        self.session.walk_records(&mut next, |stored| scan.read(stored))?.transpose()
    }
}

/// A wait for the answer to an input, by [`Receipt::wait`]. It keeps no text of the session.
pub struct AnswerWait<'a> {
    receipt: &'a Receipt,
    keeps_texts: bool,
    notice: AppendNotice,
    /// A noticed batch that may not be durable yet: a dropped future has consumed its notice.
    pending: Option<Lsn>,
    over: Wait<'a>,
    /// The next record and the search; `None` before the first read.
    at: Option<(Seq, Scan)>,
}

impl std::fmt::Debug for AnswerWait<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AnswerWait").field("receipt", self.receipt).finish_non_exhaustive()
    }
}

impl<'a> AnswerWait<'a> {
    /// Registers before the journal is read, so that no later record is missed.
    fn new(receipt: &'a Receipt, keeps_texts: bool) -> Self {
        let SessionHandle { sessions, id, .. } = &receipt.session;
        let notice = sessions.log.events.notice(*id);
        // Run 0 does not exist: this wait only ends at a shutdown.
        let over = sessions.waiters.wait(*id, RunNo(0));
        Self { receipt, keeps_texts, notice, pending: None, over, at: None }
    }

    /// Reads the records since the last call. Returns the answer, or `None` while it is missing.
    /// # Errors
    /// As [`Receipt::answer`].
    pub async fn read(&mut self) -> Result<Option<Answered>, AnswerError> {
        let session = &self.receipt.session;
        let (next, scan) = match &mut self.at {
            Some(at) => at,
            none => {
                let (next, scan) = session.find(self.receipt.input).await?;
                none.insert((next, if self.keeps_texts { scan } else { scan.without_texts() }))
            }
        };
        match session.walk_records(next, |stored| scan.read(stored))? {
            // The texts were not kept, so they are read once more.
            Some(_) if !self.keeps_texts => self.receipt.try_answer().await,
            found => found.transpose(),
        }
    }

    /// Waits until the session has records after the last call. Does not read them.
    /// # Errors
    /// [`AnswerError::Stopped`].
    /// # Cancel safety
    /// Dropping the future loses no record for [`AnswerWait::read`].
    pub async fn changed(&mut self) -> Result<(), AnswerError> {
        let sessions = &self.receipt.session.sessions;
        let durable = async {
            let lsn = match self.pending {
                Some(lsn) => lsn,
                None => *self.pending.insert(self.notice.next().await),
            };
            sessions.log.journal.wait(lsn).await?;
            self.pending = None;
            Ok(())
        };
        tokio::select! {
            biased;
            durable = durable => durable.map_err(|poison| poisoned(&poison)),
            () = self.over.gone() => Err(AnswerError::Stopped(sessions.life.stopped())),
        }
    }
}

impl SessionHandle {
    /// Returns the receipt of an input that the session accepted earlier, possibly in another process.
    /// # Errors
    /// [`AnswerError::NoSuchInput`], or the error of reading the journal.
    pub async fn receipt(&self, input: InputId) -> Result<Receipt, AnswerError> {
        let (mut next, mut scan) = self.find(input).await?;
        // Reads until the input leaves the queue: its run is known then.
        self.walk_records(&mut next, |stored| (scan.read(stored).is_some() || scan.is_taken()).then_some(()))?;
        Ok(Receipt { input, run: scan.run(), duplicate: true, session: self.clone() })
    }

    /// Returns the last answer that the run of `answer` gave before it took another input; `None` if it took no other.
    pub(crate) async fn answer_before_next_input(&self, answer: &Answered) -> Result<Option<Text>, AnswerError> {
        let (mut next, mut scan) = self.find(answer.input).await?;
        let found = self.walk_records(&mut next, |stored| {
            let after = stored.seq > answer.seq;
            if after && matches!(stored.record, Record::InputsTaken { .. }) {
                return Some(scan.last());
            }
            if after && matches!(stored.record, Record::RunEnded(_)) {
                return Some(None);
            }
            drop(scan.read(stored));
            None
        });
        Ok(found?.flatten())
    }

    fn walk_records<T>(
        &self,
        next: &mut Seq,
        take: impl FnMut(&Stored) -> Option<T>,
    ) -> Result<Option<T>, AnswerError> {
        paging::walk(&self.sessions.log.journal, self.id, next, take).map_err(|error| self.read_error(error))
    }

    /// Returns where to read from: the run in flight at the acceptance, whose truncated part the answer may continue.
    async fn find(&self, input: InputId) -> Result<(Seq, Scan), AnswerError> {
        self.sessions.log.journal.settled().await.map_err(|poison| poisoned(&poison))?;
        let from = find_start(&self.sessions.log.journal, self.id, input).map_err(|error| self.read_error(error))?;
        let from = from.ok_or(AnswerError::NoSuchInput { session: self.id, input })?;
        Ok((from, Scan::new(input)))
    }

    fn read_error(&self, error: ReadError) -> AnswerError {
        match error {
            ReadError::Closed => AnswerError::Stopped(self.sessions.life.stopped()),
            error @ (ReadError::NoSuchSession(_)
            | ReadError::Damaged { .. }
            | ReadError::Newer { .. }
            | ReadError::Engine(_)) => AnswerError::Read(error),
        }
    }
}

fn poisoned(poison: &subtend_journal::Poisoned) -> AnswerError {
    AnswerError::Stopped(Stopped::Poisoned(poison.to_string()))
}

/// Finds the position by reading backwards, since most receipts are awaited soon after the acceptance.
fn find_start(journal: &Journal, session: SessionId, input: InputId) -> Result<Option<Seq>, ReadError> {
    let head = journal.head(session)?.ok_or(ReadError::NoSuchSession(session))?;
    let mut end = head.last_seq.next();
    let mut found = false;
    loop {
        let from = Seq(end.0.saturating_sub(PAGE_SIZE as u64).max(1));
        // The last boundary before the input, or before `end` if the input is later.
        let (mut next, mut boundary) = (from, None);
        'part: while next < end {
            let count = usize::try_from(end.0.saturating_sub(next.0)).unwrap_or(PAGE_SIZE);
            let (page, _) = journal.page_from(session, next, count, PAGE_BYTES)?;
            let Some(last) = page.last() else { break };
            next = last.seq.next();
            for stored in page.iter().filter(|stored| stored.seq < end) {
                if !found && is_input(&stored.record, input) {
                    found = true;
                    break 'part;
                }
                if matches!(stored.record, Record::RunOpened(_) | Record::RunEnded(_)) {
                    boundary = Some(stored.seq);
                }
            }
        }
        match boundary.filter(|_| found) {
            Some(boundary) => return Ok(Some(boundary)),
            None if from <= Seq(1) => return Ok(found.then_some(Seq(1))),
            None => end = from,
        }
    }
}

fn is_input(record: &Record, input: InputId) -> bool {
    let Record::InputAccepted(accepted) = record else { return false };
    accepted.id == input
}
