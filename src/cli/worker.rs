//! `subtend worker`: answers calls of remote tools by programs.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use subtend_tools::commands::Commands;
use subtend_tools::guard::Guard;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::data::StoreArgs;
use super::fail::{Code, Fail};
use super::paint::harmless;
use super::work::{self, StopSignal};
use host::{HostError, LeasedCall, RemoteHost, WorkerResult};
use program::Program;

mod host;
mod program;

/// The variable with the token. Programs do not get it.
const TOKEN: &str = "SUBTEND_WORKER_TOKEN";

/// How variables start that a worker sets for its programs.
const OWN: &str = "SUBTEND_WORKER_";

/// Time between two attempts to reach the host. It doubles, up to a bound of the host.
const AGAIN: Duration = Duration::from_millis(250);

/// How long a response that is on its way is waited for when the worker is to end.
const LAST: Duration = Duration::from_millis(500);

/// How long the host may hold a renewal: proxies cut what takes longer.
const HELD: Duration = Duration::from_secs(30);

/// How long the end of a program is waited for when its lease has run out.
const PAUSED: Duration = Duration::from_millis(100);

/// Answers calls of remote tools of a host, each by a program.
///
/// The host declares the tools (`remote_tools` in its user's configuration). The program runs outside the sandbox, with all rights of
/// the worker: name it by an absolute path where no model may write. It gets the arguments as one line of JSON on its standard input,
/// and the identity of the call in SUBTEND_WORKER_CALL: the same if the call is repeated. What it prints is the result. An exit code other than 0 fails the call, with what the program wrote
/// to its standard error. It is killed with all that it started if the call is cancelled or its lease is lost. Ctrl-C or SIGTERM ends
/// the worker when its running calls are done; a second signal ends it at once.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Address of the host, such as `http://127.0.0.1:7475` or `https://agents.example.org`; left out: whichever process hosts the
    /// store on this machine
    #[arg(long, value_name = "URL", conflicts_with_all = ["data", "store", "accept_loss"])]
    host: Option<String>,

    /// A remote tool, and the shell command that answers its calls, such as `deploy=/usr/local/bin/deploy`; repeatable
    #[arg(long, value_name = "NAME=COMMAND", required = true)]
    tool: Vec<String>,

    /// A variable of the worker that its programs get too; repeatable. They get the variables that commands of `shell` get, such as PATH
    /// and HOME, and no other
    #[arg(long, value_name = "NAME")]
    env: Vec<String>,

    /// File with a token of scope `work` or `admin`; without it the variable SUBTEND_WORKER_TOKEN has it
    #[arg(long, value_name = "FILE", requires = "host")]
    token_file: Option<PathBuf>,

    /// Calls that run at the same time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    slots: u16,

    /// Name of this worker in listings and errors; left out: those of the machine and the process
    #[arg(long)]
    name: Option<String>,

    #[command(flatten)]
    store: StoreArgs,
}

/// A worker, shared by its slots.
struct ToolWorker {
    name: String,
    commands: BTreeMap<String, String>,
    host: RemoteHost,
    guard: Guard,
    /// The environment of its programs.
    environment: Commands,
}

pub(crate) fn verb(args: &Args) -> Result<Code, Fail> {
    if !cfg!(unix) {
        return Err(Fail::Usage("`worker` needs process groups, which this system does not have".to_owned()));
    }
    let worker = Arc::new(ToolWorker::of(args)?);
    if worker.host.is_open() {
        note(&format!(
            "the token and all calls travel unencrypted to {}: use an address with https",
            worker.host.label()
        ))?;
    }
    let threads = work::threads()?;
    let done = threads.block_on(async {
        let stop = StopSignal::listen()?;
        note(&worker.line(args.slots))?;
        let mut slots: JoinSet<Result<(), Fail>> =
            (0..args.slots).map(|_| Arc::clone(&worker).slot(stop.clone())).collect();
        while let Some(ended) = slots.join_next().await {
            ended.map_err(|error| Fail::Other(format!("a slot of the worker failed: {error}")))??;
        }
        note("the worker ends")?;
        Ok(Code::Done)
    });
    threads.shutdown_timeout(Duration::from_secs(1));
    done
}

fn note(line: &str) -> Result<(), Fail> {
    Ok(writeln!(anstream::stderr(), "{}", harmless(line))?)
}

