//! What handles use of the rooms below them.

use std::sync::Arc;

use crate::calls::model_calls::ModelCalls;
use crate::cell::cells::Cells;
use crate::delivery::waiters::Waiters;
use crate::host::Host;
use crate::life::Life;
use crate::log::Log;
use crate::recovery::takeover::Takeover;
use crate::services::running::Services;
use crate::spawn::agents::Agents;

/// The sessions of a runtime, as handles reach them: commands go to cells, all else is read.
pub(crate) struct Sessions {
    pub(crate) cells: Arc<Cells>,
    pub(crate) agents: Arc<Agents>,
    /// Windows and routes of models, to show.
    pub(crate) calls: Arc<ModelCalls>,
    pub(crate) log: Arc<Log>,
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) takeover: Arc<Takeover>,
    pub(crate) services: Arc<Services>,
    pub(crate) life: Arc<Life>,
    pub(crate) host: Arc<Host>,
}
