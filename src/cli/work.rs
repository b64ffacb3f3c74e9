//! Verbs that let agents work: what they share, from options to the followed run.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use subtend::config::Config;
use subtend_actors::event::Subscription;
use subtend_actors::{Approver, BootReport, OpenOptions, Options, Receipt, Runtime, SessionHandle};
use subtend_agents::catalog::Catalog;
use subtend_host::{Host, HostOptions};
use subtend_session::authority::Authority;
use subtend_session::ids::{RunNo, Seq, SessionId, Text};
use subtend_tools::policy::HostPolicy;
use subtend_tools::workspace::Workspace;

use super::data::{Place, StoreArgs};
use super::fail::{Code, Fail};
use super::paint::{count, harmless};
use super::trust::Trust;
use super::{agents, cause, client, settings, workspace};
use approve::Approving;
use choice::ModelArgs;
use here::Found;
use listening::Listening;
use watch::Watch;

pub(crate) use here::{About, HereArgs};
pub(crate) use hosted::{Hosting, hosted};
pub(crate) use screen::Screen;
pub(crate) use stop::Stop;

pub(crate) mod approve;
pub(crate) mod background;
pub(crate) mod brief;
pub(crate) mod choice;
pub(crate) mod diff;
mod environments;
pub(crate) mod face;
mod here;
mod hosted;
pub(crate) mod hub;
mod limit;
mod listening;
mod live;
mod named;
mod other_clients;
pub(crate) mod policy;
mod price;
pub(crate) mod prompt;
pub(crate) mod remote;
mod report;
mod screen;
pub(crate) mod serve;
mod stop;
mod stream;
mod view;
mod watch;

/// Time for an orderly end after the run.
const GRACE: Duration = Duration::from_secs(5);

/// What a title is waited for at the end of a verb.
const NAMING: Duration = Duration::from_secs(3);

/// Options of verbs that let agents work.
#[derive(clap::Args, Debug)]
pub(crate) struct WorkArgs {
    /// Directory to work in
    #[arg(long, value_name = "DIR", default_value = ".")]
    workspace: PathBuf,

    /// Allow an action beyond reading the workspace, such as `fs.write=src/**` or `shell.run`; may be given again
    #[arg(long, value_name = "ACTION[=PATTERN]")]
    allow: Vec<String>,

    /// Ask before an action, such as `fs.write` or `shell.run`: on a terminal you are asked, elsewhere it is denied; may be
    /// given again
    #[arg(long, value_name = "ACTION[=PATTERN]")]
    ask: Vec<String>,

    /// Change a limit of a new session and all below it, such as `turns=10`, `live_runs=8` or `first_byte_ms=30000`; may be given
    /// again
    #[arg(long, value_name = "NAME=VALUE")]
    limit: Vec<String>,

    /// Change a bound of this process, such as `slots=1000`: `slots`, `inbox`, `events` or `idle_ms`; may be given again
    #[arg(long, value_name = "NAME=VALUE")]
    host: Vec<String>,

    /// What a model costs, in US dollars a million tokens, for a limit of money (`--limit cost_micro=500000` is half a dollar);
    /// a name may end with `*`; may be given again
    #[arg(long, value_name = "MODEL=IN,OUT[,CACHE_READ[,CACHE_NEW[,REASONING]]]")]
    price: Vec<String>,

    /// Use the configuration and the agents of a workspace that you have not trusted; this time only
    #[arg(long)]
    trust: bool,

    /// Print every event as a line of JSON on stdout, last the end of the run
    #[arg(long)]
    pub(crate) json: bool,

    /// Print the answer as the model wrote it, with control characters and others that cannot be seen; not at a terminal
    #[arg(long, conflicts_with = "json")]
    raw: bool,

    /// Tell nothing on stderr but errors, and what of the workspace is left aside
    #[arg(long)]
    quiet: bool,

    #[command(flatten)]
    pub(crate) store: StoreArgs,

    #[command(flatten)]
    models: ModelArgs,
}

/// A runtime at work for one verb, with where it tells what happens.
pub(crate) struct Work<'a> {
    /// The verb's options.
    pub(crate) args: &'a WorkArgs,
    /// The runtime.
    pub(crate) runtime: &'a Runtime,
    /// The session that the verb is about, if that is there.
    session: Option<SessionId>,
    /// The run of that session that an earlier process left, and that goes on here.
    pub(crate) left: Option<RunNo>,
    /// The last record of that session before the start.
    pub(crate) since: Seq,
    /// Where progress is told.
    pub(crate) screen: &'a mut Screen,
    /// Whether we were asked to stop.
    pub(crate) stop: &'a mut Stop,
    /// What new sessions are opened with.
    pub(crate) opens: OpenOptions,
    /// The files that agents work on.
    pub(crate) workspace: Arc<Workspace>,
    /// A person at the terminal: there from the start on, so that nothing that goes on or that an input leads to finds nobody.
    pub(crate) approver: Option<Approver>,
}

