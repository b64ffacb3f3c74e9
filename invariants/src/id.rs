//! The invariants by id: one list for the checker, the simulator, the drills and the documents.

use std::fmt;

macro_rules! invariants {
    ($($variant:ident $id:literal $text:literal,)*) => {
        /// One invariant: what must hold in every interleaving.
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
    J2 "J-2" "a recovered journal is gap-free from 1, in append order, without duplicates",
    J3 "J-3" "a batch is all or nothing, also across sessions, and never holds records of another existing session",
    J4 "J-4" "folding the durable journal gives the state, and never panics",
    J5 "J-5" "nothing leaves the process before the record that intends it is durable",
    J6 "J-6" "at most one activation of a session can append: a later epoch fences all earlier ones",
    J7 "J-7" "recovery is idempotent and safe against a crash at any of its writes",
    J8 "J-8" "a session with corrupt, foreign or newer data is quarantined with a typed error; the others start",
    J9 "J-9" "after a failed append or flush nothing more is acknowledged until the store is opened again",
    J10 "J-10" "an erased session has no record left, and no other session changes by its erasure",
    S1 "S-1" "each run has at most one end record and, once faults stop, exactly one",
    S2 "S-2" "an end never changes, and every observer names the same one",
    S3 "S-3" "only transitions of the table happen; everything else leaves the state as it is",
    S4 "S-4" "in a quiescent state, no run is in flight without a recorded reason to wait",
    S5 "S-5" "no activation performs effects for an ended run beyond the grace period",
    S6 "S-6" "every run ends under fair scheduling once faults stop",
    S7 "S-7" "at most one turn of a session and one model stream of a turn are in flight",
    S8 "S-8" "the recorded cause of an end is the true one",
    S9 "S-9" "a run is opened only when the one before it has ended and its notice is owed durably",
    S10 "S-10" "at most one run of a session is in flight",
    S11 "S-11" "the open calls of a turn are counted from the answer that asked for them",
    S12 "S-12" "a closing run waits only for its own local work and owned runs; no takeable input waits at rest",
    S13 "S-13" "queued messages of persons go first, one turn each, and completions and system entries follow; none extends a run of a model",
    T1 "T-1" "a child is in its parent's journal before it has any effect, and an acknowledged spawn runs or ends with a notice",
    T2 "T-2" "a session has one parent for life, without a cycle; its depth counts subagent edges and is bounded",
    T3 "T-3" "live runs never exceed the slots, and a slot is returned exactly once",
    T4 "T-4" "once a token has fired, no run below it starts an effect",
    T5 "T-5" "a cancel ends every run that is owned through the cancelled one, and touches no other",
    T6 "T-6" "an interrupt ends no background run, a cancel ends every owned run, and neither ends a detached run",
    T7 "T-7" "a run completes only at a rest point with no owned run in flight, and every end ends the owned ones",
    T8 "T-8" "the end, panic or kill of a child never ends a parent or sibling",
    T9 "T-9" "every live descendant can be listed and cancelled from the root",
    N1 "N-1" "each owned run has exactly one notice in its owner's journal",
    N2 "N-2" "the notice carries outcome, length, hash and prefix unchanged from the end record",
    N3 "N-3" "a notice is never durable before its end, and notices of one child keep run order",
    N4 "N-4" "every tool call has exactly one result before the next model request",
    N5 "N-5" "a notice wakes an idle owner, waits for a busy one, and wakes no ended one",
    N6 "N-6" "a subscriber sees each event once and in order, or is notified of the gap",
    N7 "N-7" "a run that a person opened never enters the model context of its session's parent",
    N8 "N-8" "a compaction hides nothing that is owed to the model, and names each live child",
    E1 "E-1" "a call in an unknown state after a crash is reported, and repeated only if its tool is declared idempotent",
    E2 "E-2" "a retried model call leaves no trace of the abandoned attempt in the transcript",
    E3 "E-3" "tokens, cost and turns are counted once per attempt and never exceed the limit",
    E4 "E-4" "a wall-clock cap of a run binds every run that it owns",
    E5 "E-5" "what a run took from the system is released when it ends",
    V1 "V-1" "restarts stay within their budget, and a run that exceeds it ends once",
    V2 "V-2" "a restart resumes from the journal: nothing durable is redone, no acknowledged input is lost",
    V3 "V-3" "a command that kills its actor twice is set aside and named in the end record",
    V4 "V-4" "no restart after an end or a recorded cancel",
    V5 "V-5" "shutdown drains, then kills, owned before owners; the next start settles what was still running",
    B1 "B-1" "every queue has a bound, and nothing acknowledged is dropped at it",
    B2 "B-2" "controls travel in their own lane, however full the data lane is",
    P1 "P-1" "a child may do nothing that its parent may not, at any depth",
    P2 "P-2" "a deny in an ancestor never allows a descendant more, and an allow in a descendant never exceeds its ancestors",
    P3 "P-3" "denies do not depend on the order of rules",
    P4 "P-4" "no crash, restart, continue or override rises above the ceiling recorded at creation",
    P5 "P-5" "an ask without an approver is denied, and an \"always\" binds its own session only",
    P6 "P-6" "fields that a model writes cannot raise authority",
    P7 "P-7" "a tool is offered if and only if it may be allowed, and each call is checked again",
    H1 "H-1" "each durable event reaches each attached client once and in order, over kills of the host",
    H2 "H-2" "a command with an idempotency key takes effect once, also over a restart",
}

impl fmt::Display for InvariantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id())
    }
}
