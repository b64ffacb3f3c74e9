//! Creation records of service sessions.

use std::sync::Arc;

use subtend_session::ids::Interned;
use subtend_session::limits::{Limits, Parking};
use subtend_session::place::{BranchKind, OnRestart};
use subtend_session::record::SessionCreated;
use subtend_session::state::State;

use crate::services::running::ServiceKind;
use crate::spawn::agents::Agents;
use crate::values::error::ControlError;

/// The creation record of a service session, without the fields that `decide` sets.
pub(crate) struct NewService {
    pub(crate) what: ServiceKind,
    pub(crate) created: SessionCreated,
}

impl NewService {
    /// Returns the creation record of the service `what` for the session of `state`.
    pub(crate) fn of(agents: &Agents, state: &State, what: ServiceKind) -> Result<Self, ControlError> {
        if let Some(why) = &agents.unusable {
            // Otherwise each request would store a session that can never answer.
            return Err(ControlError::Refused(why.to_string()));
        }
        let (mut created, _) = agents.branch_spec(state, Some(&what.agent().into()), BranchKind::Service)?;
        // A custom agent for the service gets no tools.
        (created.tools, created.dialects) = (Some(Vec::new()), Vec::new());
        created.limits = cap_limits(state, &created.limits, what).map_err(not_serialized)?;
        created.inspectable = false;
        // After a restart no caller would receive the answer.
        created.on_restart = OnRestart::Fail;
        Ok(Self { what, created })
    }
}

/// Returns the limits of a service. It does not park at a provider's limit: the run that waits for it does.
fn cap_limits(
    state: &State,
    limits: &Interned<Limits>,
    what: ServiceKind,
) -> Result<Interned<Limits>, serde_json::Error> {
    let mut limits = limits.body.as_deref().unwrap_or(&state.limits).clone();
    limits.wall_ms = Some(limits.wall_ms.map_or(what.cap_ms(), |ms| ms.min(what.cap_ms())));
    limits.park = Parking::Off;
    Interned::new(Arc::new(limits))
}

fn not_serialized(error: serde_json::Error) -> ControlError {
    ControlError::Refused(format!("the limits of the service cannot be recorded: {error}"))
}
