use std::sync::Arc;

use subtend_session::state::State;
use tokio::sync::Semaphore;

use crate::cell::cells::Cells;
use crate::delivery::waiters::Waiters;
use crate::host::HostParts;
use crate::life::Lifecycle;
use crate::log::Log;
use crate::recovery::takeover::Takeover;
use crate::services::running::Services;
use crate::spawn::agents::Agents;
use crate::spawn::environments::Environments;
use crate::values::error::ControlError;

/// Access to the sessions of a runtime for handles: commands go to cells, everything else is read.
pub(crate) struct SessionServices {
    pub(crate) cells: Arc<Cells>,
    pub(crate) environments: Arc<Environments>,
    pub(crate) log: Arc<Log>,
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) takeover: Arc<Takeover>,
    pub(crate) services: Arc<Services>,
    pub(crate) life: Arc<Lifecycle>,
    pub(crate) host: Arc<HostParts>,
    /// Permits to plan and perform restores.
    pub(crate) restores: Arc<Semaphore>,
    /// Permits to change worktrees, or to commit their changes.
    pub(crate) worktree_work: Arc<Semaphore>,
}

/// Maximum number of concurrent commands of one kind that occupy threads for blocking work.
const CONCURRENT_COMMANDS: usize = 4;

pub(crate) fn command_permits() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(CONCURRENT_COMMANDS))
}

impl SessionServices {
    pub(crate) fn usable(&self, state: &State) -> Result<Arc<Agents>, ControlError> {
        let agents = self.environments.of(state);
        match &agents.unusable {
            Some(why) => Err(ControlError::Refused(why.to_string())),
            None => Ok(agents),
        }
    }
}
