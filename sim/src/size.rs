//! The size of a model: the number of times that each event may occur.

/// The bounds of a model. States count them down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size {
    pub children: u8,
    /// Maximum depth of sessions below the root.
    pub depth: u8,
    pub tools: u8,
    /// Calls of tools that need an approval.
    pub asks: u8,
    /// Calls that continue an ended child.
    pub continues: u8,
    pub stops: u8,
    /// Inputs by a person, to the root.
    pub sends: u8,
    /// Inputs by a person, to a child. They open runs without an owner.
    pub resumes: u8,
    /// Messages between running relatives.
    pub messages: u8,
    /// Calls that a person moves to the background.
    pub moves: u8,
    pub branches: u8,
    /// Answers of the root that a person regenerates.
    pub regenerates: u8,
    /// Runs of the root that a person rolls back.
    pub rollbacks: u8,
    /// Services of the host for the root.
    pub services: u8,
    pub closes: u8,
    pub crashes: u8,
    pub panics: u8,
    /// Panics between the append of a batch and its effects.
    pub half_panics: u8,
    /// Cancels of any session by a person.
    pub cancels: u8,
    pub tree_cancels: u8,
    /// Interrupts of any session by a person.
    pub interrupts: u8,
    pub deadlines: u8,
    /// Model attempts that fail.
    pub failures: u8,
    /// Model attempts for which the provider reports an overflow. Inputs are then large.
    pub overflows: u8,
    /// Model attempts that a provider's limit refuses until its reset.
    pub limits: u8,
    /// Outbox rows, and resets of limits, that are delivered twice.
    pub doubles: u8,
    /// Slots of owned runs.
    pub slots: u8,
    /// Slots of runs that people opened.
    pub person_slots: u8,
    pub approvers: u8,
    pub turns: u8,
    pub child_turns: u8,
}

impl Size {
    /// A root and one child. The check takes seconds on one thread.
    pub const SMALL: Self = Self {
        children: 1,
        depth: 1,
        tools: 1,
        asks: 0,
        continues: 0,
        stops: 0,
        sends: 1,
        resumes: 0,
        messages: 0,
        moves: 0,
        branches: 0,
        regenerates: 0,
        rollbacks: 0,
        services: 0,
        closes: 0,
        crashes: 1,
        panics: 0,
        half_panics: 0,
        cancels: 1,
        tree_cancels: 0,
        interrupts: 0,
        deadlines: 0,
        failures: 0,
        overflows: 0,
        limits: 0,
        doubles: 0,
        slots: 1,
        person_slots: 1,
        approvers: 0,
        turns: 3,
        child_turns: 2,
    };

    /// A root and one child, whose actors may panic.
    pub const PANIC: Self = Self { panics: 1, crashes: 0, ..Self::SMALL };

    /// A root and one child, with panics between the append of a batch and its effects.
    pub const HALF_PANIC: Self = Self { half_panics: 1, crashes: 0, ..Self::SMALL };

    /// Two children, siblings or nested, without faults.
    pub const CALM: Self =
        Self { children: 2, depth: 2, tools: 0, crashes: 0, cancels: 0, child_turns: 3, ..Self::SMALL };

    pub const CANCEL: Self = Self { cancels: 1, ..Self::CALM };

    pub const CRASH: Self = Self { crashes: 1, ..Self::CALM };

    /// A root and one child, with an interrupt and an input that may resume the run.
    pub const INTERRUPT: Self = Self { interrupts: 1, sends: 2, crashes: 0, cancels: 0, ..Self::SMALL };

    /// A root and one child without faults, the base of the following sizes.
    const PAIR: Self = Self { tools: 0, crashes: 0, cancels: 0, turns: 4, ..Self::SMALL };

    /// A child that its owner's model continues.
    pub const CONTINUE: Self = Self { continues: 1, ..Self::PAIR };

    /// A child that is continued and cancelled by rows that may arrive twice.
    pub const STOP: Self = Self { continues: 1, stops: 1, doubles: 1, ..Self::PAIR };

    /// A blocking call that a person moves to the background, with an interrupt.
    pub const MOVE: Self = Self { moves: 1, interrupts: 1, ..Self::PAIR };

    /// A call that needs an approval, and an approver.
    pub const ASK: Self = Self { asks: 1, approvers: 1, deadlines: 1, turns: 3, ..Self::PAIR };

