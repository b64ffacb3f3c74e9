//! The common part of commands that run agents: options, the host, and following the run.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use subtend::config::Config;
use subtend_actors::{BootReport, OpenOptions, Runtime};
use subtend_host::workers::Workers;
use subtend_host::{Host, HostOptions};
use subtend_session::ids::Seq;

use super::client::{Attached, Connection, Store};
use super::data::{StoreArgs, StoreLocation};
use super::fail::{Code, Fail};
use super::paint::{count, harmless};
use super::servers::ServerWarnings;
use super::{checkpoints, client, names, worktrees};
use attempts::Attempts;
use choice::ModelArgs;
use client_work::HostLocation;
use listening::ListeningSocket;
use output_options::OutputOptions;
use prepared::PreparedWork;

pub(crate) use client_work::{Accepted, Work};
pub(crate) use found_session::{CommandSubject, HereArgs};
#[cfg(feature = "postgres")]
pub(crate) use hosted::HostParts;
pub(crate) use hosted::{HostContext, run_hosted};
pub(crate) use screen::Screen;
pub(crate) use stop::StopSignal;

pub(crate) mod approve;
mod attempts;
pub(crate) mod background;
pub(crate) mod brief;
pub(crate) mod choice;
mod client_work;
pub(crate) mod diff;
mod environments;
mod follow;
mod found_session;
pub(crate) mod frame;
mod hosted;
mod limit;
mod listening;
mod live;
mod other_clients;
mod other_host;
pub(crate) mod output_options;
mod own_answer;
pub(crate) mod policy;
mod prepared;
mod price;
pub(crate) mod prompt;
mod replaced_model;
mod report;
mod screen;
pub(crate) mod serve;
pub(crate) mod setup;
pub(crate) mod slash;
pub(crate) mod source;
mod stop;
mod stream;
mod view;

/// Time limit of the shutdown after the run.
const GRACE: Duration = Duration::from_secs(5);

/// Time for which a command waits at its end for the title.
const TITLE_TIMEOUT: Duration = Duration::from_secs(3);

/// Options of commands that run agents.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct WorkArgs {
    /// Directory to work in [default: that of the session, else `.`]
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,

    /// Allow an action beyond reading the workspace, such as `fs.write=src/**` or `shell.run`; repeatable
    #[arg(long, value_name = "ACTION[=PATTERN]")]
    allow: Vec<String>,

    /// Ask before an action, such as `fs.write` or `shell.run`; without a terminal the action is denied; repeatable
    #[arg(long, value_name = "ACTION[=PATTERN]")]
    ask: Vec<String>,

    /// Change a limit of a new session and its descendants, such as `turns=10`, `live_runs=8` or `first_byte_ms=30000`;
    /// repeatable
    #[arg(long, value_name = "NAME=VALUE")]
    limit: Vec<String>,

    /// Change a bound of this process, such as `slots=1000`: `slots`, `inbox`, `events`, `idle_ms` or `worktree_mib`; repeatable
    #[arg(long, value_name = "NAME=VALUE")]
    host: Vec<String>,

    /// Price of a model, in US dollars per million tokens, for a cost limit (`--limit cost_micro=500000` is half a dollar). A
    /// name may end with `*`; repeatable
    #[arg(long, value_name = "MODEL=IN,OUT[,CACHE_READ[,CACHE_NEW[,REASONING]]]")]
    price: Vec<String>,

    /// Use the configuration and agents of an untrusted workspace, this time only
    #[arg(long)]
    trust: bool,

    /// Print every event as a line of JSON on stdout, and the end of the run as the last one
    #[arg(long)]
    pub(crate) json: bool,

    /// Print the answer unchanged, with control and invisible characters; refused at a terminal
    #[arg(long, conflicts_with = "json")]
    raw: bool,

    /// Print nothing on stderr but errors, and the ignored files of an untrusted workspace
    #[arg(long)]
    quiet: bool,

    #[command(flatten)]
    pub(crate) store: StoreArgs,

    #[command(flatten)]
    models: ModelArgs,

    /// Remote tools that all shards of this process share.
    #[arg(skip)]
    workers: Option<Workers>,
}

impl WorkArgs {
    fn directory(&self) -> &Path {
        self.workspace.as_deref().unwrap_or(Path::new("."))
    }

