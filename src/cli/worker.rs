use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use subtend_tools::commands::Commands;
use subtend_tools::escape::on_one_line;
use subtend_tools::guard::Guard;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use super::data::StoreArgs;
use super::fail::{Code, Fail};
use super::paint::harmless;
use super::work::{self, StopSignal};
use host::{HostError, LeasedCall, RemoteHost, WorkerResult};
use program::Program;

mod host;
mod program;

/// The variable with the token; it is not passed to programs.
const TOKEN: &str = "SUBTEND_WORKER_TOKEN";

/// Prefix of variables that a worker sets for its programs.
const OWN_PREFIX: &str = "SUBTEND_WORKER_";

/// Initial delay between two attempts to reach the host; it doubles up to a maximum.
const RETRY_DELAY: Duration = Duration::from_millis(250);

/// Time to wait for a pending response when the worker shuts down.
const LAST_RESPONSE_TIMEOUT: Duration = Duration::from_millis(500);

/// Time for which a worker that shuts down tries to send a result to a host that cannot be reached.
const LAST_RESULT_TIME: Duration = Duration::from_secs(5);

/// Maximum time for which the host holds a renewal; proxies may close longer requests.
const MAX_HOLD: Duration = Duration::from_secs(30);

/// Time to wait for the end of a program when its lease has expired.
const EXPIRED_LEASE_GRACE: Duration = Duration::from_millis(100);

/// Answers calls of remote tools of a host, each by a program.
///
/// The host declares the tools (`remote_tools` in its user's configuration). The program runs outside the sandbox, with
/// all rights of the worker: name it by an absolute path to a file that models cannot write. It receives the arguments
/// as one line of JSON on stdin, and the id of the call in SUBTEND_WORKER_CALL, which stays the same if the call is
/// repeated. Its stdout is the result. An exit code other than 0 fails the call, with stderr as the message. It is
/// killed with its child processes if the call is cancelled or its lease is lost. Ctrl-C or SIGTERM ends the worker
/// after its running calls; a second signal ends it at once.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Address of the host, such as `http://127.0.0.1:7475` or `https://agents.example.org`; by default the process that
    /// hosts the store on this machine
    #[arg(long, value_name = "URL", conflicts_with_all = ["data", "store", "accept_loss"])]
    host: Option<String>,

    /// Remote tool with the shell command that answers its calls, such as `deploy=/usr/local/bin/deploy`; repeatable
    #[arg(long, value_name = "NAME=COMMAND", required = true)]
    tool: Vec<String>,

    /// Additional environment variable to pass to the programs; repeatable. They always get the variables of `shell`
    /// commands, such as PATH and HOME
    #[arg(long, value_name = "NAME")]
    env: Vec<String>,

    /// File with a token of scope `work` or `admin` [default: the variable SUBTEND_WORKER_TOKEN]
    #[arg(long, value_name = "FILE", requires = "host")]
    token_file: Option<PathBuf>,

    /// Number of concurrent calls
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    slots: u16,

    /// Name of this worker in listings and errors [default: machine name and process id]
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
    environment: Commands,
}

pub(crate) fn run(args: &Args) -> Result<Code, Fail> {
    if !cfg!(unix) {
        return Err(Fail::Usage("`worker` needs process groups, which this system does not have".to_owned()));
    }
    let worker = Arc::new(ToolWorker::of(args)?);
    if worker.host.is_unencrypted() {
        print_note(&format!(
            "the token and all calls are sent unencrypted to {}: use an address with https",
            worker.host.label()
        ))?;
    }
    let async_runtime = work::async_runtime()?;
    let done = async_runtime.block_on(async {
        let stop = StopSignal::listen()?;
        print_note(&worker.line(args.slots))?;
        let mut slots: JoinSet<Result<(), Fail>> =
            (0..args.slots).map(|_| Arc::clone(&worker).run_slot(stop.clone())).collect();
        while let Some(ended) = slots.join_next().await {
            ended.map_err(|error| Fail::Other(format!("a slot of the worker failed: {error}")))??;
        }
        print_note("the worker has ended")?;
        Ok(Code::Done)
    });
    async_runtime.shutdown_timeout(Duration::from_secs(1));
    done
}

/// Prints a note on one line. Parts of it may come from the host and contain line breaks.
fn print_note(line: &str) -> Result<(), Fail> {
    Ok(writeln!(anstream::stderr(), "{}", harmless(&on_one_line(line)))?)
}

