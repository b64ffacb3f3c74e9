//! How large a model is: what may happen in it, and how often.

/// Bounds of a model. All that is bounded is counted down in its states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size {
    /// Children, in all.
    pub children: u8,
    /// Subagent edges from the root.
    pub depth: u8,
    /// Calls of local tools, in all.
    pub tools: u8,
    /// Inputs by a person.
    pub sends: u8,
    /// Crashes of the process.
    pub crashes: u8,
    /// Panics of session actors.
    pub panics: u8,
    /// Panics between the append of a batch and its effects.
    pub half_panics: u8,
    /// Cancels by a person, of any session.
    pub cancels: u8,
    /// Interrupts by a person, of any session.
    pub interrupts: u8,
    /// Working-time limits that pass.
    pub deadlines: u8,
    /// Model attempts that fail.
    pub failures: u8,
    /// Slots.
    pub slots: u8,
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
        sends: 1,
        crashes: 1,
        panics: 0,
        half_panics: 0,
        cancels: 1,
        interrupts: 0,
        deadlines: 0,
        failures: 0,
        slots: 1,
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

    /// Two children, side by side or one below the other.
    pub const MEDIUM: Self = Self {
        children: 2,
        depth: 2,
        tools: 0,
        sends: 1,
        crashes: 1,
        panics: 1,
        half_panics: 0,
        cancels: 1,
        interrupts: 0,
        deadlines: 0,
        failures: 0,
        slots: 1,
        turns: 3,
        child_turns: 2,
    };

    /// Two children, and an interrupt of any session beside a crash and a cancel.
    pub const HELD: Self = Self { interrupts: 1, panics: 0, ..Self::MEDIUM };

    /// Everything once, crashes twice: minutes.
    pub const LARGE: Self = Self {
        children: 2,
        depth: 2,
        tools: 1,
        sends: 2,
        crashes: 2,
        panics: 1,
        half_panics: 0,
        cancels: 1,
        interrupts: 1,
        deadlines: 1,
        failures: 1,
        slots: 1,
        turns: 3,
        child_turns: 3,
    };
}
