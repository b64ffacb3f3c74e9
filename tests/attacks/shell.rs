//! The shell as a way around file rules.

use super::scene::*;
use subtend_tools::guard::Guard;
use subtend_tools::sandbox::{self, SandboxStrength};

const NO_SECRETS: &[(&str, &str, Verdict)] = &[("fs.*", "secret/**", Verdict::Deny)];

fn sh(command: &str) -> Value {
    call("shell", json!({"command": command}))
}

fn attempts() -> Vec<Value> {
    [
        "cat secret/key",
        "sh -c 'cat secret/key'",
        "cp secret/key open/found; cat open/found",
        "ln -s ../secret/key open/link; cat open/link",
        "echo spoiled > secret/key",
        "(setsid sh -c 'cat secret/key > open/later' &); sleep 0.2; cat open/later",
    ]
    .map(sh)
    .into()
}

/// Without a guard no command is confined: a session with a denied file gets no shell, and neither do descendants.
#[tokio::test(start_paused = true)]
async fn denied_file_allows_no_unconfined_shell() {
    let mut scene = AttackScene::new().agent("limited", Verdict::Allow, NO_SECRETS);
    let host = scene.host().await;
    let mut steps = attempts();
    steps.push(spawn("worker", &attempts()));
    let root = host.run_steps("limited", &steps).await;
    for (session, calls) in [(root.id(), attempts().len() + 1), (host.descendant(root.id(), 1), attempts().len())] {
        assert!(!host.tools(session).contains(&"shell".to_owned()));
        let results = host.results(session);
        assert_eq!(results.len(), calls);
        for (failed, text) in &results[..attempts().len()] {
            assert!(*failed && text.starts_with("the tool `shell` is not available in this session."), "{text}");
        }
    }
    assert_eq!(scene.content("secret/key"), SECRET);
    host.shut_down().await;
}

/// With a guard, the system confines the shell. If it cannot, no shell is offered.
#[tokio::test]
async fn guarded_shell_is_confined_or_missing() {
    let guard =
        Guard { program: PathBuf::from(env!("CARGO_BIN_EXE_subtend")), args: vec!["guard".into(), "--".into()] };
    let mut scene = AttackScene::new().guard(guard).agent("limited", Verdict::Allow, NO_SECRETS);
    let host = scene.host().await;
    let mut inner = attempts();
    inner.push(sh("cat top.txt; echo made > open/made"));
    let root = host.run_steps("limited", &[spawn("worker", &inner)]).await;
    let child = host.descendant(root.id(), 1);
    let results = host.results(child);
    assert_eq!(results.len(), inner.len());
    assert!(results.iter().all(|(_, text)| !text.contains(SECRET)), "{results:#?}");
    assert_eq!(scene.content("secret/key"), SECRET);
    if sandbox::probe().is_ok_and(|strength| strength >= SandboxStrength::Files) {
        println!("held: {results:#?}");
        assert!(host.tools(child).contains(&"shell".to_owned()));
        assert_eq!(results.last(), Some(&(false, "plain\n[exit code 0]".to_owned())));
        assert_eq!(scene.content("open/made"), "made\n");
    } else {
        println!("refused: {results:#?}");
        assert!(results.iter().all(|(failed, _)| *failed), "{results:#?}");
    }
    host.shut_down().await;
}
