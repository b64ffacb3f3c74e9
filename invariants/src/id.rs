//! The list of invariants, by id. The model checker, the simulator, the drills and the documents use it.

use std::fmt;

macro_rules! invariants {
    ($($variant:ident $id:literal $text:literal,)*) => {
        /// An invariant, which must hold in every interleaving.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum InvariantId {
            $(#[doc = $text] $variant,)*
        }

        impl InvariantId {
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Returns the id as documents write it, such as `J-1`.
            pub fn id(self) -> &'static str {
                match self {
                    $(Self::$variant => $id,)*
                }
            }

            pub fn text(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                }
            }
        }
    };
}

invariants! {
    J1 "J-1" "every acknowledged event still exists after any crash and recovery",
    J2 "J-2" "the records of a recovered journal are numbered from 1 in append order, without gaps or duplicates",
    J3 "J-3" "a batch is durable as a whole or not at all; it has records of one existing session and of sessions that it creates",
    J4 "J-4" "the fold of the durable journal equals the state, and never panics",
    J5 "J-5" "no external effect starts and no reply is sent before the record that it depends on is durable",
    J6 "J-6" "at most one activation of a session can append: a later epoch fences all earlier ones",
    J7 "J-7" "recovery is idempotent, and safe against a crash at any of its own writes",
    J8 "J-8" "a session with corrupt, foreign or newer data is quarantined with a typed error; the other sessions start",
    J9 "J-9" "after a failed append or flush, nothing more is acknowledged until the store is opened again",
    J10 "J-10" "an erased session has no records, and its erasure changes no other session",
    S1 "S-1" "each run has at most one end record and, once faults stop, exactly one",
    S2 "S-2" "the end of a run never changes, and all observers report the same end",
    S3 "S-3" "only transitions of the decision table happen; any other command leaves the state unchanged",
    S4 "S-4" "in a quiescent state, no run is in flight without a recorded reason to wait",
    S5 "S-5" "no activation performs effects for an ended run beyond the grace period",
    S6 "S-6" "every run ends under fair scheduling once faults stop",
    S7 "S-7" "at most one turn of a session and one model stream of a turn are in flight",
    S8 "S-8" "the recorded cause of an end is its true cause",
    S9 "S-9" "a run is opened only after the previous run of its session has ended and any notice of that end is durable",
    S10 "S-10" "at most one run of a session is in flight",
    S11 "S-11" "the open calls of a turn are counted from the answer that requested them",
    S12 "S-12" "a closing run waits only for its own local work and owned runs; a run at rest takes the inputs that it may take",
    S13 "S-13" "queued messages of people go first, one per turn, then completions and system entries; no message extends a run that a model's call opened",
    T1 "T-1" "a child is in its parent's journal before it has any effect, and an acknowledged spawn runs or ends with a notice",
    T2 "T-2" "a session has one parent, which never changes; parents form no cycle; the depth counts subagent edges and is bounded",
    T3 "T-3" "live runs never exceed the slots, and a slot is returned exactly once",
    T4 "T-4" "after a cancellation token has fired, no run that it covers starts an effect",
    T5 "T-5" "a cancel ends the cancelled run and every run that it owns, directly or indirectly, and no other run",
    T6 "T-6" "an interrupt ends no background run, a cancel ends every owned run, and neither ends a detached run",
    T7 "T-7" "a run completes only at a rest point with no owned run in flight, and its end ends every run that it owns",
    T8 "T-8" "the end, panic or kill of a child never ends a parent or sibling",
    T9 "T-9" "every live descendant can be listed and cancelled from the root",
    N1 "N-1" "each owned run has exactly one notice in its owner's journal",
    N2 "N-2" "a notice has the outcome, length, hash and prefix of the end record, unchanged",
    N3 "N-3" "a notice is never durable before its end, and the notices of one child keep the order of its runs",
    N4 "N-4" "every tool call has exactly one result before the next model request",
    N5 "N-5" "a notice wakes an idle owner, waits for the boundary of a busy owner, and does not wake an ended owner",
    N6 "N-6" "a subscriber receives each event once and in order, or is notified of the gap",
    N7 "N-7" "the end of a run that a person opened never enters the model context of the session's parent",
    N8 "N-8" "a compaction hides no message that the model has yet to answer, and names each live child",
    E1 "E-1" "a call in an unknown state after a crash is reported, and repeated only if its tool is declared idempotent",
    E2 "E-2" "a retried model call leaves no trace of the abandoned attempt in the transcript",
    E3 "E-3" "tokens, cost and turns are counted once per attempt and never exceed the limit",
    E4 "E-4" "a run's wall-clock cap applies to every run that it owns",
    E5 "E-5" "a run releases all its system resources when it ends",
    V1 "V-1" "restarts stay within their budget, and a run that exceeds it ends once",
    V2 "V-2" "a restart resumes from the journal: no durable work is redone, and no acknowledged input is lost",
    V3 "V-3" "a command that kills its actor twice is set aside and named in the end record",
    V4 "V-4" "a restart starts no work for a run whose end or cancel is recorded",
    V5 "V-5" "a shutdown first waits, then kills, and stops owned runs before their owners; the next start settles runs in flight",
    B1 "B-1" "every queue is bounded, and a full queue drops nothing that was acknowledged",
    B2 "B-2" "a control does not wait behind queued data, however full that queue is",
    P1 "P-1" "a child may do nothing that its parent may not do, at any depth",
    P2 "P-2" "an added deny never raises a verdict, and an added allow never exceeds the ancestors",
    P3 "P-3" "the order of rules changes no verdict",
    P4 "P-4" "no crash, restart, continue or override raises a session above the ceiling recorded at its creation",
    P5 "P-5" "an ask without an approver is denied, and an \"always\" applies only in its own session",
    P6 "P-6" "fields that a model writes cannot raise authority",
    P7 "P-7" "a tool is offered if and only if a call of it may be allowed, and each call is checked again",
    H1 "H-1" "each durable event reaches each attached client once and in order, even if the host is killed",
    H2 "H-2" "a command with an idempotency key takes effect once, even across a restart",
}

impl fmt::Display for InvariantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id())
    }
}
