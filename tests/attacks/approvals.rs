//! Scopes of approvals: an approval for one session does not apply elsewhere.

use super::scene::*;
use subtend_session::record::AskVerdict;

use crate::cli::call::User;
use crate::cli::terminal::{MODEL, TerminalSession};

fn asking() -> AttackScene {
    AttackScene::new().policy(Verdict::Allow, &[("fs.write", "*", Verdict::Ask)])
}

/// Runs `steps` while an approver gives `verdicts`; returns the session and its asks, by session and resource.
async fn approve_each(
    host: &RunningHost,
    steps: &[Value],
    verdicts: &[AskVerdict],
) -> (SessionId, Vec<(SessionId, String)>) {
    let session = host.runtime.open("worker").expect("a session");
    let mut approver = host.runtime.approver();
    let mut all = Vec::new();
    let run = host.continue_with(&session, steps);
    tokio::pin!(run);
    loop {
        tokio::select! {
            () = &mut run => return (session.id(), all),
            question = approver.next() => {
                let verdict = verdicts.get(all.len()).copied().unwrap_or(AskVerdict::Deny);
                all.push((question.session, question.resource.to_string()));
                approver.answer(&question, verdict).await.expect("an answer");
            }
        }
    }
}

/// A model that asks for a `y` in its text and requests a call meanwhile: what was typed before the question, without its
/// line end, does not answer it. The control: the same letter typed after it.
#[cfg(unix)]
#[test]
fn letters_typed_before_a_question_do_not_answer_it() {
    let attacks: [&str; 2] = ["run", "chat"];
    for command in attacks {
        for (before, after, is_written) in [("y", "\r", false), ("", "y\r", true)] {
            let user = User::new();
            let model = user.script(MODEL);
            let prompt: &[&str] = if command == "run" { &["please write"] } else { &[] };
            let args = [&[command, "--model", &model, "--ask", "fs.write"], prompt].concat();
            let mut session = TerminalSession::at_terminal(&user, &args);
            if command == "chat" {
                session.until("/help lists the commands");
                session.types("please write\r");
            }
            session.until("thinking");
            session.types(before);
            session.until("allow?");
            session.types(after);
            session.until("heard: ");
            assert_eq!(user.workspace().join("a.txt").exists(), is_written, "{command}: {before:?}, {after:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn always_approval_does_not_apply_to_relatives() {
    let mut scene = asking();
    let host = scene.host().await;
    // The first child is approved with `always` and writes twice; its child, sibling and parent must still ask.
    let first = spawn("worker", &[write("open/w"), write("open/w"), spawn("worker", &[write("open/w")])]);
    let second = spawn("worker", &[write("open/w")]);
    let steps = [first, second, write("open/w")];
    let (root, questions) = approve_each(&host, &steps, &[AskVerdict::Always]).await;
    let children = host.children(root);
    let deep = host.descendant(root, 2);
    let session: Vec<SessionId> = questions.iter().map(|(session, _)| *session).collect();
    assert_eq!(session, [children[0], deep, children[1], root]);
    let failed = |of| host.results(of).iter().map(|(failed, _)| *failed).collect::<Vec<_>>();
    assert_eq!((failed(children[0]), failed(deep)), (vec![false, false, false], vec![true]));
    assert_eq!((failed(children[1]), failed(root)), (vec![true], vec![false, false, true]));
    host.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn approval_covers_only_the_shown_call() {
    let mut scene = asking();
    let host = scene.host().await;
    let steps = [
        write("open/w"),
        write("open/x"),
        call("edit", json!({"path": "top.txt", "old": "plain", "new": "x"})),
        write("open/w"),
    ];
    let (root, questions) = approve_each(&host, &steps, &[AskVerdict::Always]).await;
    let what: Vec<&str> = questions.iter().map(|(_, what)| &**what).collect();
    // The control: the approval for the session permits the second write of the same file.
    assert_eq!(what, ["open/w", "open/x", "top.txt"]);
    assert_eq!(host.results(root).iter().map(|(failed, _)| *failed).collect::<Vec<_>>(), [false, true, true, false]);
    assert_eq!((scene.at("open/x").exists(), scene.content("top.txt")), (false, "plain".into()));
    host.shut_down().await;
}

/// The text of a command may be what another command is shown as: cut, and with other characters. The control: the same
/// command again needs no question.
#[cfg(unix)]
#[tokio::test]
async fn approval_of_a_text_covers_no_command_shown_as_it() {
    let mut scene = AttackScene::new().policy(Verdict::Allow, &[("shell.run", "*", Verdict::Ask)]);
    let host = scene.host().await;
    let run = |command: &str| call("shell", json!({"command": command}));
    let start = format!("echo shown # {}", "\u{e0041}".repeat(70));
    let hidden = format!("{start}{}\ntouch spoiled", "-".repeat(1_000 - start.len()));
    let (_, questions) = approve_each(&host, &[run(&hidden)], &[]).await;
    let shown = questions[0].1.clone();
    assert!(shown.len() < 1_000, "{shown}");
    // A display of an earlier version.
    let mark = format!("… ({} bytes, {})", hidden.len(), subtend_session::ids::Hash::of(hidden.as_bytes()));
    let earlier = format!("{}{mark}", shown.split_once('…').expect("a mark").0);
    for text in [&shown, &earlier] {
        let steps = [run(text), run(text), run(&hidden)];
        let (session, questions) = approve_each(&host, &steps, &[AskVerdict::Always]).await;
        let failed: Vec<bool> = host.results(session).iter().map(|(failed, _)| *failed).collect();
        assert_eq!((questions.len(), failed), (2, vec![false, false, true]), "{text}");
        assert!(questions[0].1 != questions[1].1 && questions[1].1 == shown, "{questions:?}");
    }
    assert!(!scene.at("spoiled").exists());
    host.shut_down().await;
}

/// A permanent approval of `list` does not let `search` read contents. The control: `list` again.
#[tokio::test(start_paused = true)]
async fn approval_of_a_list_does_not_cover_a_search() {
    let mut scene = AttackScene::new().policy(Verdict::Allow, &[("fs.read", "*", Verdict::Ask)]);
    let host = scene.host().await;
    let list = || call("list", json!({"path": "."}));
    let steps = [list(), list(), call("search", json!({"path": ".", "pattern": "hidden"}))];
    let (session, questions) = approve_each(&host, &steps, &[AskVerdict::Always]).await;
    let failed: Vec<bool> = host.results(session).iter().map(|(failed, _)| *failed).collect();
    assert_eq!((questions.len(), failed), (2, vec![false, false, true]));
    host.shut_down().await;
}

/// An approval for one file does not cover the target of a link that replaces it.
#[cfg(unix)]
#[tokio::test(start_paused = true)]
async fn approval_of_a_link_does_not_cover_its_target() {
    let mut scene = asking();
    std::os::unix::fs::symlink("top.txt", scene.at("link")).expect("a link");
    let host = scene.host().await;
    let (root, questions) = approve_each(&host, &[write("link")], &[AskVerdict::Always]).await;
    assert_eq!(questions.len(), 1);
    let errors = host.refused(root, 1);
    assert!(errors[0].contains("`link` leads to `top.txt`") && errors[0].contains("name it explicitly"), "{errors:?}");
    assert_eq!(scene.content("top.txt"), "plain");
    host.shut_down().await;
}

/// While an approval is pending, a command replaces the file or its directory with a link. The control: without the
/// link, the call writes after the same answer.
#[cfg(unix)]
#[tokio::test(start_paused = true)]
async fn link_swapped_in_before_the_answer_is_not_followed() {
    let attacks: [(&str, &str, &str); 4] = [
        ("open/w", "open/w", "../top.txt"),
        ("open/w", "open/w", "../secret/key"),
        ("open/w", "open", "secret"),
        ("open/new/w", "open/new", "../secret"),
    ];
    let rules = [("fs.write", "*", Verdict::Ask), ("fs.write", "secret/**", Verdict::Deny)];
    for (path, swapped, to) in attacks {
        for is_swapped in [true, false] {
            let mut scene = AttackScene::new().policy(Verdict::Allow, &rules);
            let host = scene.host().await;
            let session = host.runtime.open("worker").expect("a session");
            let mut approver = host.runtime.approver();
            let steps = [write(path)];
            let mut run = Box::pin(host.continue_with(&session, &steps));
            let question = tokio::select! {
                () = &mut run => panic!("nothing was asked"),
                question = approver.next() => question,
            };
            assert_eq!(&*question.resource, path);
            if is_swapped {
                // A file that does not exist yet cannot be moved.
                drop(std::fs::rename(scene.at(swapped), scene.at("moved")));
                std::os::unix::fs::symlink(to, scene.at(swapped)).expect("a link");
            }
            approver.answer(&question, AskVerdict::Allow).await.expect("an answer");
            run.await;
            let (failed, text) = host.results(session.id()).remove(0);
            assert_eq!((failed, scene.content(path) == "spoiled"), (is_swapped, !is_swapped), "{path}, {to}: {text}");
            let kept = (scene.content("top.txt"), scene.content("secret/key"), scene.at("secret/w").exists());
            assert_eq!(kept, ("plain".into(), SECRET.into(), false), "{path}, {to}");
            host.shut_down().await;
        }
    }
}

/// An approval cannot lift a deny, and a denied call is not asked about.
#[tokio::test(start_paused = true)]
async fn denied_call_is_not_asked_about() {
    let mut scene = AttackScene::new().policy(
        Verdict::Allow,
        &[
            ("fs.write", "*", Verdict::Ask),
            ("fs.write", "secret/**", Verdict::Deny),
            ("fs.read", "top.txt", Verdict::Deny),
        ],
    );
    let host = scene.host().await;
    let steps = [write("secret/key"), call("edit", json!({"path": "top.txt", "old": "plain", "new": "x"}))];
    let (root, questions) = approve_each(&host, &steps, &[AskVerdict::Always, AskVerdict::Always]).await;
    assert_eq!(questions, []);
    host.refused(root, 2);
    host.shut_down().await;
}

/// Without an approver the same calls are denied at once.
#[tokio::test(start_paused = true)]
async fn call_is_denied_without_an_approver() {
    let mut scene = asking();
    let host = scene.host().await;
    let background = json!({
        "subagent_type": "worker", "prompt": script(&[write("open/w"), say("wrote it")]), "background": true,
    });
    let steps = [in_one_turn(&[write("open/w"), call("task", background)]), write("open/w")];
    let root = host.run_steps("worker", &steps).await;
    assert!(!scene.at("open/w").exists());
    let allowed =
        |record: &Record| matches!(record, Record::AskAnswered { verdict: AskVerdict::Allow | AskVerdict::Always, .. });
    for session in [root.id(), host.descendant(root.id(), 1)] {
        assert!(!host.records(session).await.iter().any(allowed));
    }
    host.shut_down().await;
}