/// Reports a call. Without stderr the host still has its result.
fn report(call: &LeasedCall, what: &str) {
    drop(note(&format!("{} {}: {what}", call.tool, call.call)));
}

fn token(args: &Args) -> Result<String, Fail> {
    let missing = || Fail::Usage(format!("a token is missing: name a file with --token-file, or set {TOKEN}"));
    let text = match &args.token_file {
        Some(path) => std::fs::read_to_string(path)
            .map_err(|error| Fail::Usage(format!("token file {}: {error}", path.display())))?,
        None => std::env::var(TOKEN).map_err(|_| missing())?,
    };
    let token = text.trim().to_owned();
    if token.is_empty() { Err(missing()) } else { Ok(token) }
}

impl ToolWorker {
    fn of(args: &Args) -> Result<Self, Fail> {
        let mut commands = BTreeMap::new();
        for word in &args.tool {
            let bad = |why: &str| Fail::Usage(format!("`--tool {word}`: {why}"));
            let named = word.split_once('=').filter(|(name, command)| !name.is_empty() && !command.trim().is_empty());
            let (name, command) = named.ok_or_else(|| {
                bad("give the name of a tool and a command, as in --tool deploy=/usr/local/bin/deploy")
            })?;
            if commands.insert(name.to_owned(), command.to_owned()).is_some() {
                return Err(bad("the tool is named twice: one command answers its calls"));
            }
        }
        for name in &args.env {
            let bad = |why: &str| Err(Fail::Usage(format!("`--env {name}`: {why}")));
            if name.starts_with(OWN) {
                return bad("the worker itself sets such variables, and keeps its token: leave it out");
            }
            if std::env::var_os(name).is_none() {
                return bad("the variable is not set: set it for the worker, or leave it out");
            }
        }
        let environment =
            Commands { environment: args.env.iter().map(|name| name.as_str().into()).collect(), ..Commands::default() };
        let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_else(|_| "worker".to_owned());
        let name = args.name.clone().unwrap_or_else(|| format!("{}-{}", machine.trim(), std::process::id()));
        let host = match &args.host {
            Some(url) => RemoteHost::at(url, token(args)?)?,
            None => RemoteHost::of(&args.store.place()?)?,
        };
        let guard = super::guard::guard()
            .map_err(|error| Fail::Other(format!("the running program cannot be found: {error}")))?;
        Ok(Self { name, commands, host, guard, environment })
    }

    fn line(&self, slots: u16) -> String {
        let tools: Vec<&str> = self.commands.keys().map(String::as_str).collect();
        format!("worker {} takes calls of {}, {slots} at a time (Ctrl-C ends it)", self.name, tools.join(", "))
    }

    /// Answers one call after the other until the worker is to end.
    ///
    /// # Errors
    /// If the host refuses this worker for good.
    async fn slot(self: Arc<Self>, mut stop: StopSignal) -> Result<(), Fail> {
        let tools: Vec<&str> = self.commands.keys().map(String::as_str).collect();
        let mut wait = AGAIN;
        loop {
            let asked_at = Instant::now();
            let taking = self.host.take(&self.name, &tools);
            tokio::pin!(taking);
            let taken = tokio::select! {
                biased;
                () = stop.requested() => {
                    // A call that is on its way is given back at once, rather than when its lease runs out.
                    if let Ok(Ok(Some(call))) = timeout(LAST, &mut taking).await {
                        // Another worker gets it later all the same.
                        drop(timeout(LAST, self.give_back(&call)).await);
                    }
                    return Ok(());
                }
                taken = &mut taking => taken,
            };
            match taken {
                Ok(Some(call)) => {
                    if self.answer(call, asked_at).await {
                        wait = AGAIN;
                        continue;
                    }
                    // A host that leases what is not to start would be asked without a pause.
                    wait = (wait * 2).min(self.host.longest_wait());
                }
                Ok(None) => wait = AGAIN,
                Err(HostError::Refused(why) | HostError::Lost(why)) => return Err(Fail::Other(why)),
                Err(HostError::Away(why)) => {
                    if wait == AGAIN {
                        drop(note(&format!("{why}; trying again")));
                    }
                    wait = (wait * 2).min(self.host.longest_wait());
                }
            }
            tokio::select! {
                () = stop.requested() => return Ok(()),
                () = sleep(wait) => {}
            }
        }
    }