impl WorkArgs {
    /// Refuses options that have no effect where clients follow the runs.
    ///
    /// # Errors
    /// [`Fail::Usage`], with what to do.
    pub(crate) fn not_for_host(&self) -> Result<(), Fail> {
        if self.raw {
            return Err(Fail::Usage("`--raw`: a host prints no answers; leave it out".to_owned()));
        }
        Ok(())
    }

    /// Refuses limits and permissions for a session that exists: it keeps those that it was opened with.
    ///
    /// # Errors
    /// [`Fail::Usage`], with what to do.
    pub(crate) fn not_for_opened(&self) -> Result<(), Fail> {
        if let Some(limit) = self.limit.first() {
            return Err(Fail::Usage(format!(
                "`--limit {limit}`: a session keeps the limits that it was opened with; open another one with it (`subtend run`), or \
                 give a run of this one more turns (`subtend continue --turns N`)"
            )));
        }
        let allow = self.allow.first().map(|rule| ("--allow", rule));
        let Some((option, rule)) = allow.or_else(|| self.ask.first().map(|rule| ("--ask", rule))) else {
            return Ok(());
        };
        Err(Fail::Usage(format!(
            "`{option} {rule}`: a session keeps the permissions that it was opened with; open another one with it (`subtend run \
             {option} {rule}`)"
        )))
    }
}

/// Starts a runtime, does `job` in it, and takes it down again. A person at the terminal is asked for their word.
pub(crate) fn verb<J>(args: &WorkArgs, about: About<'_>, job: J) -> Result<Code, Fail>
where
    J: AsyncFnOnce(Work<'_>) -> Result<Code, Fail>,
{
    verb_asking(args, about, |_| true, job)
}

/// As [`verb`], where a person is asked only if `asked`: what is asked and not shown would wait for nobody.
pub(crate) fn verb_asking<J>(
    args: &WorkArgs,
    about: About<'_>,
    asked: impl FnOnce(&Screen) -> bool,
    job: J,
) -> Result<Code, Fail>
where
    J: AsyncFnOnce(Work<'_>) -> Result<Code, Fail>,
{
    let mut screen = Screen::new(args.quiet, args.json);
    let ready = Ready::of(args, about, &mut screen)?;
    let (mut parts, place) = (ready.parts, args.store.place()?);
    let opens = OpenOptions {
        model: ready.model,
        servers: ready.servers,
        policy: Some(ready.opens),
        ..OpenOptions::agent(ready.agent)
    };
    screen.show_calls_by(parts.tools.clone());
    let session = ready.found.as_ref().map(|found| found.session);
    let journal = ready.found.map_or_else(|| client::alone(&parts.place), |found| Ok(found.journal))?;
    let threads = threads()?;
    let done = threads.block_on(async {
        let mut stop = Stop::listen()?;
        let left = session.map_or(Ok(None), |session| here::left(&journal, session))?;
        let since = session.map_or(Ok(Seq(0)), |session| here::last(&journal, session))?;
        parts.options.recovery_scope = here::takes_up(session);
        let workspace = Arc::clone(&parts.workspace);
        let attended = approve::is_somebody_there(args.json || args.quiet) && asked(&screen);
        let (runtime, approver) = tokio::select! {
            started = hub::start(journal, parts, attended) => started?,
            () = stop.asked() => {
                screen.alert("cancelled before the prompt was sent");
                return Ok(Code::Cancelled);
            }
        };
        recovered(runtime.boot(), &mut screen);
        let options = HostOptions { approvals: attended, open: opens.clone(), ..HostOptions::default() };
        let host = Host::new(runtime, options);
        let listening = Listening::begin(&place, &host, &mut screen);
        let (screen, stop) = (&mut screen, &mut stop);
        let runtime = host.runtime();
        let before: Vec<_> = runtime.journal().inflight()?.into_iter().map(|(id, _)| id).collect();
        let done = job(Work { args, runtime, session, left, since, screen, stop, opens, workspace, approver }).await;
        other_clients::ended(runtime, &before, screen, stop).await;
        named(runtime, stop).await;
        hub::full_disk(runtime);
        host.ends().cancel();
        listening.end(screen).await;
        if host.shutdown(GRACE).await.is_none() {
            screen.alert("a request held the host beyond its end: runs in flight are recovered by the next start");
        }
        done
    });
    // A tool that is stuck in a system call must not keep the process.
    threads.shutdown_timeout(Duration::from_secs(1));
    done
}

/// Waits a little for the title of a session that was begun here: it is asked for beside the run, and mostly there before its end.
async fn named(runtime: &Runtime, stop: &mut Stop) {
    tokio::select! {
        _ = tokio::time::timeout(NAMING, runtime.services_done()) => {}
        () = stop.asked() => {}
    }
}

/// The threads that a runtime works on.
pub(crate) fn threads() -> Result<tokio::runtime::Runtime, Fail> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Fail::Other(format!("the system gives no threads to work with: {error}")))
}

impl Work<'_> {
    /// The session that the verb is about.
    pub(crate) fn session(&self) -> Result<SessionHandle, Fail> {
        let session = match self.session {
            Some(session) => self.runtime.session(session)?,
            None => None,
        };
        session.ok_or_else(|| Fail::Other("the session is not in the store any more".to_owned()))
    }

    /// Follows `run` of `session` to its end, shows what happens from where `events` begin, and tells the end. A run that is never
    /// opened counts as cancelled.
    pub(crate) async fn follow(
        &mut self,
        events: Subscription,
        session: &SessionHandle,
        run: RunNo,
    ) -> Result<Code, Fail> {
        let agent = self.agent_of(session.id())?;
        self.screen.watch(session.id(), agent);
        // Where the answer goes elsewhere, it is not printed here too.
        if std::io::stdout().is_terminal() {
            self.screen.hear(session.id());
        }
        let mut watch = Watch { session, events, screen: self.screen, json: self.args.json, ended: false };
        let approving = self.approver.take().map(|approver| Approving::by(approver, Arc::clone(&self.workspace)));
        let followed = watch.follow(run, self.stop, approving).await;
        self.screen.close();
        let Some(ended) = followed? else { return Ok(Code::Cancelled) };
        report::told(self.args.face(), self.screen, session.id(), &ended)?;
        Ok(cause::code(&ended.outcome))
    }

    /// Follows the run that takes an input, as [`Work::follow`], and tells what to do with the input if no run took it: the one before
    /// was cancelled by Ctrl-C, say, while it still did what an earlier process had begun.
    pub(crate) async fn answer(
        &mut self,
        events: Subscription,
        session: &SessionHandle,
        receipt: &Receipt,
    ) -> Result<Code, Fail> {
        let code = self.follow(events, session, receipt.run).await?;
        let (input, kept) = (receipt.input, self.args.store.place()?.path().is_some());
        if kept && session.queue().await?.iter().any(|entry| entry.id == input) {
            let (name, again) = (session.id().short().0, self.args.store.again());
            self.screen.alert(&format!(
                "the input was not taken and waits in session {name}: `subtend continue {name}{again}` goes on with it, `subtend \
                 queue {name}{again} remove {input}` takes it back"
            ));
        }
        Ok(code)
    }

    /// The agent of a session, for the tree.
    pub(crate) fn agent_of(&self, session: SessionId) -> Result<Text, Fail> {
        Ok(self.runtime.journal().head(session)?.map_or_else(|| "?".into(), |head| head.agent))
    }
}