    /// Queued inputs during a cancel of the whole tree.
    pub const QUEUE: Self = Self { sends: 3, tree_cancels: 1, turns: 3, ..Self::PAIR };

    /// A child in which people open runs, and which is closed.
    pub const PERSON: Self = Self { resumes: 1, continues: 1, closes: 1, ..Self::PAIR };

    /// A root from which people create branches and alternatives, with inputs and a crash.
    pub const BRANCH: Self =
        Self { children: 0, sends: 2, branches: 1, regenerates: 1, resumes: 1, crashes: 1, turns: 2, ..Self::PAIR };

    /// Cancelled or lost runs of the root that are rolled back, followed by inputs and branches.
    pub const ROLLBACK: Self =
        Self { children: 0, sends: 2, branches: 1, cancels: 1, rollbacks: 2, crashes: 1, turns: 2, ..Self::PAIR };

    /// Services for a root, with late and repeated answers, a cancel of the whole tree and a crash.
    pub const SERVICE: Self =
        Self { children: 0, services: 2, doubles: 1, tree_cancels: 1, closes: 1, crashes: 1, turns: 2, ..Self::PAIR };

    /// A root that is compacted after an overflow, with an earlier run, a tool, a rollback and a crash.
    pub const COMPACT: Self = Self {
        children: 0,
        tools: 1,
        sends: 2,
        overflows: 1,
        rollbacks: 1,
        cancels: 1,
        crashes: 1,
        turns: 3,
        ..Self::PAIR
    };

    /// A root and one child that a provider's limit refuses, with a reset that is delivered twice.
    pub const LIMIT: Self = Self { limits: 2, doubles: 1, turns: 3, ..Self::PAIR };

    /// Like [`Size::LIMIT`], with all events that may concern a parked run, including a crash.
    pub const LIMITED: Self =
        Self { limits: 2, doubles: 0, crashes: 1, cancels: 1, interrupts: 1, sends: 2, deadlines: 1, ..Self::LIMIT };

    /// A root and one child that message each other, with a turn limit, an interrupt and inputs.
    pub const MESSAGE: Self = Self { messages: 2, interrupts: 1, sends: 2, turns: 3, ..Self::PAIR };

    /// Two children, siblings or nested.
    pub const MEDIUM: Self = Self { children: 2, depth: 2, tools: 0, crashes: 1, panics: 1, cancels: 1, ..Self::SMALL };

    /// Two children, with an interrupt, a crash and a cancel.
    pub const HELD: Self = Self { interrupts: 1, panics: 0, ..Self::MEDIUM };

    /// A child with two runs, all kinds of cancels, an interrupt and a crash.
    pub const CONTINUED: Self = Self { crashes: 1, cancels: 1, interrupts: 1, ..Self::STOP };

    /// A call that needs an approval, in a child or the root, with a crash, a panic and a cancel.
    pub const ASKING: Self = Self { crashes: 1, panics: 1, cancels: 1, ..Self::ASK };

    /// Inputs to the root and to its child, a cancel of the whole tree, a close and a crash.
    pub const QUEUEING: Self = Self { sends: 2, continues: 0, tree_cancels: 1, crashes: 1, ..Self::PERSON };

    /// Branches and regenerations, a cancel of the whole tree and a crash.
    pub const BRANCHING: Self = Self { tree_cancels: 1, ..Self::BRANCH };

    /// Each event once and two crashes. The check takes minutes.
    pub const LARGE: Self = Self {
        tools: 1,
        sends: 2,
        crashes: 2,
        interrupts: 1,
        deadlines: 1,
        failures: 1,
        child_turns: 3,
        ..Self::MEDIUM
    };

    /// The sizes that are checked to the end, by name.
    pub const NAMED: [(&'static str, Self); 13] = [
        ("small", Self::SMALL),
        ("medium", Self::MEDIUM),
        ("held", Self::HELD),
        ("continued", Self::CONTINUED),
        ("asking", Self::ASKING),
        ("limited", Self::LIMITED),
        ("queueing", Self::QUEUEING),
        ("branching", Self::BRANCHING),
        ("serving", Self::SERVICE),
        ("rolling_back", Self::ROLLBACK),
        ("compacting", Self::COMPACT),
        ("writing", Self::MESSAGE),
        ("large", Self::LARGE),
    ];
}
