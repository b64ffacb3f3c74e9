//! Recovery: a process is killed in the middle of its work, and another process opens its store.
//!
//! `cargo run --example recover`. It starts itself as a child process on a store in a temporary directory, kills that
//! process with SIGKILL while two subagents run, and opens the store. Then it prints what the user and the model see.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use subtend::format::Record;
use subtend::journal::{StoreSpec, open_store};
use subtend::models::{Answer, IntoModel, Scripted, Step, fn_model};
use subtend::session::{Message, Outcome, RunNo, SessionId};
use subtend::{EventKind, Next, Runtime, StartError};

type Failure = Box<dyn std::error::Error>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    match std::env::args().nth(1) {
        Some(store) => work_until_killed(store.as_ref()).await,
        None => kill_and_recover().await,
    }
}

async fn open(store: &Path, model: impl IntoModel) -> Result<Runtime, StartError> {
    Runtime::builder().journal(open_store(&StoreSpec::Redb(store.to_owned()))?).model(model).start().await
}

/// Runs in the process that is killed: prints the id of its session once both subagents run.
async fn work_until_killed(store: &Path) -> Result<(), Failure> {
    let model = Scripted::builder("script")
        .rule("general", [Step::fan_out(2, "explore", true, "Part {n}."), Step::text("They are running.")])
        .rule("explore", [Step::hang()]);
    let runtime = open(store, model.build()?).await?;
    let session = runtime.open("general")?;
    let mut events = session.watch();
    session.send("Look at everything.").await?;
    let mut running = 0;
    while let Some(Next::Event(event)) = events.next().await {
        if let EventKind::Record { record, .. } = event.what {
            running += u32::from(event.session != session.id() && matches!(*record, Record::TurnStarted { .. }));
        }
        if running == 2 {
            println!("{}", session.id());
            std::future::pending::<()>().await;
        }
    }
    Ok(())
}

async fn kill_and_recover() -> Result<(), Failure> {
    let dir = tempfile::tempdir()?;
    let mut child = Command::new(std::env::current_exe()?).arg(dir.path()).stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().ok_or("no pipe")?).read_line(&mut line)?;
    child.kill()?; // SIGKILL
    child.wait()?;
    let id: SessionId = line.trim().parse()?;
    println!("killed in the middle of session {id}");

    let model = fn_model("echo", |request, _| async move {
        let text_of =
            |message: &Message| if let Message::Notice { text, .. } = message { Some(text.to_string()) } else { None };
        let notices = request.messages.iter().filter_map(text_of);
        Ok(Answer::of_text(notices.collect::<String>()))
    });
    let runtime = open(dir.path(), model).await?;
    println!("the boot ended {} runs that were in flight", runtime.boot().swept);
    let session = runtime.session(id)?.ok_or("the session is missing")?;
    let before = session.run_ended(RunNo(1)).await?;
    println!("the outcome of the run: {:?}, and its last text: {:?}", before.outcome, before.text);

    let receipt = session.send("What happened?").await?;
    let notices = session.run_ended(receipt.run).await?.text.unwrap_or_default();
    println!("the model receives:\n{notices}");

    assert_eq!((runtime.boot().swept, before.outcome), (3, Outcome::Lost));
    assert_eq!(notices.matches("was lost").count(), 2, "one notice for each subagent");
    assert_eq!(runtime.journal().verify(&mut |_| ())?.problems, []);
    runtime.shutdown(Duration::from_secs(1)).await;
    Ok(())
}