    /// Returns the same options for a shard of a node.
    #[cfg(feature = "postgres")]
    pub(crate) fn for_shard(&self, shard: super::data::NodeShard, workers: Option<Workers>) -> Self {
        let store = StoreArgs { shard: Some(shard), ..self.store.clone() };
        Self { store, quiet: true, workers, ..self.clone() }
    }

    #[cfg(feature = "postgres")]
    pub(crate) fn quiet(&self) -> bool {
        self.quiet
    }

    /// Refuses options that have no effect for a host.
    ///
    /// # Errors
    /// [`Fail::Usage`], with a remedy.
    pub(crate) fn refuse_for_host(&self) -> Result<(), Fail> {
        if self.raw {
            return Err(Fail::Usage("`--raw`: a host prints no answers; leave it out".to_owned()));
        }
        Ok(())
    }

    /// Refuses limits and permissions for an existing session, which keeps those that it was opened with.
    ///
    /// # Errors
    /// [`Fail::Usage`], with a remedy.
    pub(crate) fn refuse_for_existing_session(&self) -> Result<(), Fail> {
        if let Some(limit) = self.limit.first() {
            return Err(Fail::Usage(format!(
                "`--limit {limit}`: a session keeps the limits that it was opened with; open another one with this limit (`subtend run`), or \
                 continue this one, whose runs have turns of their own (`subtend continue`)"
            )));
        }
        let allow = self.allow.first().map(|rule| ("--allow", rule));
        let Some((option, rule)) = allow.or_else(|| self.ask.first().map(|rule| ("--ask", rule))) else {
            return Ok(());
        };
        Err(Fail::Usage(format!(
            "`{option} {rule}`: a session keeps the permissions that it was opened with; open another one with this rule (`subtend run \
             {option} {rule}`)"
        )))
    }
}