/// What a verb needs before anything is started.
struct Ready {
    parts: hub::Parts,
    agent: Text,
    model: Option<Text>,
    servers: Vec<Text>,
    /// What a new session may do at most.
    opens: Authority,
    found: Option<Found>,
}

impl Ready {
    /// Checks everything that can be wrong before anything is started.
    fn of(args: &WorkArgs, about: About<'_>, screen: &mut Screen) -> Result<Self, Fail> {
        if args.raw && std::io::stdout().is_terminal() {
            return Err(Fail::Usage("`--raw`: a terminal obeys what a model wrote: redirect the output".to_owned()));
        }
        let workspace = workspace::open(&args.workspace)?;
        let trust = Trust::settle(&workspace, args.trust, args.json)?;
        let catalog = trust.catalog(&workspace);
        let rules = policy::read(&args.allow, &args.ask, &catalog, &workspace)?;
        let loaded = settings::load(&workspace, trust)?;
        if !args.quiet {
            settings::warn(&loaded)?;
        }
        // Read here too: a profile that cannot be used is a mistake to be told before any work is done.
        let dialects = settings::dialects(&loaded, &workspace)?;
        if let Some(why) = agents::model::unusable(&loaded, &catalog) {
            return Err(Fail::Usage(why));
        }
        let (limits, host) = limit::bounds(&args.limit, &args.host, &loaded)?;
        let prices = price::read(&args.price, loaded.config.prices.clone())?;
        let agent: Text = match about {
            About::New(Some(name)) => name.into(),
            About::New(None) | About::Session(..) => loaded.config.agent.clone(),
        };
        if let About::New(_) = about {
            usable(&catalog, &agent, args.models.is_given())?;
        }
        let place = args.store.place()?;
        let found = about.find(&place, &workspace)?;
        let own = found.as_ref().map(Found::own);
        let models = args.models.choose(&loaded, own)?;
        let tools = hub::tools_with(loaded.config.commands())?;
        // What a session may do is recorded when it is opened; this process adds nothing, and takes nothing away.
        let bounds = policy::bounds(&args.store, &workspace)?;
        let protected = HostPolicy::protected(&rules);
        if !args.quiet && found.is_none() {
            let [linked, kept] = bounds.clone();
            hub::withheld(&tools, &rules, &[protected.clone(), linked, kept]).iter().for_each(|why| screen.alert(why));
        }
        let opens = Authority::of(rules).meet(&Authority::of(protected));
        let of_new = catalog.get(&agent).filter(|_| found.is_none());
        screen.note(&models.line(of_new.map(|manifest| &**manifest)));
        told_place(&place, screen);
        if !args.quiet {
            agents::warn(&agents::model::problems(&catalog, &loaded, args.models.words(), &tools))?;
        }
        let model = args.models.is_given().then(|| models.name());
        let servers = models.recorded();
        let hooks = match (&found, &model) {
            // The same model needs no detour, by which its calls would wait for the journal.
            (Some(found), Some(model)) if *model != found.birth.model || found.overridden()? => {
                Some(named::answering(found, model, &models, &prices)?)
            }
            _ => None,
        };
        if let Some(found) = &found {
            limit::lowered(found, &host)?.iter().for_each(|text| screen.alert(text));
        }
        let (tool_options, windows) = (loaded.config.tool_options(), loaded.config.llm.windows());
        let caps = loaded.config.llm.caps();
        let options = Config { host, ..loaded.config }.options(models.calls_servers());
        let titles = options.titles && !models.is_offline();
        let slots = u32::try_from(options.slots).unwrap_or(u32::MAX);
        let (quiet, options) = (args.quiet, Options { titles, ..options });
        let parts = hub::Parts {
            place,
            workspace,
            catalog,
            tools,
            models,
            prices,
            windows,
            caps,
            limits,
            bounds,
            dialects,
            tool_options,
            options,
            hooks,
            load: Some(Box::new(environments::loader(args.store.clone(), slots))),
            at_home: found.as_ref().map(|found| found.root),
            quiet,
        };
        Ok(Self { parts, agent, model, servers, opens, found })
    }
}

