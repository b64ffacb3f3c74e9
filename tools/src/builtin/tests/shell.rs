use serde_json::json;
use subtend_session::authority::Verdict;
use subtend_session::call::ToolErrorKind;

use super::ToolFixture;
use crate::tool::ToolError;

#[tokio::test]
async fn result_has_output_and_exit_code() {
    let fixture = ToolFixture::new(&[("a.txt", "here")]);
    assert_eq!(fixture.text("shell", json!({"command": "cat a.txt; exit 3"})).await, "here\n[exit code 3]");
    assert_eq!(fixture.text("shell", json!({"command": "echo oops >&2"})).await, "oops\n[exit code 0]");
    assert_eq!(fixture.text("shell", json!({"command": "cat"})).await, "[no output; exit code 0]");
    assert_eq!(fixture.text("shell", json!({"command": "kill -9 $$"})).await, "[no output; signal: 9 (SIGKILL)]");
}

#[tokio::test]
async fn command_runs_in_a_workspace_that_was_moved() {
    let fixture = ToolFixture::new(&[("dir/a.txt", "here")]);
    let workspace = std::sync::Arc::new(crate::workspace::Workspace::open(fixture.at("dir")).unwrap());
    let fixture = ToolFixture { workspace, ..fixture };
    std::fs::rename(fixture.at("dir"), fixture.at("moved")).unwrap();
    std::fs::create_dir(fixture.at("dir")).unwrap();
    assert_eq!(fixture.text("shell", json!({"command": "cat a.txt"})).await, "here\n[exit code 0]");
}

#[tokio::test]
async fn long_output_keeps_both_ends() {
    let mut fixture = ToolFixture::new(&[]);
    fixture.max_bytes = 300;
    let output = fixture.call("shell", json!({"command": "seq 100000"})).await.unwrap();
    assert_eq!(output.truncated_from, Some(588_895));
    assert!(output.content.len() <= 300 && output.content.starts_with("1\n2\n"), "{output:?}");
    assert!(output.content.ends_with("99999\n100000\n[exit code 0]"), "{output:?}");
    assert!(output.content.contains("[... 588795 bytes left out ...]"), "{output:?}");
}

#[tokio::test]
async fn non_utf8_output_stays_within_the_bound() {
    let mut fixture = ToolFixture::new(&[]);
    fixture.max_bytes = 1000;
    let output = fixture.call("shell", json!({"command": r"head -c 900 /dev/zero | tr '\0' '\377'"})).await.unwrap();
    assert!(output.content.len() <= 1000 && output.content.ends_with("[exit code 0]"), "{output:?}");
    assert_eq!(output.truncated_from, Some(900));
}

#[tokio::test]
async fn timed_out_command_is_stopped_with_its_descendants() {
    let fixture = ToolFixture::new(&[]);
    let args = json!({"command": "echo begun; sleep 300 & sleep 300", "timeout_ms": 200});
    assert_eq!(
        fixture.error("shell", args).await,
        (
            ToolErrorKind::Limit,
            "the command was stopped after 200 ms, with all that it started; its output until then:\nbegun".into()
        )
    );
}

#[tokio::test]
async fn cancelled_command_is_stopped() {
    let fixture = ToolFixture::new(&[]);
    assert!(std::process::Command::new("mkfifo").arg(fixture.at("pipe")).status().unwrap().success());
    let (cancel, pipe) = (fixture.cancel.clone(), fixture.at("pipe"));
    // The read ends when no descendant of the command holds the pipe.
    let watched = tokio::task::spawn_blocking(move || {
        let mut pipe = std::fs::File::open(pipe).unwrap();
        let mut byte = [0];
        std::io::Read::read_exact(&mut pipe, &mut byte).unwrap();
        cancel.cancel();
        let mut rest = Vec::new();
        std::io::Read::read_to_end(&mut pipe, &mut rest).unwrap();
    });
    let called = fixture.call("shell", json!({"command": "exec 3>pipe; sleep 300 & echo >&3; sleep 300"})).await;
    assert_eq!(called, Err(ToolError::cancelled()));
    watched.await.unwrap();
}

#[tokio::test]
async fn background_processes_end_with_the_command() {
    let fixture = ToolFixture::new(&[]);
    assert_eq!(fixture.text("shell", json!({"command": "sleep 300 & echo done"})).await, "done\n[exit code 0]");
}

#[tokio::test]
async fn invalid_commands_are_refused() {
    let fixture = ToolFixture::new(&[]);
    for command in [" \n".to_owned(), "a\0b".into(), "x".repeat((64 << 10) + 1)] {
        assert_eq!(
            fixture.error("shell", json!({"command": command})).await,
            (
                ToolErrorKind::BadArgs,
                "the command must have 1 to 65536 bytes and no NUL: put a long script into a file first".into()
            )
        );
    }
}

#[tokio::test]
async fn denied_command_does_not_run() {
    let fixture = ToolFixture::new(&[]).with_rules(&[("shell.run", "rm *", Verdict::Deny)]);
    let error = fixture.call("shell", json!({"command": "rm -rf x"})).await.unwrap_err();
    assert!(error.denied, "{error:?}");
    assert_eq!(fixture.text("shell", json!({"command": "echo rm"})).await, "rm\n[exit code 0]");
}
