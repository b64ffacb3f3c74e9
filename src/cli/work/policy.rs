//! Permissions of a command's sessions, from `--allow` and `--ask`.

use std::path::{Path, PathBuf};

use subtend::config::{Config, FILE};
use subtend_agents::catalog::Catalog;
use subtend_session::authority::{Authority, Rule, RuleSet, Verdict, is_wide_address};
use subtend_session::near::unknown_agent;
use subtend_tools::message;
use subtend_tools::policy::HostPolicy;
use subtend_tools::sandbox;
use subtend_tools::workspace::Workspace;

use super::super::data::StoreArgs;
use super::super::fail::Fail;
use super::super::{guidance, remote, servers, settings, trust};

/// Adds the rules of both options to the default policy.
pub(super) fn read(
    allow: &[String],
    ask: &[String],
    (catalog, config): (&Catalog, &Config),
    workspace: &Workspace,
) -> Result<RuleSet, Fail> {
    rules(allow, ask, |rule| {
        missing_tool_error(rule, config).or_else(|| ineffective_rule_error(rule, catalog, workspace))
    })
}

/// Returns the maximum permissions of imported sessions: those of a new session with the rules of both options.
pub(crate) fn for_imports(allow: &[String], ask: &[String], config: &Config) -> Result<Authority, Fail> {
    let policy = rules(allow, ask, |rule| missing_tool_error(rule, config))?;
    let protected = HostPolicy::protected_files(&policy);
    Ok(Authority::of(policy).meet(&Authority::of(protected)))
}

fn rules(allow: &[String], ask: &[String], rule_error: impl Fn(&Rule) -> Option<String>) -> Result<RuleSet, Fail> {
    let mut policy = HostPolicy::default_for_workspace();
    let options = [("--allow", Verdict::Allow, allow), ("--ask", Verdict::Ask, ask)];
    for (option, verdict, words) in options {
        for word in words {
            let rule = HostPolicy::allow(word).map_err(|error| Fail::Usage(format!("{error} ({option})")))?;
            let rule = Rule { verdict, ..rule };
            if let Some(why) = rule_error(&rule) {
                return Err(Fail::Usage(format!("{why} ({option} {word})")));
            }
            policy.rules.push(rule);
        }
    }
    Ok(policy)
}

/// Returns the rules that apply to every session. The first set requires approvals for writes to targets of protected
/// links, to the user's own prompts, and to trusted files in directories below. Such links may lead into a workspace,
/// for example one of dotfiles. The second set denies the user's configuration.
pub(super) fn session_rules(store: &StoreArgs, workspace: &Workspace) -> Result<[RuleSet; 2], Fail> {
    let mut paths = store.protected_paths()?;
    paths.extend(settings::unchecked_user_path(FILE).and_then(|file| file.parent().map(Path::to_owned)));
    let all = [&*paths, &user_files(), &store.token_files()].concat();
    let kept = HostPolicy::denied_host_paths(workspace.path(), &all).map_err(|error| Fail::Usage(error.to_string()))?;
    let readable = sandbox::places(workspace.path()).readable;
    if let Some((path, place)) = paths.iter().find_map(|path| Some((path, containing_dir(path, &readable)?))) {
        let (path, place) = (path.display(), place.display());
        let why =
            format!("{path} is inside of {place}, which every command may read; use another directory (--data DIR)");
        return Err(Fail::Usage(why));
    }
    let mut asked = HostPolicy::protected_links(workspace.path());
    let used_later = [guidance::user_paths(workspace.path())?, trust::files_below(workspace.path())?].concat();
    asked.rules.extend(HostPolicy::protected_user_paths(workspace.path(), &used_later).rules);
    Ok([asked, kept])
}

/// Returns the user's own files that control configuration, trust and servers.
fn user_files() -> Vec<PathBuf> {
    [FILE, trust::RECORD_FILE, servers::KNOWN_TOOLS_FILE, settings::LOGINS]
        .into_iter()
        .filter_map(settings::unchecked_user_path)
        .collect()
}

fn containing_dir<'a>(path: &Path, places: &'a [PathBuf]) -> Option<&'a PathBuf> {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    places.iter().find(|place| path.starts_with(place))
}

/// Returns an error for a rule that has no effect, or a misleading one.
fn missing_tool_error(rule: &Rule, config: &Config) -> Option<String> {
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
                "`{address}` is not limited to one host, since `*` also matches paths and a host ends with `/`: write `https://HOST/*` for \
                 one host, or `https://*` for all"
            ));
        }
    }
    // As in a manifest, a rule for `message` is valid even if agents cannot send messages.
    let tool = rule.action.strip_prefix("tool:");
    let unneeded = tool.is_some_and(|tool| tool != message::NAME) && !remote::may_be_needed(config, &rule.action);
    unneeded.then(|| {
        format!("no tool needs `{}`: declare a remote tool (`remote_tools` in your own file), or omit it", rule.action)
    })
}

/// Returns an error for a rule that has no effect in this workspace.
fn ineffective_rule_error(rule: &Rule, catalog: &Catalog, workspace: &Workspace) -> Option<String> {
    if let Some(agent) = rule.action.strip_prefix("task:").filter(|agent| !agent.contains('*')) {
        let names = catalog.names();
        return (!names.contains(agent)).then(|| unknown_agent(agent, names.iter().map(String::as_str)));
    }
    // An ask rule covers a whole directory; an allow rule only the exact path.
    let path = rule.resource.trim_end_matches('/');
    let names_directory = rule.verdict == Verdict::Allow
        && path == &*rule.resource
        && !path.contains('*')
        && rule.action.starts_with("fs.")
        && path != "."
        && workspace.path().join(path).is_dir();
    names_directory
        .then(|| format!("`{path}` is a directory, and an allow rule covers only the exact path: write `{path}/**`"))
}
