//! The sender of inputs, so that senders share the memory of a runtime.

tokio::task_local! {
    static SENDER: SenderKey;
}

/// A sender of inputs, as a host names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct SenderKey(pub(crate) u64);

impl SenderKey {
    /// The sender of what a session got before it was loaded.
    pub(crate) const UNKNOWN: Self = Self(0);
    /// The process of the runtime itself.
    const OWN: Self = Self(1);

    /// Returns the sender for which this task works.
    pub(crate) fn current() -> Self {
        SENDER.try_with(|sender| *sender).unwrap_or(Self::OWN)
    }
}

/// Runs `act`. The inputs that it sends count as those of `sender`, or as the embedder's own: see
/// [`Options::working_text`](crate::Options::working_text).
pub fn run_for_sender<T>(sender: Option<u64>, act: impl Future<Output = T>) -> impl Future<Output = T> {
    SENDER.scope(sender.map_or(SenderKey::OWN, SenderKey), act)
}
