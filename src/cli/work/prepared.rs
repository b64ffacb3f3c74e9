//! Checks options and files before anything is started.

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
use subtend_tools::mcp::Servers;
use subtend_tools::policy::HostPolicy;
use subtend_tools::workspace::Workspace;

use super::super::data::StoreLocation;
use super::super::fail::Fail;
use super::super::paint::harmless;
use super::super::servers::ServerPool;
use super::super::trust::Trust;
use super::super::{agents, checkpoints, client, guidance, remote, servers, settings, workspace, worktrees};
use super::found_session::{CommandSubject, FoundSession, HereArgs};
use super::{Screen, WorkArgs, choice, environments, limit, policy, price, replaced_model, setup};

/// The inputs of a command before anything is started.
pub(super) struct PreparedWork {
    pub(super) parts: setup::Parts,
    pub(super) agent: Text,
    pub(super) model: Option<Text>,
    pub(super) servers: Vec<Text>,
    /// MCP servers of the workspace.
    pub(super) mcp: Servers,
    /// MCP servers of all workspaces of this process.
    pub(super) pool: ServerPool,
    /// Maximum permissions of a new session.
    pub(super) authority: Authority,
    pub(super) found: Option<FoundSession>,
    /// Reloads the files of the workspace, for a long-lived process.
    pub(super) files: Box<setup::FilesLoader>,
}

impl PreparedWork {
    /// Opens the store, unless the lookup of the session has already opened it.
    pub(super) fn open_store(self) -> Result<(Self, Journal), Fail> {
        let journal = match &self.found {
            Some(found) => found.journal.clone(),
            None => client::open_exclusive(&self.parts.place)?,
        };
        Ok((self, journal))
    }

    pub(super) fn of(args: &WorkArgs, about: CommandSubject<'_>, screen: &mut Screen) -> Result<Self, Fail> {
        if args.raw && std::io::stdout().is_terminal() {
            return Err(Fail::Usage("`--raw` cannot be used at a terminal, which would obey control characters of the model: redirect the output".to_owned()));
        }
        let place = args.store.place()?;
        let (found, workspace, trust) = args.find(about, &place, screen)?;
        let catalog = trust.catalog(&workspace)?;
        let instructions = guidance::instructions(&workspace, trust)?;
        let skills = guidance::skills(&workspace, trust)?;
        let loaded = settings::load(&workspace, trust)?;
        let rules = policy::read(&args.allow, &args.ask, (&catalog, &loaded.config), &workspace)?;
        if !args.quiet {
            settings::warn(&loaded)?;
        }
        // Checked here, so that an invalid profile is reported before the start.
        let dialects = settings::dialects(&loaded, &workspace)?;
        if let Some(why) = agents::model::unusable(&loaded, &catalog) {
            return Err(Fail::Usage(why));
        }
        let (limits, host) = limit::read_limits(&args.limit, &args.host, &loaded)?;
        let prices = price::read(&args.price, loaded.config.prices.clone())?;
        let agent: Text = match about {
            CommandSubject::New(Some(name)) => name.into(),
            CommandSubject::New(None) | CommandSubject::Session(..) => loaded.config.agent.clone(),
        };
        if let CommandSubject::New(_) = about {
            check_agent(&catalog, &agent, args.models.is_model_given())?;
        }
        let own = found.as_ref().map(FoundSession::recorded_model);
        let models = args.models.choose(&loaded, own)?;
        let pool = ServerPool::default();
        let mcp = pool.for_workspace(&workspace, trust, &loaded)?;
        if !args.quiet {
            servers::warn(&mcp)?;
        }
        let workers = args.workers.clone().map_or_else(|| remote::workers(&loaded.config), Ok)?;
        let tools = setup::tools_with(&loaded.config, &skills, Some(&mcp), &workers)?;
        // An existing session keeps its recorded permissions.
        let bounds = policy::session_rules(&args.store, &workspace)?;
        let protected = HostPolicy::protected_files(&rules);
        if !args.quiet && found.is_none() {
            let [linked, kept] = bounds.clone();
            setup::withheld_tool_reasons(&tools, &rules, &[protected.clone(), linked, kept])
                .iter()
                .for_each(|why| screen.alert(why));
        }
        let authority = Authority::of(rules).meet(&Authority::of(protected));
        let of_new = catalog.get(&agent).filter(|_| found.is_none());
        screen.note(&models.line(of_new.map(|manifest| &**manifest)));
        note_new_store(&place, screen);
        if !args.quiet {
            guidance::warn_briefly(&[instructions.problems(), skills.problems()].concat())?;
            agents::warn_briefly(&agents::model::problems(&catalog, &loaded, args.models.model_text(), &tools))?;
        }
        let model = args.models.is_model_given().then(|| models.name());
        let servers = models.recorded_servers();
        let hooks = match (&found, &model) {
            // A hook makes model calls wait for the journal, so none is used if the recorded model stays.
            (Some(found), Some(model)) if *model != found.creation.model || found.has_agent_override()? => {
                Some(replaced_model::replacing_hook(found, model, &models, &prices)?)
            }
            _ => None,
        };
        if let Some(found) = &found {
            limit::describe_lowered(found, &host)?.iter().for_each(|text| screen.alert(text));
        }
        let (tool_options, windows) = (loaded.config.tool_options(), loaded.config.llm.windows());
        let caps = loaded.config.llm.caps();
        let options = Config { host, ..loaded.config }.options(models.calls_servers());
        let titles = options.titles && !models.is_offline();
        let slots = u32::try_from(options.slots).unwrap_or(u32::MAX);
        let (quiet, options) = (args.quiet, Options { titles, ..options });
        let worktrees = worktrees::for_store(&place)?.map(|worktrees| worktrees.at_most(host.worktree_mib));
        let checkpoints = checkpoints::for_store(&place);
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
            home_root: found.as_ref().map(|found| found.root),
            worktrees,
            checkpoints,
            lease: Lease::default(),
            throttles: None,
            quiet,
        };
        let files = reload_files(Arc::clone(&parts.workspace), args.trust, pool.clone(), workers);
        Ok(Self { parts, agent, model, servers, mcp, pool, authority, found, files })
    }
}

