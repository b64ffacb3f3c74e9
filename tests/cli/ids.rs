//! Every verb that takes a session also takes the id of a task.

use std::collections::BTreeSet;

use super::call::User;

/// Every verb that takes a session, with its other arguments; `ID` is replaced. Destructive verbs come last.
const VERBS: [&str; 27] = [
    "show ID",
    "tree ID",
    "usage ID",
    "queue ID",
    "approvals ID",
    "metadata ID colour=red",
    "export ID",
    "chat ID --model MODEL",
    "send ID hi --model MODEL",
    "continue ID --model MODEL",
    "regenerate ID --model MODEL",
    "switch ID next",
    "branch ID",
    "rollback ID",
    "condense ID --model MODEL",
    "summary ID --model MODEL",
    "worktree diff ID",
    "worktree merge ID --yes",
    "worktree discard ID --yes",
    "worktree keep ID",
    "queue ID clear",
    "interrupt ID",
    "cancel ID",
    "close ID",
    "tasks --parent ID",
    "delete ID",
    "delete ID --yes",
];

const HOSTED: [&str; 2] = ["attach ID", "agents reload ID"];

/// Returns the verbs that take a session or a message, as listed in the reference.
fn documented_verbs() -> BTreeSet<String> {
    let (mut verb, mut found) = (String::new(), BTreeSet::new());
    for line in include_str!("../../docs/cli.md").lines() {
        if let Some(name) = line.strip_prefix("## ").or_else(|| line.strip_prefix("### subtend ")) {
            verb = name.to_owned();
        }
        let takes = line.strip_prefix("- `").and_then(|rest| rest.split_once("`: "));
        let is_session =
            |description: &str| description.contains("an id, the start of") || description.contains("SESSION:RECORD");
        if takes.is_some_and(|(_, description)| is_session(description) || description.contains("its id, the start of"))
        {
            found.insert(verb.clone());
        }
    }
    found
}

#[test]
fn r1_session_verbs_accept_the_id_of_a_task() {
    let user = User::new();
    let model = user.script(
        r#"{ "rules": [
            { "agent": "general", "steps": [
                { "calls": [ { "tool": "task", "args": { "subagent_type": "explore", "prompt": "Look." } } ] },
                { "text": "done" } ] },
            { "agent": "*", "steps": [ { "text": "found", "repeat": true } ] } ] }"#,
    );
    assert_eq!(user.call(&["run", "--quiet", "--model", &model, "go"]).code, Some(0));
    let task = user.json(&["tasks", "--json"])[0]["id"].as_str().expect("an id").to_owned();
    let unknown = format!("task_{}", "0".repeat(task.len() - 5));
    let call = |verb: &str, id: &str| {
        let args = verb.split(' ').map(|word| word.replace("ID", id).replace("MODEL", &model));
        user.call(&args.collect::<Vec<_>>().iter().map(String::as_str).collect::<Vec<_>>())
    };
    let takes = |verb: &str| {
        let (known, missing) = (call(verb, &task), call(verb, &unknown));
        let expected = format!("no session matches `{unknown}`");
        assert!(missing.code != Some(0) && missing.err.contains(&expected), "`{verb}`: {missing:?}");
        assert!(!known.err.contains("no session matches"), "`{verb}`: {known:?}");
    };
    let host = user.start(&["serve", "--json", "--listen", "none", "--model", &model]);
    host.line().expect("it listens");
    HOSTED.into_iter().for_each(takes);
    host.stops();
    VERBS.into_iter().for_each(takes);
    let tried =
        VERBS.into_iter().chain(HOSTED).map(|verb| verb.split(['-', 'I']).next().expect("a verb").trim().to_owned());
    let tried: BTreeSet<_> = tried.collect();
    let left: Vec<_> = documented_verbs().into_iter().filter(|verb| !tried.contains(verb)).collect();
    assert_eq!(left, Vec::<String>::new(), "these verbs take a session and are not tested");
}
