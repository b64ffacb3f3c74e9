use std::sync::Arc;

use crate::clock::{Clock, IdGenerator};
use crate::faults::Faults;
use crate::hooks::Hooks;
use crate::values::options::Options;

/// The inputs of the host, its clock and its ids. They do not change after the start.
pub(crate) struct HostParts {
    pub(crate) options: Options,
    pub(crate) hooks: Option<Arc<dyn Hooks>>,
    pub(crate) faults: Faults,
    pub(crate) clock: Clock,
    pub(crate) ids: IdGenerator,
}