impl WorkArgs {
    /// Finds the session, opens its directory, and decides about trust. The store is not held while a person is asked.
    fn find(
        &self,
        about: CommandSubject<'_>,
        place: &StoreLocation,
        screen: &mut Screen,
    ) -> Result<(Option<FoundSession>, Arc<Workspace>, Trust), Fail> {
        let found = about.find(place)?;
        let is_here = matches!(about, CommandSubject::Session(_, HereArgs { here: true }));
        let (workspace, is_own) = self.open_workspace(found.as_ref().filter(|_| !is_here), screen)?;
        let decide = || match is_own {
            true => Trust::decide_by_record_or_ask(&workspace, self.json),
            false => Trust::decide_or_ask(&workspace, self.trust, self.json),
        };
        if found.is_none() || self.trust || !Trust::asks(&workspace, self.json)? {
            let trust = decide()?;
            return Ok((found, workspace, trust));
        }
        drop(found);
        let trust = decide()?;
        Ok((about.find(place)?, workspace, trust))
    }

    /// Opens the directory of this command, or the session's own directory. The flag is true for the latter.
    fn open_workspace(
        &self,
        found: Option<&FoundSession>,
        screen: &mut Screen,
    ) -> Result<(Arc<Workspace>, bool), Fail> {
        let here = workspace::open(self.directory())?;
        let own = found.map_or(Ok(None), |found| found.own_directory(here.path(), self.workspace.is_some()))?;
        let Some(own) = own else { return Ok((here, false)) };
        let shown = harmless(&own.display().to_string());
        if self.trust {
            return Err(Fail::Usage(format!(
                "`--trust` means this directory, and the session works in {shown}: name that one with `--workspace`, or trust it with \
                 `subtend trust`"
            )));
        }
        screen.note(&format!("the session works in its own directory, {shown}"));
        Ok((workspace::open_recorded(&own)?, true))
    }
}

/// Returns a loader of agents, instruction files, skills and MCP servers. Permissions, limits and remote tools stay.
fn reload_files(workspace: Arc<Workspace>, flag: bool, pool: ServerPool, workers: Workers) -> Box<setup::FilesLoader> {
    let last = Mutex::new(None);
    Box::new(move || {
        // Trust and files may have changed since the start.
        let trust = if flag { Trust::GIVEN } else { Trust::decide(&workspace)? };
        let loaded = settings::load(&workspace, trust)?;
        let (catalog, skills) = (trust.catalog(&workspace)?, guidance::skills(&workspace, trust)?);
        let instructions = guidance::instructions(&workspace, trust)?;
        let list = servers::list(&workspace, trust, &loaded)?;
        let servers = pool.for_workspace(&workspace, trust, &loaded)?;
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

/// Refuses an agent whose file is refused. Refuses a script as the model of an agent, unless an option names the model.
fn check_agent(catalog: &Catalog, agent: &str, has_model_option: bool) -> Result<(), Fail> {
    if let Some(why) = catalog.refusal(agent) {
        return Err(Fail::Usage(why));
    }
    let model = catalog.get(agent).and_then(|manifest| manifest.model.clone());
    match model.filter(|_| !has_model_option).map(|model| choice::check_no_script(&model)) {
        Some(Err(why)) => Err(Fail::Usage(format!("the model of the agent `{agent}` cannot answer: {why}"))),
        Some(Ok(())) | None => Ok(()),
    }
}

fn note_new_store(place: &StoreLocation, screen: &mut Screen) {
    if let Some(path) = place.path().filter(|path| !path.exists()) {
        screen.note(&format!("sessions are stored in {} (--data DIR names another directory)", path.display()));
    }
}
