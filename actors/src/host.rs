//! What the host gave that several rooms use, with the clock and the ids of its runtime.

use std::sync::Arc;

use crate::clock::{Clock, IdGenerator};
use crate::faults::Faults;
use crate::hooks::Hooks;
use crate::values::options::Options;

/// What the host gave, and what makes times and ids for it. It never changes.
pub(crate) struct Host {
    pub(crate) options: Options,
    /// A host's own code at the points where a session's course can be changed.
    pub(crate) hooks: Option<Arc<dyn Hooks>>,
    pub(crate) faults: Faults,
    pub(crate) clock: Clock,
    pub(crate) ids: IdGenerator,
}
