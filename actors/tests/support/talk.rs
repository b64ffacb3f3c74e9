//! Conversations in a dialect, with the requests of the root's model.

use super::{answers, ask, builder, journal, model, prompt, text, tool, tools};
use crate::support::*;

/// Returns a builder whose sessions are offered `offered`, with the tools `lookup` and `write`.
pub fn offering(journal: &Journal, offered: &[Dialect]) -> Builder {
    let dialects = Dialects { offered: offered.to_vec(), ..Dialects::default() };
    let noop = |name: &str| tool(name, ToolEffect::ReadOnly, |_| async { Ok(ToolOutput::text("looked")) });
    builder(journal).dialects(dialects).tools(tools([noop("lookup"), noop("write")]))
}

pub fn notices(request: &Request) -> Vec<String> {
    let notice = |message: &Message| match message {
        Message::Notice { text, .. } => Some(text.to_string()),
        _ => None,
    };
    request.messages.iter().filter_map(notice).collect()
}

pub fn parsed(text: &str) -> Value {
    serde_json::from_str(text).expect("an object")
}

/// Time that a child takes if its prompt starts with `slow`.
pub const SLOW: Duration = Duration::from_secs(45);

/// Runs a conversation: `root` answers the person's session, `child` all others. Returns the root's last request.
pub async fn converse<R, C>(offers: &[Dialect], root: R, child: C) -> (Journal, Runtime, SessionHandle, Request)
where
    R: Fn(&Request, usize) -> Answer + Send + Sync + 'static,
    C: Fn(&Request, usize) -> Result<Answer, ModelError> + Send + Sync + 'static,
{
    let journal = journal();
    let builder = offering(&journal, offers);
    let (runtime, session, last) = converse_in(builder, root, child).await;
    (journal, runtime, session, last)
}

pub async fn converse_in<R, C>(builder: Builder, root: R, child: C) -> (Runtime, SessionHandle, Request)
where
    R: Fn(&Request, usize) -> Answer + Send + Sync + 'static,
    C: Fn(&Request, usize) -> Result<Answer, ModelError> + Send + Sync + 'static,
{
    let last = Arc::new(Mutex::new(None));
    let seen = Arc::clone(&last);
    let answering = model(move |request| {
        let at = answers(&request);
        let slow = prompt(&request).starts_with("slow");
        let answer = if prompt(&request) == "go" {
            *seen.lock().unwrap() = Some(request.clone());
            Ok(root(&request, at))
        } else {
            child(&request, at)
        };
        async move {
            if slow {
                tokio::time::sleep(SLOW).await;
            }
            answer
        }
    });
    let runtime = builder.model(answering).start().await.expect("the runtime starts");
    let (session, ended) = ask(&runtime, "go").await;
    assert_eq!(ended.outcome, Outcome::Completed);
    let last = last.lock().unwrap().take().expect("a model call of the root");
    (runtime, session, last)
}

/// Fails for `bad`, and answers everything else with `found`.
pub fn found(request: &Request, _: usize) -> Result<Answer, ModelError> {
    match &*prompt(request) {
        "bad" => Err(ModelError::new(ModelFail::InvalidRequest, "no")),
        other => Ok(text(&format!("{other} found"))),
    }
}
