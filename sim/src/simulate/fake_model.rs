//! A model that answers, fails, hangs and panics at random.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use subtend_models::model::{Answer, Delta, Deltas, Model, ModelError, Request};
use subtend_session::message::Message;
use subtend_session::outcome::ModelFail;
use subtend_session::record::{Stop, ToolCall};
use subtend_session::usage::Usage;

use crate::simulate::fake_catalog::is_service;
use crate::simulate::judge::secret;
use crate::simulate::oracle::Intent;
use crate::simulate::plan::{CallChoice, CallDuration, ModelBehaviour};
use crate::simulate::tally::FaultKind;
use crate::simulate::world::{RunningEffect, World, injected_panic};

pub(crate) struct FakeModel(pub(crate) Arc<World>);

impl Model for FakeModel {
    fn name(&self) -> &str {
        "fake"
    }

    fn leaves_process(&self) -> bool {
        self.0.swarm.tools_leave_process
    }

    fn context_window(&self) -> Option<u64> {
        self.0.plan.window()
    }

    fn call(&self, request: Request, deltas: Deltas) -> BoxFuture<'static, Result<Answer, ModelError>> {
        let world = Arc::clone(&self.0);
        world.step();
        let intent = Intent::Turn(request.turn, request.attempt);
        let leaves = world.swarm.tools_leave_process || world.swarm.durable_before_call;
        let at_work = world.oracle.lock().effect(request.session, intent, leaves);
        let at_work = RunningEffect::new(&world, at_work);
        let checks_tools = world.rng.one_in(8);
        world.oracle.lock().record_call(&request, checks_tools);
        let says = draw(&world, &request);
        let takes = world.draw_duration();
        world.oracle.mark(&format!("model {says:?}"));
        {
            let mut oracle = world.oracle.lock();
            oracle.trace(|| {
                format!("  {} turn {} {says:?} {takes:?}", oracle.session_number(request.session), request.turn)
            });
            if let Some(fault) = fault_of(says) {
                oracle.record_fault(fault);
            }
        }
        if says == ModelBehaviour::Panics && world.rng.one_in(2) {
            injected_panic();
        }
        let answer = answer(&world, &request, says);
        drop(request);
        Box::pin(async move {
            let _at_work = at_work;
            stream_answer(&world, &deltas, takes).await;
            match says {
                ModelBehaviour::Hangs => std::future::pending().await,
                ModelBehaviour::Panics => injected_panic(),
                ModelBehaviour::Text
                | ModelBehaviour::Calls
                | ModelBehaviour::Cut
                | ModelBehaviour::CutCalls
                | ModelBehaviour::Empty
                | ModelBehaviour::Refuses
                | ModelBehaviour::Fails => answer,
            }
        })
    }
}

fn fault_of(says: ModelBehaviour) -> Option<FaultKind> {
    match says {
        ModelBehaviour::Text | ModelBehaviour::Calls => None,
        ModelBehaviour::Cut
        | ModelBehaviour::CutCalls
        | ModelBehaviour::Empty
        | ModelBehaviour::Refuses
        | ModelBehaviour::Fails => Some(FaultKind::ModelFails),
        ModelBehaviour::Hangs => Some(FaultKind::ModelHangs),
        ModelBehaviour::Panics => Some(FaultKind::ModelPanic),
    }
}

/// Streams a long answer in pieces. Otherwise waits, sometimes after one first piece.
async fn stream_answer(world: &World, deltas: &Deltas, takes: CallDuration) {
    if takes == CallDuration::Long && world.rng.one_in(2) {
        for piece in 0..world.rng.between(1, 6) {
            tokio::time::sleep(Duration::from_millis(900)).await;
            deltas.send(Delta::Text(format!("piece {piece} ").into()));
        }
        return;
    }
    if world.rng.one_in(3) {
        deltas.send(Delta::Text("at once ".into()));
    }
    world.wait(takes).await;
}

fn draw(world: &World, request: &Request) -> ModelBehaviour {
    if world.is_calm() {
        return ModelBehaviour::Text;
    }
    let answer_count = request.messages.iter().filter(|message| matches!(message, Message::Assistant { .. })).count();
    // Ends the run after some answers: several short runs test more than one endless run.
    if answer_count > 24 || (answer_count > 6 && world.rng.one_in(2)) {
        return ModelBehaviour::Text;
    }
    let says = world.rng.pick_weighted(&world.swarm.behaviours).unwrap_or(ModelBehaviour::Text);
    // A service has no tools, but sometimes requests one anyway.
    if says == ModelBehaviour::Calls && is_service(&request.agent) && !world.rng.one_in(8) {
        ModelBehaviour::Text
    } else {
        says
    }
}

