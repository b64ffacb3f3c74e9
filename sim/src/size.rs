//! How large a model is: what may happen in it, and how often.

/// Bounds of a model. All that is bounded is counted down in its states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size {
    pub children: u8,
    /// Subagent edges from the root.
    pub depth: u8,
    /// Calls of local tools, in all.
    pub tools: u8,
    /// Calls of tools that need a person's word.
    pub asks: u8,
    /// Calls that ask an ended child to go on.
    pub continues: u8,
    /// Calls that cancel a child's run.
    pub stops: u8,
    /// Inputs by a person, to the root.
    pub sends: u8,
    /// Inputs by a person, to a child: they open runs that the person owns.
    pub resumes: u8,
    /// Calls that a person moves to the background.
    pub moves: u8,
    /// Branches of the root that a person makes.
    pub branches: u8,
    /// Answers of the root that a person has given anew.
    pub regenerates: u8,
    /// Runs of the root that a person rolls back.
    pub rollbacks: u8,
    /// Services of the host for the root.
    pub services: u8,
    /// Sessions that a person closes.
    pub closes: u8,
    /// Crashes of the process.
    pub crashes: u8,
    /// Panics of session actors.
    pub panics: u8,
    /// Panics between the append of a batch and its effects.
    pub half_panics: u8,
    /// Cancels by a person, of any session.
    pub cancels: u8,
    /// Cancels by a person, of the whole tree.
    pub tree_cancels: u8,
    /// Interrupts by a person, of any session.
    pub interrupts: u8,
    /// Time limits that pass.
    pub deadlines: u8,
    /// Model attempts that fail.
    pub failures: u8,
    /// Rows between sessions that are delivered once more.
    pub doubles: u8,
    /// Slots of owned runs.
    pub slots: u8,
    /// Slots of runs that persons own.
    pub person_slots: u8,
    /// People who could give their word.
    pub approvers: u8,
    /// Turns of a root's run.
    pub turns: u8,
    /// Turns of a child's run.
    pub child_turns: u8,
}

impl Size {
    /// A root and one child: seconds on one thread.
    pub const SMALL: Self = Self {
        children: 1,
        depth: 1,
        tools: 1,
        asks: 0,
        continues: 0,
        stops: 0,
        sends: 1,
        resumes: 0,
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
        doubles: 0,
        slots: 1,
        person_slots: 1,
        approvers: 0,
        turns: 3,
        child_turns: 2,
    };

    /// A root and one child, whose actors may panic.
    pub const PANIC: Self = Self { panics: 1, crashes: 0, ..Self::SMALL };

    /// A root and one child, whose actors may panic between the append of a batch and its effects.
    pub const HALF_PANIC: Self = Self { half_panics: 1, crashes: 0, ..Self::SMALL };

    /// Two children, side by side or one below the other, and nothing that goes wrong.
    pub const CALM: Self =
        Self { children: 2, depth: 2, tools: 0, crashes: 0, cancels: 0, child_turns: 3, ..Self::SMALL };

    /// The same with a cancel.
    pub const CANCEL: Self = Self { cancels: 1, ..Self::CALM };

    /// The same with a crash.
    pub const CRASH: Self = Self { crashes: 1, ..Self::CALM };

    /// A root and one child, whose runs may be interrupted, and an input that may resume one.
    pub const INTERRUPT: Self = Self { interrupts: 1, sends: 2, crashes: 0, cancels: 0, ..Self::SMALL };

    /// A root and one child, and nothing that goes wrong: what the wholes below add their own to.
    const PAIR: Self = Self { tools: 0, crashes: 0, cancels: 0, turns: 4, ..Self::SMALL };

    /// A child that its owner's model asks to go on.
    pub const CONTINUE: Self = Self { continues: 1, ..Self::PAIR };

    /// A child that a model asks to go on and a model cancels, by rows that may come twice.
    pub const STOP: Self = Self { continues: 1, stops: 1, doubles: 1, ..Self::PAIR };

    /// A blocking call that a person moves to the background, beside an interrupt.
    pub const MOVE: Self = Self { moves: 1, interrupts: 1, ..Self::PAIR };

    /// A call that needs a person's word, and somebody who may give it.
    pub const ASK: Self = Self { asks: 1, approvers: 1, deadlines: 1, turns: 3, ..Self::PAIR };

    /// Inputs that wait while the whole tree is cancelled.
    pub const QUEUE: Self = Self { sends: 3, tree_cancels: 1, turns: 3, ..Self::PAIR };

    /// A child in which a person opens runs of their own, and which is closed.
    pub const PERSON: Self = Self { resumes: 1, continues: 1, closes: 1, ..Self::PAIR };

    /// Branches of a root that a person makes and writes into, answers given anew, and a crash.
    pub const BRANCH: Self =
        Self { children: 0, sends: 2, branches: 1, regenerates: 1, resumes: 1, crashes: 1, turns: 2, ..Self::PAIR };

    /// Runs of a root that were cancelled or lost and are rolled back, with what is said and branched off afterwards.
    pub const ROLLBACK: Self =
        Self { children: 0, sends: 2, branches: 1, cancels: 1, rollbacks: 2, crashes: 1, turns: 2, ..Self::PAIR };

    /// Services of the host for a root, whose answers may come late and twice, a cancel of the whole tree and a crash.
    pub const SERVICE: Self =
        Self { children: 0, services: 2, doubles: 1, tree_cancels: 1, closes: 1, crashes: 1, turns: 2, ..Self::PAIR };

    /// Two children, side by side or one below the other.
    pub const MEDIUM: Self = Self { children: 2, depth: 2, tools: 0, crashes: 1, panics: 1, cancels: 1, ..Self::SMALL };

    /// Two children, and an interrupt of any session beside a crash and a cancel.
    pub const HELD: Self = Self { interrupts: 1, panics: 0, ..Self::MEDIUM };

    /// A child of two runs, cancels of all kinds, an interrupt and a crash.
    pub const CONTINUED: Self = Self { crashes: 1, cancels: 1, interrupts: 1, ..Self::STOP };

    /// A call that needs a person's word, in a child or in the root, through a crash, a panic and a cancel.
    pub const ASKING: Self = Self { crashes: 1, panics: 1, cancels: 1, ..Self::ASK };

    /// Inputs to the root and to its child, a cancel of the whole tree, a close and a crash.
    pub const QUEUEING: Self = Self { sends: 2, continues: 0, tree_cancels: 1, crashes: 1, ..Self::PERSON };

    /// Branches and answers given anew, a cancel of the whole tree and a crash.
    pub const BRANCHING: Self = Self { tree_cancels: 1, ..Self::BRANCH };

    /// Everything once, crashes twice: minutes.
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

    /// Those that are checked to their ends, by name.
    pub const NAMED: [(&'static str, Self); 10] = [
        ("small", Self::SMALL),
        ("medium", Self::MEDIUM),
        ("held", Self::HELD),
        ("continued", Self::CONTINUED),
        ("asking", Self::ASKING),
        ("queueing", Self::QUEUEING),
        ("branching", Self::BRANCHING),
        ("serving", Self::SERVICE),
        ("rolling_back", Self::ROLLBACK),
        ("large", Self::LARGE),
    ];
}
