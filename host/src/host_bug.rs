//! Injectable bugs of the host, which drills and the simulator must detect. They exist only with the feature `sabotage`.

/// An injectable bug of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostBug {
    /// Event streams always start at the first event.
    NoResume,
    /// Idempotency keys are ignored.
    NoKey,
    /// A stream of a session begins with the records after its opening, regardless of the client's position.
    LateJoin,
    /// Completions with an expired lease are accepted.
    OldLease,
}

/// The injected bug of a host, if any.
#[derive(Clone, Copy, Debug, Default)]
pub struct InjectedBug {
    #[cfg(feature = "sabotage")]
    host_bug: Option<HostBug>,
}

impl InjectedBug {
    /// Injects a bug.
    #[cfg(feature = "sabotage")]
    pub fn with(host_bug: HostBug) -> Self {
        Self { host_bug: Some(host_bug) }
    }

    /// Injects the first bug that a comma-separated list names: `no-resume`, `no-key`, `late-join` or `old-lease`.
    /// Ignores other words.
    #[cfg(feature = "sabotage")]
    pub fn parse(text: &str) -> Self {
        let host_bug = text.split(',').find_map(|word| match word.trim() {
            "no-resume" => Some(HostBug::NoResume),
            "no-key" => Some(HostBug::NoKey),
            "late-join" => Some(HostBug::LateJoin),
            "old-lease" => Some(HostBug::OldLease),
            _ => None,
        });
        Self { host_bug }
    }

    /// Injects nothing: this build lacks the feature `sabotage`.
    #[cfg(not(feature = "sabotage"))]
    pub fn parse(_words: &str) -> Self {
        Self::default()
    }

    #[cfg(feature = "sabotage")]
    pub(crate) fn has(self, host_bug: HostBug) -> bool {
        self.host_bug == Some(host_bug)
    }

    #[cfg(not(feature = "sabotage"))]
    #[expect(clippy::unused_self, reason = "as with the feature")]
    pub(crate) fn has(self, _: HostBug) -> bool {
        false
    }
}
