//! Injectable bugs of the host, which drills and the simulator must detect. They exist only with the feature `sabotage`.

/// An injectable bug of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// Event streams always start at the first event.
    NoResume,
    /// Idempotency keys are ignored.
    NoKey,
    /// A stream of a session begins with what is recorded after it was opened, whatever its client has.
    LateJoin,
    /// A completion with an expired lease is accepted.
    OldLease,
}

/// The injected bug of a host, if any.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flawed {
    #[cfg(feature = "sabotage")]
    flaw: Option<Flaw>,
}

impl Flawed {
    /// Injects a bug.
    #[cfg(feature = "sabotage")]
    pub fn with(flaw: Flaw) -> Self {
        Self { flaw: Some(flaw) }
    }

    /// Injects the bug named in a comma-separated list: `no-resume`, `no-key`, `late-join` or `old-lease`. Other words are ignored.
    #[cfg(feature = "sabotage")]
    pub fn named(text: &str) -> Self {
        let flaw = text.split(',').find_map(|word| match word.trim() {
            "no-resume" => Some(Flaw::NoResume),
            "no-key" => Some(Flaw::NoKey),
            "late-join" => Some(Flaw::LateJoin),
            "old-lease" => Some(Flaw::OldLease),
            _ => None,
        });
        Self { flaw }
    }

    /// Injects nothing: this build lacks the feature `sabotage`.
    #[cfg(not(feature = "sabotage"))]
    pub fn named(_words: &str) -> Self {
        Self::default()
    }

    #[cfg(feature = "sabotage")]
    pub(crate) fn has(self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    #[cfg(not(feature = "sabotage"))]
    #[expect(clippy::unused_self, reason = "as with the feature")]
    pub(crate) fn has(self, _: Flaw) -> bool {
        false
    }
}
