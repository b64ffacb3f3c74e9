//! The audit: one entry for each decision, in order, with the deciding party.

use crate::support::*;
use subtend_actors::{Decided, DecidedBy, Decision};

fn access(resource: &str) -> Access {
    Access { action: "use".into(), resource: resource.into() }
}

fn using() -> FnTool {
    let using = tool("use", ToolEffect::SideEffect, |call| async move {
        if call.args["on"] == "inner" { Err(ToolError::denied("not in there")) } else { Ok(ToolOutput::text("used")) }
    });
    using.access(|args| vec![access(args.and_then(|args| args["on"].as_str()).unwrap_or("*"))])
}

fn policy() -> RuleSet {
    let rule = |resource: &str, verdict| Rule { action: "use".into(), resource: resource.into(), verdict };
    RuleSet { default: Verdict::Allow, rules: vec![rule("never", Verdict::Deny), rule("ask*", Verdict::Ask)] }
}

/// `(call, access, verdict, by, why)` of a decision.
type AuditRow = (u32, Option<Access>, Decided, DecidedBy, bool);

fn seen(decisions: &[Decision]) -> Vec<AuditRow> {
    assert!(decisions.is_sorted_by_key(|at| at.seq) && decisions.iter().all(|at| &*at.tool == "use"), "{decisions:?}");
    decisions.iter().map(|at| (at.call.turn.0, at.access.clone(), at.verdict, at.by, at.why.is_some())).collect()
}

#[tokio::test(start_paused = true)]
async fn every_decision_is_listed_once_with_its_source() {
    let uses = ["open", "never", "ask a", "ask a", "ask b", "inner", "ask c"];
    let answering = model(move |request| async move {
        Ok(uses.get(answers(&request)).map_or_else(|| text("done"), |on| calls([("use", json!({"on": on}))])))
    });
    let runtime = started(builder(&journal()).policy(policy()).tools(tools([using()])).model(answering)).await;
    let mut approver = runtime.approver();
    let (session, _) = sent(&runtime, "go").await;
    for verdict in [AskVerdict::Always, AskVerdict::Deny] {
        let approval = approver.next().await;
        approver.answer(&approval, verdict).await.expect("answered");
    }
    let last = approver.next().await;
    assert_eq!(last.call, CallId { turn: TurnNo(7), ix: 0 });
    session.cancel().await.expect("cancelled");
    session.run_ended(RunNo(1)).await.expect("the run ends");
    let (allowed, denied) = (Decided::Allowed, Decided::Denied);
    let expected: [AuditRow; 8] = [
        (1, Some(access("open")), allowed, DecidedBy::Rules, false),
        (2, None, denied, DecidedBy::Rules, true),
        (3, Some(access("ask a")), allowed, DecidedBy::Asked(AnsweredBy::Person), false),
        (4, Some(access("ask a")), allowed, DecidedBy::Always, false),
        (5, Some(access("ask b")), denied, DecidedBy::Asked(AnsweredBy::Person), false),
        (6, Some(access("inner")), allowed, DecidedBy::Rules, false),
        (6, None, denied, DecidedBy::Rules, true),
        (7, Some(access("ask c")), denied, DecidedBy::Asked(AnsweredBy::Closed), false),
    ];
    assert_eq!(seen(&session.audit().await.expect("an audit")), expected);
    drop(approver);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn audit_lists_denials_by_hooks_and_missing_approvers() {
    struct No;
    impl Hooks for No {
        fn before_tool(&self, call: ToolAsked) -> futures_util::future::BoxFuture<'_, BeforeTool> {
            Box::pin(async move { BeforeTool::Deny(call.tool.to_string()) })
        }
    }
    let uses = ["ask a", "open"];
    let answering = model(move |request| async move {
        Ok(uses.get(answers(&request)).map_or_else(|| text("done"), |on| calls([("use", json!({"on": on}))])))
    });
    let builder = builder(&journal()).policy(policy()).tools(tools([using()])).hooks(std::sync::Arc::new(No));
    let runtime = builder.model(answering).start().await.expect("the runtime starts");
    let (session, _) = sent(&runtime, "go").await;
    session.run_ended(RunNo(1)).await.expect("the run ends");
    let expected: [AuditRow; 3] = [
        (1, Some(access("ask a")), Decided::Denied, DecidedBy::Asked(AnsweredBy::NoApprover), false),
        (2, Some(access("open")), Decided::Allowed, DecidedBy::Rules, false),
        (2, None, Decided::Denied, DecidedBy::Rules, true),
    ];
    assert_eq!(seen(&session.audit().await.expect("an audit")), expected);
    shut(runtime).await;
}
