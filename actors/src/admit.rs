//! Admission of spawns: registry, ledger and ids answer for child calls before the session decides.

use std::sync::Arc;

use subtend_session::call::ToolErrorKind;
use subtend_session::command::{ChildPlan, Command, Refusal, SpawnVerdict};
use subtend_session::ids::{CallId, RunKey, RunNo, TurnNo};
use subtend_session::place::OnRestart;
use subtend_session::record::SpawnGranted;
use subtend_session::state::State;
use subtend_supervision::SpawnGrants;
use subtend_tools::dialect::task;

use crate::hub::Hub;
use crate::offer::Offer;

impl Hub {
    /// Answers for `calls` of one answer, as the value that `decide(Spawn)` takes.
    ///
    /// The ledger's grants come with it: those of births are to be kept, since a spawn that the decision refuses uses up
    /// nothing. A crash before it is durable is mended by the recount at boot.
    pub(crate) fn admit(
        &self,
        state: &State,
        offer: &Offer,
        turn: TurnNo,
        calls: &[u32],
    ) -> (Command, SpawnGrants<RunKey>) {
        let root = self.root_run(state);
        let wanted = u32::try_from(calls.len()).unwrap_or(u32::MAX);
        let grants = self.ledger.reserve_spawns(root, wanted, state.limits.spawns);
        let (granted, left) = (grants.granted(), grants.remaining());
        let mut used: u32 = 0;
        let verdicts = calls
            .iter()
            .map(|ix| {
                let call = CallId { turn, ix: *ix };
                let verdict = if used < granted {
                    let left = left.saturating_add(granted.saturating_sub(used).saturating_sub(1));
                    self.plan(state, offer, call, left).inspect(|_| used = used.saturating_add(1))
                } else {
                    Err(over_limit(state.limits.spawns))
                };
                SpawnVerdict { call, verdict }
            })
            .collect();
        (Command::Spawn { turn, verdicts }, grants)
    }

    /// The root run above the run in flight: whose account its spawns go to.
    fn root_run(&self, state: &State) -> RunKey {
        let run = state.run.as_ref().map_or(RunNo(0), |run| run.no);
        let key = RunKey { session: state.id, run };
        self.tokens.root(&key).unwrap_or(key)
    }

    fn plan(&self, state: &State, offer: &Offer, call: CallId, left: u32) -> Result<Box<ChildPlan>, Refusal> {
        let missing = || Refusal {
            kind: ToolErrorKind::Failed,
            message: "the call is not there any more; call again if it is still needed".into(),
        };
        let ix = usize::try_from(call.ix).unwrap_or(usize::MAX);
        let asked = state.run.as_ref().and_then(|run| run.turn.as_ref()).and_then(|turn| turn.calls.get(ix));
        let asked = asked.ok_or_else(missing)?;
        let request = task::parse(&asked.args, &offer.agents)
            .map_err(|error| Refusal { kind: error.kind, message: error.message.into() })?;
        let template = self
            .template(&request.agent, &state.created.model)
            .map_err(|error| Refusal { kind: ToolErrorKind::NotFound, message: error.to_string().into() })?;
        let child = self.mint.session();
        let mut created = template.created.clone();
        created.limits = state.created.limits.clone();
        created.limits.body = Some(Arc::clone(&state.limits));
        created.workspace = Arc::clone(&state.created.workspace);
        created.metadata = request.metadata;
        Ok(Box::new(ChildPlan {
            child,
            input: self.mint.input(),
            prompt: request.prompt,
            created,
            manifest: Arc::clone(&template.manifest),
            mode: request.mode,
            max_turns: template.turns,
            deadline_ms: state.limits.run_ms,
            on_restart: OnRestart::Fail,
            grant: SpawnGranted { spawns_left: left },
        }))
    }
}

fn over_limit(limit: u32) -> Refusal {
    Refusal {
        kind: ToolErrorKind::Limit,
        message: format!(
            "the limit of {limit} spawns of this tree is reached and 0 remain; finish with what the children found so far, \
             or do the rest yourself"
        )
        .into(),
    }
}
