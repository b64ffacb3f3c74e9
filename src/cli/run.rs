//! `subtend run`: one prompt, one answer, and the tree of sessions that finds it.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use subtend_actors::event::{Event, Next, Subscription, What};
use subtend_actors::{BootReport, Ended, Runtime, SessionHandle};
use subtend_agents::catalog::Catalog;
use subtend_session::authority::RuleSet;
use subtend_session::ids::{RunNo, SessionId};
use subtend_session::record::Record;
use subtend_tools::policy::HostPolicy;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout_at};

use super::data::StoreArgs;
use super::fail::{Code, Fail};
use super::paint::count;
use super::{agents, cause, workspace};
use choice::ModelArgs;
use screen::Screen;
use stop::Stop;

mod brief;
mod choice;
mod hub;
mod limit;
mod live;
mod prompt;
mod report;
mod screen;
mod stop;
mod view;

/// Time for an orderly end after the run.
const GRACE: Duration = Duration::from_secs(5);
/// Between two drawings of the tree.
const FRAME: Duration = Duration::from_millis(100);
/// How long the events of an ended run may trail behind its end.
const TRAIL: Duration = Duration::from_millis(500);

/// Runs one prompt in a new session and prints the answer.
///
/// The answer goes to stdout, progress to stderr. Every session that takes part is kept: `subtend tree` shows them.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// What to do; `-` reads it from stdin
    prompt: String,

    /// Agent that answers
    #[arg(long, value_name = "NAME", default_value = "general")]
    agent: String,

    /// Directory to work in
    #[arg(long, value_name = "DIR", default_value = ".")]
    workspace: PathBuf,

    /// Allow an action beyond reading the workspace, such as `fs.write=src/**` or `shell.run`; may be given again
    #[arg(long, value_name = "ACTION[=PATTERN]")]
    allow: Vec<String>,

    /// Change a limit of the run and all below it, such as `turns=10`, `live_runs=8` or `first_byte_ms=30000`; may be given
    /// again
    #[arg(long, value_name = "NAME=VALUE")]
    limit: Vec<String>,

    /// Print every event as a line of JSON on stdout, last the end of the run
    #[arg(long)]
    json: bool,

    /// Tell nothing on stderr but errors
    #[arg(long)]
    quiet: bool,

    #[command(flatten)]
    store: StoreArgs,

    #[command(flatten)]
    models: ModelArgs,
}

/// Does it.
pub(crate) fn verb(args: Args) -> Result<Code, Fail> {
    let prompt = prompt::read(&args.prompt, std::io::stdin())?;
    let mut screen = Screen::new(args.quiet, args.json);
    let parts = parts(&args, &mut screen)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Fail::Other(format!("the system gives no threads to work with: {error}")))?;
    let done = runtime.block_on(work(&args, prompt, parts, &mut screen));
    // A tool that is stuck in a system call must not keep the process.
    runtime.shutdown_timeout(Duration::from_secs(1));
    done
}

/// Looks at everything that can be wrong before anything is started.
fn parts(args: &Args, screen: &mut Screen) -> Result<hub::Parts, Fail> {
    let policy = policy(&args.allow)?;
    let limits = limit::read(&args.limit)?;
    let models = args.models.choose()?;
    let workspace = workspace::open(&args.workspace)?;
    let place = args.store.place()?;
    let tools = hub::tools()?;
    if !args.quiet {
        hub::withheld(&tools, &policy).iter().for_each(|why| screen.alert(why));
    }
    if !args.models.is_given() {
        screen.note("no model was named: the built-in rule-based model `offline` answers; name another with --model");
    }
    if let Some(path) = place.path().filter(|path| !path.exists()) {
        screen.note(&format!("sessions are kept in {} (--data DIR for another place)", path.display()));
    }
    let catalog = Catalog::load(workspace.path());
    if !args.quiet {
        agents::warn(&catalog)?;
    }
    Ok(hub::Parts { place, workspace, catalog, tools, models, limits, policy })
}

fn policy(allow: &[String]) -> Result<RuleSet, Fail> {
    let mut policy = HostPolicy::default_for_workspace();
    for rule in allow {
        policy.rules.push(HostPolicy::allow(rule).map_err(|error| Fail::Usage(format!("{error} (--allow)")))?);
    }
    Ok(policy)
}

async fn work(args: &Args, prompt: String, parts: hub::Parts, screen: &mut Screen) -> Result<Code, Fail> {
    let mut stop = Stop::listen()?;
    let runtime = tokio::select! {
        started = hub::start(parts) => started?,
        () = stop.asked() => {
            screen.alert("cancelled before the prompt was sent");
            return Ok(Code::Cancelled);
        }
    };
    let done = converse(args, prompt, &runtime, screen, &mut stop).await;
    hub::shut_down(runtime, GRACE).await;
    done
}

