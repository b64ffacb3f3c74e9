//! The checks and files of a verb before anything is started.

use std::io::IsTerminal as _;
use std::sync::{Arc, Mutex, PoisonError};

use subtend::config::Config;
use subtend_actors::Options;
use subtend_agents::catalog::Catalog;
use subtend_host::workers::Workers;
use subtend_journal::Journal;
use subtend_session::authority::Authority;
use subtend_session::ids::Text;
use subtend_supervision::Lease;
use subtend_tools::policy::HostPolicy;
use subtend_tools::workspace::Workspace;

use super::super::data::StoreLocation;
use super::super::fail::Fail;
use super::super::servers::ServerPool;
use super::super::trust::Trust;
use super::super::{agents, checkpoints, client, guidance, remote, servers, settings, workspace, worktree};
use super::found_session::{About, FoundSession};
use super::{Screen, WorkArgs, choice, environments, limit, named, policy, price, setup};

/// The input of a verb before anything is started.
pub(super) struct PreparedWork {
    pub(super) parts: setup::Parts,
    pub(super) agent: Text,
    pub(super) model: Option<Text>,
    pub(super) servers: Vec<Text>,
    /// The most permissions of a new session.
    pub(super) opens: Authority,
    pub(super) found: Option<FoundSession>,
    /// Reads the files of the workspace again, for a process that outlives them.
    pub(super) files: Box<setup::FilesLoader>,
}

impl PreparedWork {
    /// Opens the store, unless the search for the session opened it already.
    pub(super) fn opened(self) -> Result<(Self, Journal), Fail> {
        let journal = match &self.found {
            Some(found) => found.journal.clone(),
            None => client::alone(&self.parts.place)?,
        };
        Ok((self, journal))
    }

    /// Checks everything that can be wrong before anything is started.
    pub(super) fn of(args: &WorkArgs, about: About<'_>, screen: &mut Screen) -> Result<Self, Fail> {
        if args.raw && std::io::stdout().is_terminal() {
            return Err(Fail::Usage("`--raw`: a terminal obeys what a model wrote: redirect the output".to_owned()));
        }
        let workspace = workspace::open(&args.workspace)?;
        let trust = Trust::settle(&workspace, args.trust, args.json)?;
        let catalog = trust.catalog(&workspace);
        let instructions = guidance::instructions(&workspace, trust);
        let skills = guidance::skills(&workspace, trust);
        let loaded = settings::load(&workspace, trust)?;
        let rules = policy::read(&args.allow, &args.ask, (&catalog, &loaded.config), &workspace)?;
        if !args.quiet {
            settings::warn(&loaded)?;
        }
        // Read here too, so that an invalid profile is reported before any work.
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
        let own = found.as_ref().map(FoundSession::own);
        let models = args.models.choose(&loaded, own)?;
        let pool = ServerPool::default();
        let mcp = pool.of(&workspace, trust, &loaded)?;
        if !args.quiet {
            servers::warn(&mcp)?;
        }
        let workers = args.workers.clone().map_or_else(|| remote::workers(&loaded.config), Ok)?;
        let tools = setup::tools_with(&loaded.config, &skills, Some(&mcp), &workers)?;
        // The permissions of a session are recorded when it is opened; this process does not change them.
        let bounds = policy::bounds(&args.store, &workspace)?;
        let protected = HostPolicy::protected(&rules);
        if !args.quiet && found.is_none() {
            let [linked, kept] = bounds.clone();
            setup::withheld(&tools, &rules, &[protected.clone(), linked, kept])
                .iter()
                .for_each(|why| screen.alert(why));
        }
        let opens = Authority::of(rules).meet(&Authority::of(protected));
        let of_new = catalog.get(&agent).filter(|_| found.is_none());
        screen.note(&models.line(of_new.map(|manifest| &**manifest)));
        told_place(&place, screen);
        if !args.quiet {
            guidance::warn_briefly(&[instructions.problems(), skills.problems()].concat())?;
            agents::warn_briefly(&agents::model::problems(&catalog, &loaded, args.models.model_text(), &tools))?;
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
        let worktrees = worktree::of(&place)?;
        let checkpoints = checkpoints::of(&place);
        let parts = setup::Parts {
            place,
            workspace,
            catalog,
            tools,
            workers: workers.clone(),
            models,
            prices,
            windows,
            caps,
            limits,
            bounds,
            dialects,
            instructions,
            skills,
            tool_options,
            options,
            hooks,
            load: Some(Box::new(environments::loader(args.store.clone(), slots, pool.clone(), workers.clone()))),
            files: None,
            at_home: found.as_ref().map(|found| found.root),
            worktrees,
            checkpoints,
            lease: Lease::default(),
            throttles: None,
            quiet,
        };
        let files = files_again(Arc::clone(&parts.workspace), args.trust, pool, workers);
        Ok(Self { parts, agent, model, servers, opens, found, files })
    }
}

/// Returns a loader that reads agents, instruction files, skills and MCP servers again. Permissions, limits and remote tools do not change.
fn files_again(workspace: Arc<Workspace>, flag: bool, pool: ServerPool, workers: Workers) -> Box<setup::FilesLoader> {
    let last = Mutex::new(None);
    Box::new(move || {
        // The person may have trusted the workspace since, and a command may have made files since.
        let trust = if flag { Trust::GIVEN } else { Trust::silent(&workspace)? };
        let loaded = settings::load(&workspace, trust)?;
        let (catalog, skills) = (trust.catalog(&workspace), guidance::skills(&workspace, trust));
        let instructions = guidance::instructions(&workspace, trust);
        let list = servers::list(&workspace, trust, &loaded)?;
        let servers = pool.of(&workspace, trust, &loaded)?;
        let read = Some((catalog.clone(), skills.clone(), instructions.clone(), list, loaded.config.clone()));
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        if *last == read {
            return Ok(None);
        }
        let tools = setup::tools_with(&loaded.config, &skills, Some(&servers), &workers)?;
        *last = read;
        Ok(Some(setup::WorkspaceFiles { catalog, instructions, skills, tools }))
    })
}

/// Refuses an agent whose file is refused, and one that names a script where that is to answer.
fn usable(catalog: &Catalog, agent: &str, named: bool) -> Result<(), Fail> {
    if let Some(why) = agents::lookup::refused(catalog, agent) {
        return Err(Fail::Usage(why));
    }
    let model = catalog.get(agent).and_then(|manifest| manifest.model.clone());
    match model.filter(|_| !named).map(|model| choice::no_script(&model)) {
        Some(Err(why)) => Err(Fail::Usage(format!("the model of the agent `{agent}` cannot answer: {why}"))),
        Some(Ok(())) | None => Ok(()),
    }
}

fn told_place(place: &StoreLocation, screen: &mut Screen) {
    if let Some(path) = place.path().filter(|path| !path.exists()) {
        screen.note(&format!("sessions are kept in {} (--data DIR names another directory)", path.display()));
    }
}