fn answer(world: &World, request: &Request, says: ModelBehaviour) -> Result<Answer, ModelError> {
    // The texts of people's runs must stay in their session, so they are marked. Other answers also reach the owners.
    let own = world.oracle.lock().is_persons((request.session, request.turn, request.attempt));
    let own = if own { secret(request.session) } else { String::new() };
    let text = || Some(format!("answer {} of turn {} {own}", world.rng.below(1000), request.turn).into());
    let usage = Usage { input: world.rng.below(1000), output: world.rng.below(100), ..Usage::default() };
    let answer = |text, calls, stop| Answer { text, reasoning: None, calls, stop, model: None, usage };
    match says {
        ModelBehaviour::Text | ModelBehaviour::Hangs | ModelBehaviour::Panics => {
            Ok(answer(text(), Vec::new(), Stop::End))
        }
        ModelBehaviour::Calls => {
            let calls = calls(world, request);
            Ok(answer(text().filter(|_| world.rng.one_in(2)), calls, Stop::Calls))
        }
        ModelBehaviour::Cut => Ok(answer(text(), Vec::new(), Stop::Length)),
        ModelBehaviour::CutCalls => Ok(answer(None, calls(world, request), Stop::Length)),
        ModelBehaviour::Empty => Ok(answer(None, Vec::new(), Stop::End)),
        ModelBehaviour::Refuses => Ok(answer(None, Vec::new(), Stop::Refused)),
        ModelBehaviour::Fails => Err(failure(world, &own)),
    }
}

fn failure(world: &World, own: &str) -> ModelError {
    let kinds = [
        ModelFail::Rate,
        ModelFail::Unavailable,
        ModelFail::Unavailable,
        ModelFail::BadAnswer,
        ModelFail::Auth,
        ModelFail::Credit,
        ModelFail::Access,
        ModelFail::ContextOverflow,
        ModelFail::InvalidRequest,
    ];
    let kind = world.rng.pick(&kinds).unwrap_or(ModelFail::Unavailable);
    let retry_after_ms = world.rng.pick(&[None, None, Some(5), Some(1_500), Some(90_000)]).flatten();
    ModelError { retry_after_ms, ..ModelError::new(kind, format!("drawn {own}")) }
}

fn calls(world: &World, request: &Request) -> Vec<ToolCall> {
    let many = world.rng.pick(&[1, 1, 2, 3, 5, 9]).unwrap_or(1);
    (0..many).filter_map(|ix| call(world, request, ix)).collect()
}

fn call(world: &World, request: &Request, ix: u32) -> Option<ToolCall> {
    let asks = world.rng.pick_weighted(&world.swarm.calls)?;
    world.oracle.mark(&format!("asks {asks:?}"));
    if matches!(asks, CallChoice::Unknown | CallChoice::Garbage) {
        world.oracle.lock().record_fault(FaultKind::ModelGarbage);
    }
    let back = world.rng.one_in(2);
    let (tool, args): (&str, Value) = match asks {
        CallChoice::Task => ("task", task(world, false)),
        CallChoice::Background => ("task", task(world, true)),
        CallChoice::Read => ("read", json!({})),
        CallChoice::Write => ("write", json!({})),
        CallChoice::Keep => ("keep", json!({})),
        CallChoice::Slow => ("slow", json!({})),
        CallChoice::Stubborn => ("stubborn", json!({})),
        CallChoice::Broken => ("broken", json!({})),
        CallChoice::Guarded => ("guarded", json!({})),
        CallChoice::Unknown => ("nonesuch", json!({})),
        CallChoice::Garbage => ("read", json!({"nonesuch": 1})),
        CallChoice::Continue => {
            ("task", json!({"session_id": own_task(world, request), "prompt": "again", "background": back}))
        }
        CallChoice::Check => ("check_task", json!({"taskId": own_task(world, request), "wait": back})),
        CallChoice::Message => ("message", json!({"to": relative(world, request), "text": "read it there"})),
        CallChoice::Cancel => ("cancel_task", json!({"taskId": own_task(world, request)})),
    };
    Some(ToolCall { provider_id: format!("c{ix}").into(), tool: tool.into(), args: args.to_string().into() })
}

/// Returns the id of one of the caller's own tasks, or an unknown id.
fn own_task(world: &World, request: &Request) -> String {
    let children = world.oracle.lock().children.get(&request.session).cloned().unwrap_or_default();
    world.rng.pick(&children).map_or_else(|| "nonesuch".to_owned(), |short| short.to_string())
}

/// Returns the name of the parent or the id of one of the caller's tasks or siblings, or an unknown id.
fn relative(world: &World, request: &Request) -> String {
    if world.rng.one_in(3) {
        return "parent".to_owned();
    }
    let siblings = {
        let oracle = world.oracle.lock();
        let parent = oracle.archive.state(request.session).and_then(|state| state.created.place.parent());
        parent.and_then(|parent| oracle.children.get(&parent).cloned()).unwrap_or_default()
    };
    match world.rng.pick(&siblings) {
        Some(short) if world.rng.one_in(2) => short.to_string(),
        _ => own_task(world, request),
    }
}

fn task(world: &World, background: bool) -> Value {
    let agent = world.rng.pick(&["worker", "worker", "reader"]).unwrap_or("worker");
    json!({"subagent_type": agent, "prompt": format!("part {}", world.rng.below(1000)), "background": background})
}

/// Panics in a turn task, outside of its model.
pub(crate) fn panic_in_turn_task(world: &World) {
    if world.draw_fault(world.swarm.task_panics, FaultKind::TaskPanic) {
        injected_panic();
    }
}