/// Refuses an agent whose file is refused, and one that names a script where that is to answer.
fn usable(catalog: &Catalog, agent: &str, named: bool) -> Result<(), Fail> {
    if let Some(why) = super::agents::lookup::refused(catalog, agent) {
        return Err(Fail::Usage(why));
    }
    let model = catalog.get(agent).and_then(|manifest| manifest.model.clone());
    match model.filter(|_| !named).map(|model| choice::no_script(&model)) {
        Some(Err(why)) => Err(Fail::Usage(format!("the model of the agent `{agent}` cannot answer: {why}"))),
        Some(Ok(())) | None => Ok(()),
    }
}

fn told_place(place: &Place, screen: &mut Screen) {
    if let Some(path) = place.path().filter(|path| !path.exists()) {
        screen.note(&format!("sessions are kept in {} (--data DIR for another place)", path.display()));
    }
}

/// Tells what an earlier process left.
fn recovered(boot: &BootReport, screen: &mut Screen) {
    if boot.swept > 0 {
        let runs = count(boot.swept as u64, "run");
        screen.note(&format!(
            "an earlier process ended with {runs} in flight, which ended as lost: `subtend sessions` lists them"
        ));
    }
    if boot.resumed > 0 {
        let runs = count(boot.resumed as u64, "run");
        let go = if boot.resumed == 1 { "goes" } else { "go" };
        screen.note(&format!(
            "an earlier process ended with {runs} in flight that {go} on now: `subtend sessions` lists them"
        ));
    }
    if boot.staying > 0 {
        let runs = count(boot.staying as u64, "run");
        let stay = if boot.staying == 1 { "stays as it is" } else { "stay as they are" };
        screen.note(&format!(
            "an earlier process ended with {runs} of other sessions in flight that {stay}: `subtend continue ID` lets one go on"
        ));
    }
    if boot.inputs > 0 {
        let wait = if boot.inputs == 1 { "waits" } else { "wait" };
        screen.note(&format!(
            "{} {wait} behind runs that ended: `subtend queue ID` lists them, `subtend continue ID` takes them up",
            count(boot.inputs as u64, "input")
        ));
    }
    if let Some(first) = boot.undone.first() {
        let things = count(boot.undone.len() as u64, "thing");
        let session = first.session.map_or_else(String::new, |session| format!("session {session}: "));
        screen.alert(&format!(
            "{things} that an earlier process left could not be brought to an end, such as this: {session}{} (`subtend recover` \
             lists all)",
            harmless(&first.why)
        ));
    }
}
