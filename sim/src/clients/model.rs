//! The fake model. It answers `tree` by starting children, never answers `hang`, and answers anything else after a delay.

use std::time::Duration;

use subtend_models::closure::fn_model;
use subtend_models::model::{Answer, Model, Request};
use subtend_session::message::Message;
use subtend_session::record::ToolCall;

use super::Dice;

pub(super) fn model(dice: &Dice) -> impl Model {
    let dice = dice.clone();
    fn_model("clients", move |request: Request, _| {
        let nap = Duration::from_millis(dice.below(30));
        let answer = answer(&request);
        async move {
            tokio::time::sleep(nap).await;
            match answer {
                Some(answer) => Ok(answer),
                None => std::future::pending().await,
            }
        }
    })
}

fn answer(request: &Request) -> Option<Answer> {
    let Some(Message::User { text, .. }) = request.messages.iter().last() else { return Some(Answer::of_text("done")) };
    if text.contains("hang") {
        return None;
    }
    if !text.contains("tree") {
        return Some(Answer::of_text("answered"));
    }
    let args = serde_json::json!({"subagent_type": "explore", "prompt": "read"}).to_string();
    let call = ToolCall { provider_id: "c".into(), tool: "task".into(), args: args.into() };
    Some(Answer::of_calls(None, vec![call.clone(), call]))
}
