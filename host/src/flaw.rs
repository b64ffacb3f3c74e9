//! Bugs of the host that drills and the simulator must notice. A build without the feature has no such bug.

/// A bug of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// An event stream begins again from the first event, whatever its client has.
    NoResume,
    /// Idempotency keys are ignored.
    NoKey,
    /// A completion counts by any lease that the call had.
    OldLease,
}

/// The bug of a host, if any.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flawed {
    #[cfg(feature = "sabotage")]
    flaw: Option<Flaw>,
}

impl Flawed {
    /// Puts a bug in.
    #[cfg(feature = "sabotage")]
    pub fn with(flaw: Flaw) -> Self {
        Self { flaw: Some(flaw) }
    }

    /// Returns the bug named by comma-separated `text`: `no-resume`, `no-key` or `old-lease`. Other words are ignored.
    #[cfg(feature = "sabotage")]
    pub fn named(text: &str) -> Self {
        let flaw = text.split(',').find_map(|word| match word.trim() {
            "no-resume" => Some(Flaw::NoResume),
            "no-key" => Some(Flaw::NoKey),
            "old-lease" => Some(Flaw::OldLease),
            _ => None,
        });
        Self { flaw }
    }

    /// Without the feature there is no bug.
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
