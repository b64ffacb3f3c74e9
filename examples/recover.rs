//! Recovery: a process is killed in the middle of its work, another one opens its store.
//!
//! `cargo run --example recover`. It starts itself as a child process on a store in a temporary directory, kills that with
//! SIGKILL while two subagents work, opens the store, and shows what is told to the person and to the model.

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

/// The process that is killed: says which session it works on when both of its subagents are at work.
async fn work_until_killed(store: &Path) -> Result<(), Failure> {
    let model = Scripted::builder("script")
        .rule("general", [Step::fan_out(2, "explore", true, "Part {n}."), Step::text("They are at work.")])
        .rule("explore", [Step::hang()]);
    let runtime = open(store, model.build()?).await?;
    let session = runtime.open("general")?;
    let mut events = session.watch();
    session.send("Look at everything.").await?;
    let mut at_work = 0;
    while let Some(Next::Event(event)) = events.next().await {
        if let EventKind::Record { record, .. } = event.what {
            at_work += u32::from(event.session != session.id() && matches!(*record, Record::TurnStarted { .. }));
        }
        if at_work == 2 {
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
    child.kill()?; // SIGKILL: nothing of it runs any more
    child.wait()?;
    let id: SessionId = line.trim().parse()?;
    println!("killed in the middle of session {id}");

    let model = fn_model("told", |request, _| async move {
        let text_of =
            |message: &Message| if let Message::Notice { text, .. } = message { Some(text.to_string()) } else { None };
        let told = request.messages.iter().filter_map(text_of);
        Ok(Answer::of_text(told.collect::<String>()))
    });
    let runtime = open(dir.path(), model).await?;
    println!("the boot ended {} runs that were in flight", runtime.boot().swept);
    let session = runtime.session(id)?.ok_or("the session is gone")?;
    let before = session.run_ended(RunNo(1)).await?;
    println!("the person is told: {:?}, and before that it said {:?}", before.outcome, before.text);

    let receipt = session.send("EventKind became of it?").await?;
    let told = session.run_ended(receipt.run).await?.text.unwrap_or_default();
    println!("the model is told:\n{told}");

    assert_eq!((runtime.boot().swept, before.outcome), (3, Outcome::Lost));
    assert_eq!(told.matches("was lost").count(), 2, "each subagent's end is told once");
    assert_eq!(runtime.journal().verify(&mut |_| ())?.problems, []);
    runtime.shutdown(Duration::from_secs(1)).await;
    Ok(())
}