/// Prints a note about a call; a failed write is ignored.
fn report(call: &LeasedCall, what: &str) {
    drop(print_note(&format!("{} {}: {what}", call.tool, call.call)));
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
            let (name, command) =
                named.ok_or_else(|| bad("write NAME=COMMAND, such as --tool deploy=/usr/local/bin/deploy"))?;
            if commands.insert(name.to_owned(), command.to_owned()).is_some() {
                return Err(bad("the tool is named twice: use one command for it"));
            }
        }
        for name in &args.env {
            let bad = |why: &str| Err(Fail::Usage(format!("`--env {name}`: {why}")));
            if name.starts_with(OWN_PREFIX) {
                return bad("this prefix is reserved for the worker: omit the variable");
            }
            if std::env::var_os(name).is_none() {
                return bad("the variable is not set: set it for the worker, or omit it");
            }
        }
        let environment =
            Commands { environment: args.env.iter().map(|name| name.as_str().into()).collect(), ..Commands::default() };
        let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_else(|_| "worker".to_owned());
        let name = args.name.clone().unwrap_or_else(|| format!("{}-{}", machine.trim(), std::process::id()));
        let host = match &args.host {
            Some(url) => RemoteHost::at(url, token(args)?)?,
            None => RemoteHost::for_store(&args.store.place()?)?,
        };
        let guard = super::guard::guard()
            .map_err(|error| Fail::Other(format!("the running program cannot be found: {error}")))?;
        Ok(Self { name, commands, host, guard, environment })
    }

    fn line(&self, slots: u16) -> String {
        let tools: Vec<&str> = self.commands.keys().map(String::as_str).collect();
        format!("worker {} answers calls of {}, {slots} at a time (Ctrl-C ends it)", self.name, tools.join(", "))
    }

    /// Answers calls one after the other until the worker shuts down.
    ///
    /// # Errors
    /// If the host refuses this worker permanently.
    async fn run_slot(self: Arc<Self>, mut stop: StopSignal) -> Result<(), Fail> {
        let tools: Vec<&str> = self.commands.keys().map(String::as_str).collect();
        let mut wait = RETRY_DELAY;
        loop {
            let asked_at = Instant::now();
            let taking = self.host.take(&self.name, &tools);
            tokio::pin!(taking);
            let taken = tokio::select! {
                biased;
                () = stop.requested() => {
                    // Return a call that arrives during the shutdown: other workers need not wait for its lease.
                    if let Ok(Ok(Some(call))) = timeout(LAST_RESPONSE_TIMEOUT, &mut taking).await {
                        // If this fails, another worker gets the call when its lease expires.
                        drop(timeout(LAST_RESPONSE_TIMEOUT, self.return_call(&call)).await);
                    }
                    return Ok(());
                }
                taken = &mut taking => taken,
            };
            match taken {
                Ok(Some(call)) => {
                    if self.answer(call, asked_at, &mut stop).await {
                        wait = RETRY_DELAY;
                        continue;
                    }
                    // Wait: a host that keeps leasing calls that must not start would cause a busy loop.
                    wait = (wait * 2).min(self.host.longest_wait());
                }
                Ok(None) => wait = RETRY_DELAY,
                Err(HostError::Refused(why) | HostError::Lost(why)) => return Err(Fail::Other(why)),
                Err(HostError::Unavailable(why)) => {
                    if wait == RETRY_DELAY {
                        drop(print_note(&format!("{why}; retrying")));
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

    /// Answers a call that was leased after `asked_at`. Returns false if the call was returned unstarted.
    async fn answer(&self, call: LeasedCall, asked_at: Instant, stop: &mut StopSignal) -> bool {
        let lease = Duration::from_millis(call.lease_ms);
        let until = match asked_at.checked_add(lease) {
            Some(until) => self.confirm_lease(&call, until, stop).await,
            None => None,
        };
        // The lease may have expired while this process was suspended.
        let until = until.filter(|until| Instant::now() < *until);
        let (Some(until), Some(command)) = (until, self.commands.get(&call.tool)) else {
            self.return_call(&call).await;
            return false;
        };
        let started = Instant::now();
        let mut program = match Program::start((&self.guard, &self.environment), command, &call).await {
            Ok(program) => program,
            Err(why) => {
                self.complete(&call, WorkerResult::error(why), (until, stop)).await;
                return true;
            }
        };
        match self.wait_with_renewal(&mut program, &call, until).await {
            Some((result, until)) => {
                drop(print_note(&format!(
                    "{} {}: {} after {:.1?}",
                    call.tool,
                    call.call,
                    result.as_str(),
                    started.elapsed()
                )));
                self.complete(&call, result, (until, stop)).await;
            }
            None => program.kill().await,
        }
        true
    }

    /// Confirms the lease of a call, and returns its end; `None` if the call must not start, also because the worker shuts down.
    async fn confirm_lease(&self, call: &LeasedCall, until: Instant, stop: &mut StopSignal) -> Option<Instant> {
        loop {
            let sent = Instant::now();
            let renewed = tokio::select! {
                () = stop.requested() => return None,
                renewed = self.host.renew(&call.token, None, Duration::ZERO) => renewed,
            };
            match renewed {
                Ok(renewed) if renewed.stop => return None,
                Ok(renewed) => return sent.checked_add(Duration::from_millis(renewed.lease_ms)),
                Err(HostError::Unavailable(_)) if Instant::now() + RETRY_DELAY < until => sleep(RETRY_DELAY).await,
                Err(HostError::Unavailable(why) | HostError::Lost(why) | HostError::Refused(why)) => {
                    report(call, &format!("not started: {why}"));
                    return None;
                }
            }
        }
    }

    /// Waits for a program and renews the lease. Returns the result and the end of the lease; `None` if it is lost.
    async fn wait_with_renewal(
        &self,
        program: &mut Program,
        call: &LeasedCall,
        mut until: Instant,
    ) -> Option<(WorkerResult, Instant)> {
        let wait_for = |lease_ms: u64| Duration::from_millis(lease_ms / 3).clamp(RETRY_DELAY, MAX_HOLD);
        let mut wait = wait_for(call.lease_ms);
        loop {
            let (sent, progress) = (Instant::now(), program.progress());
            let renewal = self.host.renew(&call.token, progress.as_deref(), wait);
            let renewed = tokio::select! {
                biased;
                ended = program.wait_for_end(call.max_bytes) => return Some((ended, until)),
                renewed = renewal => renewed,
                () = sleep_until(until) => {
                    // After a suspension the program may have ended in time. The host decides about its result.
                    if let Ok(ended) = timeout(EXPIRED_LEASE_GRACE, program.wait_for_end(call.max_bytes)).await {
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
                Ok(renewed) => {
                    until = sent.checked_add(Duration::from_millis(renewed.lease_ms)).unwrap_or(until);
                    // The next lease may be shorter than the first one.
                    wait = wait.min(wait_for(renewed.lease_ms));
                    // Wait: a host that responds at once, without holding the request, would cause a busy loop.
                    let next = until.min(sent + wait);
                    if let Ok(ended) = timeout_at(next, program.wait_for_end(call.max_bytes)).await {
                        return Some((ended, until));
                    }
                }
                Err(HostError::Unavailable(_)) => tokio::select! {
                    ended = program.wait_for_end(call.max_bytes) => return Some((ended, until)),
                    () = sleep(RETRY_DELAY) => {}
                },
                Err(HostError::Lost(why) | HostError::Refused(why)) => {
                    report(call, &format!("killed: {why}"));
                    return None;
                }
            }
        }
    }

    /// Sends the result. Retries while the host is unavailable and the lease valid; only briefly at a shutdown.
    async fn complete(
        &self,
        call: &LeasedCall,
        mut result: WorkerResult,
        (mut until, stop): (Instant, &mut StopSignal),
    ) {
        let mut stopping = false;
        loop {
            match self.host.complete(&call.token, &result).await {
                Ok(()) => return,
                Err(HostError::Unavailable(_)) if Instant::now() < until => tokio::select! {
                    () = stop.requested(), if !stopping => {
                        (stopping, until) = (true, until.min(Instant::now() + LAST_RESULT_TIME));
                    }
                    () = sleep(RETRY_DELAY) => {}
                },
                // The host may refuse a result as too large: send the reason as an error, so that the model learns it.
                Err(HostError::Refused(why)) if matches!(result, WorkerResult::Ok { .. }) => {
                    result = WorkerResult::error(format!("the host refused the result: {why}"));
                }
                Err(HostError::Unavailable(why) | HostError::Lost(why) | HostError::Refused(why)) => {
                    return report(call, &format!("the result was refused: {why}"));
                }
            }
        }
    }

    /// Returns a call that was not started. If that fails, another worker gets it when its lease expires.
    async fn return_call(&self, call: &LeasedCall) {
        drop(self.host.complete(&call.token, &WorkerResult::NotStarted).await);
    }
}