/// Runs `job` with the host of the store. If no process hosts the store, this process hosts it until `job` is done and
/// no other run is in flight. Asks the user about calls that need an approval.
pub(crate) fn run<J>(args: &WorkArgs, about: CommandSubject<'_>, job: J) -> Result<Code, Fail>
where
    J: AsyncFn(Work<'_>) -> Result<Code, Fail>,
{
    run_and_ask_if(args, about, |_| true, job)
}

/// As [`run`], but asks the user only if `may_ask` permits it: a question that is not shown is never answered.
pub(crate) fn run_and_ask_if<J>(
    args: &WorkArgs,
    about: CommandSubject<'_>,
    may_ask: impl Fn(&Screen) -> bool,
    job: J,
) -> Result<Code, Fail>
where
    J: AsyncFn(Work<'_>) -> Result<Code, Fail>,
{
    let place = args.store.place()?;
    let attempts = Attempts::new();
    loop {
        match run_once(args, about, &place, &may_ask, &job, &attempts) {
            // The host ended after its own run, before it answered this command.
            Err(fail) if attempts.should_retry(&fail) => {}
            done => return done,
        }
    }
}

/// Runs `job` once, with the current host of the store.
fn run_once<J>(
    args: &WorkArgs,
    about: CommandSubject<'_>,
    place: &StoreLocation,
    may_ask: &impl Fn(&Screen) -> bool,
    job: &J,
    attempts: &Attempts,
) -> Result<Code, Fail>
where
    J: AsyncFn(Work<'_>) -> Result<Code, Fail>,
{
    if let Some(reader) = Attached::to(place)? {
        return run_on_other_host(args, about, place, reader, may_ask, job, attempts);
    }
    // If another host may have accepted the command, repeat it unchanged, so that its idempotency key applies.
    let opening = match about {
        CommandSubject::New(agent) if attempts.may_be_accepted() => args.opening(agent)?,
        CommandSubject::New(_) | CommandSubject::Session(..) => Value::Null,
    };
    let mut screen = Screen::new(args.quiet, args.json);
    let prepare = |screen: &mut Screen| PreparedWork::of(args, about, screen).and_then(PreparedWork::open_store);
    let (ready, journal) = match prepare(&mut screen) {
        // A process that started at the same time holds the store. By now it listens or has ended.
        Err(Fail::Unavailable(_)) => match client::connect_or_open(place)? {
            Store::Hosted(reader) => return run_on_other_host(args, about, place, reader, may_ask, job, attempts),
            Store::Own(journal) => {
                drop(journal);
                prepare(&mut screen)?
            }
        },
        prepared => prepared?,
    };
    let parts = ready.parts;
    let open_options = OpenOptions {
        model: ready.model,
        servers: ready.servers,
        policy: Some(ready.authority),
        ..OpenOptions::agent(ready.agent)
    };
    screen.set_tools(parts.tools.clone());
    let (workers, mut warnings) = (parts.workers.clone(), ServerWarnings::of(ready.mcp));
    let commands = slash::HostedCommands { home: args.directory().to_owned() };
    let session = ready.found.map(|found| found.session);
    let async_runtime = async_runtime()?;
    let done = async_runtime.block_on(async {
        let mut stop = StopSignal::listen()?;
        let resuming_run = session.map_or(Ok(None), |session| found_session::resuming_run(&journal, session))?;
        let before = session.map_or(Ok(Seq(0)), |session| found_session::last(&journal, session))?;
        let attended = approve::has_approver(args.json || args.quiet) && may_ask(&screen);
        let (runtime, approver) = tokio::select! {
            started = setup::start(journal.clone(), parts, attended) => started?,
            () = stop.requested() => {
                screen.alert("cancelled before the prompt was sent");
                return Ok(Code::Cancelled);
            }
        };
        report_recovery(runtime.boot(), &mut screen);
        let options = HostOptions {
            approvals: attended,
            open: open_options,
            commands: Some(Arc::new(commands)),
            warnings: Some(Arc::new(ready.pool)),
            workers,
            ..HostOptions::default()
        };
        let host = Host::new(runtime, options);
        // This approver prevented denials during the start. The host has attached its own by now.
        drop(approver);
        let listening = ListeningSocket::begin(place, &host, &mut screen);
        // Return errors only after the host is shut down.
        let work = async {
            let done = job(Work {
                output_options: args.output_options(),
                host: HostLocation::Own(&host),
                connection: Connection::in_process(host.local()),
                journal: &journal,
                session,
                resuming_run,
                before,
                opening,
                screen: &mut screen,
                stop: &mut stop,
                attended,
                can_leave: false,
                attempts,
                servers: (!args.quiet).then_some(&mut warnings),
            })
            .await;
            let waited = other_clients::wait_for_runs(host.runtime(), &mut screen, &mut stop).await;
            if waited.is_ok() {
                wait_for_title(host.runtime(), &mut stop).await;
            }
            done.and_then(|code| waited.map(|()| code))
        };
        let done = work.await;
        warnings.take_new().iter().filter(|_| !args.quiet).for_each(|why| screen.alert(why));
        setup::report_full_disk(host.runtime());
        host.ends().cancel();
        listening.end(&mut screen).await;
        if host.shutdown(GRACE).await.is_none() {
            screen.alert("a request did not end in time: runs in flight are recovered at the next start");
        }
        done
    });
    end_runtime(async_runtime);
    done
}

fn run_on_other_host<J>(
    args: &WorkArgs,
    about: CommandSubject<'_>,
    place: &StoreLocation,
    reader: Attached,
    may_ask: &impl Fn(&Screen) -> bool,
    job: &J,
    attempts: &Attempts,
) -> Result<Code, Fail>
where
    J: AsyncFn(Work<'_>) -> Result<Code, Fail>,
{
    args.check_options_for_host(&reader.serving, about)?;
    let session = match about {
        CommandSubject::New(agent) => (None, args.opening(agent)?),
        CommandSubject::Session(name, _) => {
            args.note_unused_variables(place, name, &mut Screen::new(args.quiet, args.json))?;
            args.check_workspace(place, name)?;
            (Some(name), Value::Null)
        }
    };
    with(args.output_options(), place, reader, session, may_ask, job, attempts)
}

/// Runs `job` with the session `name` of a store that another process hosts; `None` if none does.
pub(crate) fn run_attached<J>(output_options: OutputOptions<'_>, name: &str, job: J) -> Result<Option<Code>, Fail>
where
    J: AsyncFn(Work<'_>) -> Result<Code, Fail>,
{
    let place = output_options.store.place()?;
    let Some(reader) = Attached::to(&place)? else { return Ok(None) };
    with(output_options, &place, reader, (Some(name), Value::Null), &|_: &Screen| true, &job, &Attempts::new())
        .map(Some)
}

/// Runs `job` with a store that another process hosts: with an existing session, or with the options of a new one.
fn with<J>(
    output_options: OutputOptions<'_>,
    place: &StoreLocation,
    reader: Attached,
    (name, opening): (Option<&str>, Value),
    may_ask: &impl Fn(&Screen) -> bool,
    job: &J,
    attempts: &Attempts,
) -> Result<Code, Fail>
where
    J: AsyncFn(Work<'_>) -> Result<Code, Fail>,
{
    let path = client::socket(place).ok_or_else(|| place.missing_store())?;
    let journal = reader.journal()?;
    let session = name.map(|name| names::find(&journal, name)).transpose()?;
    let resuming_run = session.map_or(Ok(None), |session| found_session::running(&journal, session))?;
    let before = session.map_or(Ok(Seq(0)), |session| found_session::last(&journal, session))?;
    let mut screen = Screen::new(output_options.quiet, output_options.json);
    screen.set_tools(setup::tools(&Config::default())?);
    let attended = approve::has_approver(output_options.json || output_options.quiet) && may_ask(&screen);
    let mut warnings = ServerWarnings::default();
    let async_runtime = async_runtime()?;
    let done = async_runtime.block_on(async {
        let mut stop = StopSignal::listen()?;
        let opened = tokio::select! {
            opened = Connection::open(&path) => opened?,
            () = stop.requested() => return Ok(Code::Cancelled),
        };
        let Some((connection, _)) = opened else { return Err(client::host_ended_error()) };
        job(Work {
            output_options,
            host: HostLocation::Socket(path),
            connection,
            journal: &journal,
            session,
            resuming_run,
            before,
            opening,
            screen: &mut screen,
            stop: &mut stop,
            attended,
            can_leave: false,
            attempts,
            servers: (!output_options.quiet).then_some(&mut warnings),
        })
        .await
    });
    end_runtime(async_runtime);
    done
}

/// Waits briefly for the title of a new session. It is written while the run is in flight.
async fn wait_for_title(runtime: &Runtime, stop: &mut StopSignal) {
    tokio::select! {
        _ = tokio::time::timeout(TITLE_TIMEOUT, runtime.services_done()) => {}
        () = stop.requested() => {}
    }
}

pub(crate) fn async_runtime() -> Result<tokio::runtime::Runtime, Fail> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Fail::Other(format!("cannot start the async runtime: {error}")))
}

/// Ends the threads of a command. Waits for what another party has done already, but not for threads: a tool stuck in a system call must not
/// keep the process alive.
pub(crate) fn end_runtime(async_runtime: tokio::runtime::Runtime) {
    #[cfg(feature = "mcp")]
    async_runtime.block_on(subtend_tools::mcp::renewals_ended());
    async_runtime.shutdown_timeout(Duration::from_secs(1));
}

fn report_recovery(boot: &BootReport, screen: &mut Screen) {
    if boot.swept > 0 {
        let runs = count(boot.swept as u64, "run");
        screen.note(&format!("{runs} of an earlier process ended as lost: `subtend sessions` lists sessions"));
    }
    if boot.resumed > 0 {
        let runs = count(boot.resumed as u64, "run");
        let go = if boot.resumed == 1 { "resumes" } else { "resume" };
        screen.note(&format!("{runs} of an earlier process {go}: `subtend sessions` lists sessions"));
    }
    if boot.inputs > 0 {
        let wait = if boot.inputs == 1 { "is queued" } else { "are queued" };
        screen.note(&format!(
            "{} {wait} behind runs that ended: `subtend queue ID` lists them, `subtend continue ID` takes them",
            count(boot.inputs as u64, "input")
        ));
    }
    if boot.restored > 0 {
        screen.note(&format!("an interrupted restore of {} was completed", count(boot.restored as u64, "file")));
    }
    for (session, merged) in &boot.merged {
        screen.alert(&worktrees::describe_finished(*session, merged));
    }
    if let Some(text) = checkpoints::describe_unrecorded(&boot.unrecorded) {
        text.lines().for_each(|line| screen.alert(line));
    }
    if let Some(first) = boot.failures.first() {
        let things = count(boot.failures.len() as u64, "problem");
        let session = first.session.map_or_else(String::new, |session| format!("session {session}: "));
        screen.alert(&format!(
            "{things} of an earlier process could not be recovered; the first one: {session}{} (`subtend recover` \
             lists all)",
            harmless(&first.why)
        ));
    }
}
