//! `--allow` and `--ask`: what the sessions of one command may do.

use std::path::{Path, PathBuf};

use subtend::config::{Config, FILE};
use subtend_agents::catalog::Catalog;
use subtend_session::authority::{Authority, Rule, RuleSet, Verdict, is_wide_address};
use subtend_session::near::unknown_agent;
use subtend_tools::policy::HostPolicy;
use subtend_tools::sandbox;
use subtend_tools::workspace::Workspace;

use super::super::data::StoreArgs;
use super::super::fail::Fail;
use super::super::{guidance, remote, servers, settings, trust};

/// Reads the rules of both options, on top of the default policy.
pub(super) fn read(
    allow: &[String],
    ask: &[String],
    (catalog, config): (&Catalog, &Config),
    workspace: &Workspace,
) -> Result<RuleSet, Fail> {
    rules(allow, ask, |rule| without_tool(rule, config).or_else(|| without_effect(rule, catalog, workspace)))
}

/// Returns what imported sessions may do at most: what a new session may do here, by the rules of both options.
pub(crate) fn of_imports(allow: &[String], ask: &[String], config: &Config) -> Result<Authority, Fail> {
    let policy = rules(allow, ask, |rule| without_tool(rule, config))?;
    let protected = HostPolicy::protected(&policy);
    Ok(Authority::of(policy).meet(&Authority::of(protected)))
}

fn rules(allow: &[String], ask: &[String], without_effect: impl Fn(&Rule) -> Option<String>) -> Result<RuleSet, Fail> {
    let mut policy = HostPolicy::default_for_workspace();
    let options = [("--allow", Verdict::Allow, allow), ("--ask", Verdict::Ask, ask)];
    for (option, verdict, words) in options {
        for word in words {
            let rule = HostPolicy::allow(word).map_err(|error| Fail::Usage(format!("{error} ({option})")))?;
            let rule = Rule { verdict, ..rule };
            if let Some(why) = without_effect(&rule) {
                return Err(Fail::Usage(format!("{why} ({option} {word})")));
            }
            policy.rules.push(rule);
        }
    }
    Ok(policy)
}

/// Rules of every session: targets of protected links and the user's own prompts ask, the user's configuration is denied. Their links may
/// lead into a workspace, such as one of dotfiles.
pub(super) fn bounds(store: &StoreArgs, workspace: &Workspace) -> Result<[RuleSet; 2], Fail> {
    let mut paths = store.kept()?;
    paths.extend(settings::user_file().and_then(|file| file.parent().map(Path::to_owned)));
    let all = [&*paths, &own_files(), &store.token_files()].concat();
    let kept = HostPolicy::kept(workspace.path(), &all).map_err(|error| Fail::Usage(error.to_string()))?;
    let readable = sandbox::places(workspace.path()).readable;
    if let Some((path, place)) = paths.iter().find_map(|path| Some((path, within(path, &readable)?))) {
        let (path, place) = (path.display(), place.display());
        let why = format!("{path} lies in {place}, which every command may read; name another directory (--data DIR)");
        return Err(Fail::Usage(why));
    }
    let mut asked = HostPolicy::linked(workspace.path());
    asked.rules.extend(HostPolicy::own(workspace.path(), &guidance::own_paths()).rules);
    Ok([asked, kept])
}

/// Returns the user's own files that decide what is used and started.
fn own_files() -> Vec<PathBuf> {
    let names = [FILE, trust::RECORD_FILE, servers::KNOWN];
    settings::user_file().into_iter().flat_map(|file| names.map(|name| file.with_file_name(name))).collect()
}

fn within<'a>(path: &Path, places: &'a [PathBuf]) -> Option<&'a PathBuf> {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    places.iter().find(|place| path.starts_with(place))
}

/// Returns why a rule has no effect in the command, or another one than it seems to have.
fn without_tool(rule: &Rule, config: &Config) -> Option<String> {
    if &*rule.action == "net.fetch" && &*rule.resource != "*" {
        let address = &rule.resource;
        if !cfg!(feature = "web") {
            return Some(format!("this build has no tool that fetches `{address}`: build it with the feature `web`"));
        }
        if !address.contains("://") && !address.starts_with('*') {
            return Some(format!("`{address}` matches no address: write `https://{address}/*`"));
        }
        if rule.verdict == Verdict::Allow && is_wide_address(address) {
            return Some(format!(
                "`{address}` names no single host, since `*` matches paths too and a host ends with `/`: write `https://HOST/*` for \
                 one host, or `https://*` for all"
            ));
        }
    }
    let unneeded = rule.action.starts_with("tool:") && !remote::needs(config, &rule.action);
    unneeded.then(|| {
        format!("no tool of the command needs `{}`: declare a remote tool (`remote_tools` in your own file), or leave it out", rule.action)
    })
}

/// Returns why a rule has no effect in this workspace; `None` if it has one.
fn without_effect(rule: &Rule, catalog: &Catalog, workspace: &Workspace) -> Option<String> {
    if let Some(agent) = rule.action.strip_prefix("task:").filter(|agent| !agent.contains('*')) {
        let names = catalog.names();
        return (!names.contains(agent)).then(|| unknown_agent(agent, names.iter().map(String::as_str)));
    }
    // An ask covers what is below; an allow is for the path that it spells out.
    let path = rule.resource.trim_end_matches('/');
    let names_directory = rule.verdict == Verdict::Allow
        && path == &*rule.resource
        && !path.contains('*')
        && rule.action.starts_with("fs.")
        && path != "."
        && workspace.path().join(path).is_dir();
    names_directory.then(|| {
        format!("`{path}` is a directory, and an allow covers no more than the path that it names: write `{path}/**`")
    })
}