    /// Answers a call that was leased after `asked_at`; returns whether its program was to start.
    async fn answer(&self, call: LeasedCall, asked_at: Instant) -> bool {
        let lease = Duration::from_millis(call.lease_ms);
        let until = match asked_at.checked_add(lease) {
            Some(until) => self.begun(&call, until).await,
            None => None,
        };
        // A worker that was paused here has lost the call.
        let until = until.filter(|until| Instant::now() < *until);
        let (Some(until), Some(command)) = (until, self.commands.get(&call.tool)) else {
            self.give_back(&call).await;
            return false;
        };
        let begun = Instant::now();
        let mut program = match Program::start((&self.guard, &self.environment), command, &call).await {
            Ok(program) => program,
            Err(why) => {
                self.complete(&call, WorkerResult::error(why), until).await;
                return true;
            }
        };
        match self.watched(&mut program, &call, until).await {
            Some((result, until)) => {
                drop(note(&format!("{} {}: {} after {:.1?}", call.tool, call.call, result.word(), begun.elapsed())));
                self.complete(&call, result, until).await;
            }
            None => program.kill().await,
        }
        true
    }

    /// Begins a call: returns the end of its lease, or `None` if it is not to start.
    async fn begun(&self, call: &LeasedCall, until: Instant) -> Option<Instant> {
        loop {
            let sent = Instant::now();
            match self.host.renew(&call.token, None, Duration::ZERO).await {
                Ok(renewed) if renewed.stop => return None,
                Ok(renewed) => return sent.checked_add(Duration::from_millis(renewed.lease_ms)),
                Err(HostError::Away(_)) if Instant::now() + AGAIN < until => sleep(AGAIN).await,
                Err(HostError::Away(why) | HostError::Lost(why) | HostError::Refused(why)) => {
                    report(call, &format!("not started: {why}"));
                    return None;
                }
            }
        }
    }

    /// Waits for a program while its lease is renewed; returns its result and the end of the lease, or `None` if that is lost.
    async fn watched(
        &self,
        program: &mut Program,
        call: &LeasedCall,
        mut until: Instant,
    ) -> Option<(WorkerResult, Instant)> {
        let wait = Duration::from_millis(call.lease_ms / 3).min(HELD);
        loop {
            let (sent, progress) = (Instant::now(), program.progress());
            let renewal = self.host.renew(&call.token, progress.as_deref(), wait);
            let renewed = tokio::select! {
                biased;
                ended = program.ended(call.max_bytes) => return Some((ended, until)),
                renewed = renewal => renewed,
                () = sleep_until(until) => {
                    // The program of a worker that was paused may have ended meanwhile: the host judges its result.
                    if let Ok(ended) = timeout(PAUSED, program.ended(call.max_bytes)).await {
                        return Some((ended, until));
                    }
                    report(call, "killed: the host did not renew the lease in time");
                    return None;
                }
            };
            match renewed {
                Ok(renewed) if renewed.stop => {
                    program.kill().await;
                    return Some((WorkerResult::Stopped, until));
                }
                Ok(renewed) => until = sent.checked_add(Duration::from_millis(renewed.lease_ms)).unwrap_or(until),
                Err(HostError::Away(_)) => tokio::select! {
                    ended = program.ended(call.max_bytes) => return Some((ended, until)),
                    () = sleep(AGAIN) => {}
                },
                Err(HostError::Lost(why) | HostError::Refused(why)) => {
                    report(call, &format!("killed: {why}"));
                    return None;
                }
            }
        }
    }

    /// Sends the result of a call: once at least, and again while the host is away and the lease lasts.
    async fn complete(&self, call: &LeasedCall, mut result: WorkerResult, until: Instant) {
        loop {
            match self.host.complete(&call.token, &result).await {
                Ok(()) => return,
                Err(HostError::Away(_)) if Instant::now() < until => sleep(AGAIN).await,
                // Too large for the host, say: the model should know.
                Err(HostError::Refused(why)) if matches!(result, WorkerResult::Ok { .. }) => {
                    result = WorkerResult::error(format!("the host refused the result: {why}"));
                }
                Err(HostError::Away(why) | HostError::Lost(why) | HostError::Refused(why)) => {
                    return report(call, &format!("the result was refused: {why}"));
                }
            }
        }
    }

    /// Gives back a call that was not started. If that fails, another worker gets it when the lease runs out.
    async fn give_back(&self, call: &LeasedCall) {
        drop(self.host.complete(&call.token, &WorkerResult::NotStarted).await);
    }
}