async fn converse(
    args: &Args,
    prompt: String,
    runtime: &Runtime,
    screen: &mut Screen,
    stop: &mut Stop,
) -> Result<Code, Fail> {
    recovered(runtime.boot(), screen);
    let session = hub::open(runtime, &args.agent)?;
    let events = session.watch();
    screen.watch(session.id(), args.agent.as_str().into());
    let sent = session.send(prompt).await;
    let mut watch = Watch { session: &session, events, screen, json: args.json, ended: false };
    let followed = match sent {
        Ok(receipt) => watch.follow(receipt.run, stop).await,
        Err(error) => Err(error.into()),
    };
    screen.close();
    let ended = followed?;
    tell(args, session.id(), &ended, screen)?;
    Ok(cause::code(&ended.outcome))
}

/// Tells what an earlier process left.
fn recovered(boot: &BootReport, screen: &mut Screen) {
    if boot.swept > 0 {
        let runs = count(boot.swept as u64, "run");
        screen.note(&format!(
            "an earlier process ended with {runs} in flight, which ended as lost: `subtend sessions` lists them"
        ));
    }
    if boot.unreadable > 0 {
        let sessions = count(boot.unreadable as u64, "session");
        screen.alert(&format!("{sessions} in the store cannot be read: `subtend verify` tells why"));
    }
}

/// Tells the end of the run.
fn tell(args: &Args, session: SessionId, ended: &Ended, screen: &mut Screen) -> Result<(), Fail> {
    let told = if args.json {
        writeln!(std::io::stdout(), "{}", report::json(session, ended)?).map_err(Fail::from)
    } else {
        report::answer(ended)
    };
    if let Some(cause) = report::cause(ended) {
        screen.alert(&cause);
    }
    match args.store.place()?.path() {
        Some(_) => screen.note(&format!("session {session}\nlook again: subtend tree {session}{}", again(&args.store))),
        None => screen.note(&format!("session {session} was kept in memory only")),
    }
    match told {
        // Nobody reads the answer; what became of the run is still told by the exit code, and kept in the store.
        Err(Fail::Closed) => Ok(()),
        other => other,
    }
}

/// The options that find the store again.
fn again(store: &StoreArgs) -> String {
    let quoted = |text: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "/._-:+@".contains(c);
        if text.chars().all(plain) { text.to_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
    };
    match (&store.data, &store.store) {
        (Some(data), _) => format!(" --data {}", quoted(&data.to_string_lossy())),
        (None, Some(store)) => format!(" --store {}", quoted(store)),
        (None, None) => String::new(),
    }
}

/// A run that is followed to its end.
struct Watch<'a> {
    session: &'a SessionHandle,
    events: Subscription,
    screen: &'a mut Screen,
    json: bool,
    /// Whether the event of the run's end was seen: the last one that is shown.
    ended: bool,
}

impl Watch<'_> {
    async fn follow(&mut self, run: RunNo, stop: &mut Stop) -> Result<Ended, Fail> {
        let session = self.session.clone();
        let run_handle = session.run(run);
        let ended = run_handle.ended();
        tokio::pin!(ended);
        let mut frames = interval(FRAME);
        frames.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let (mut stopping, mut more) = (false, true);
        let end = loop {
            tokio::select! {
                biased;
                () = stop.asked(), if !stopping => {
                    stopping = true;
                    self.cancel("asked to stop");
                }
                _ = frames.tick() => self.screen.draw(),
                next = self.events.next(), if more => match next {
                    Some(next) if self.show(&next, run).is_err() => {
                        // Nobody reads the events any more: what they were wanted for is over.
                        more = false;
                        stopping = true;
                        self.cancel("nobody reads the events any more");
                    }
                    Some(_) => {}
                    None => more = false,
                },
                ended = &mut ended => break ended,
            }
        };
        self.trail(run, more).await;
        Ok(end?)
    }

    /// Asks for the end of the whole tree. The answer is the run's end.
    fn cancel(&mut self, why: &str) {
        self.screen.alert(&format!(
            "{why}: cancelling the run and all that it started, then shutting down; Ctrl-C leaves at once"
        ));
        let session = self.session.clone();
        tokio::spawn(async move { session.cancel().await });
    }

    /// Shows what was published before the end but arrives after it.
    async fn trail(&mut self, run: RunNo, more: bool) {
        let until = Instant::now() + TRAIL;
        while more && !self.ended {
            match timeout_at(until, self.events.next()).await {
                Ok(Some(next)) if self.show(&next, run).is_ok() => {}
                Ok(Some(_) | None) | Err(_) => return,
            }
        }
    }

    fn show(&mut self, next: &Next, run: RunNo) -> Result<(), Fail> {
        match next {
            Next::Event(event) => {
                self.ended |= self.is_end(event, run);
                self.screen.take(event);
                self.print(&event.line())
            }
            Next::Missed(events) => {
                self.screen.missed(*events);
                self.print(&subtend_actors::event::Line::Missed { events: *events })
            }
        }
    }

    fn is_end(&self, event: &Event, run: RunNo) -> bool {
        let What::Record { record, .. } = &event.what else { return false };
        let Record::RunEnded(ended) = &**record else { return false };
        event.session == self.session.id() && ended.run == run
    }

    fn print(&self, line: &impl serde::Serialize) -> Result<(), Fail> {
        if self.json {
            writeln!(std::io::stdout(), "{}", serde_json::to_string(line)?)?;
        }
        Ok(())
    }
}
