use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use subtend_actors::OpenOptions;
use subtend_session::authority::{Authority, Rule, RuleSet, Verdict};
use subtend_session::escape::harmless;
use subtend_session::ids::Text;
use subtend_session::place::OnRestart;
use subtend_session::values::JsonText;
use subtend_tools::policy::HostPolicy;
use utoipa::ToSchema;

use super::inputs::NewInput;
use super::names;
use crate::auth::{Sender, TokenScope};
use crate::host::Host;
use crate::problem::{Problem, quote};

/// Options of a new session.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewSession {
    /// The agent. Default: that of the host.
    #[serde(default, deserialize_with = "names::optional")]
    agent: Option<String>,
    title: Option<String>,
    /// Metadata of the client: a JSON object.
    #[serde(default, deserialize_with = "names::metadata")]
    #[schema(value_type = Option<Map<String, Value>>)]
    metadata: Option<JsonText>,
    /// Name of the model. Default: that of the agent or of the host. A list, `A,B`, needs the scope `admin`, or the Unix socket.
    model: Option<String>,
    /// Limits that differ from those of the workspace, by name; null removes a limit. A token of the scope `act` can
    /// only lower limits.
    #[serde(default, deserialize_with = "names::limits")]
    #[schema(value_type = Object)]
    limits: Map<String, Value>,
    /// Absolute path of the workspace. Default: that of the host. Needs the scope `admin`, or the Unix socket.
    #[serde(default, deserialize_with = "names::optional_path")]
    workspace: Option<String>,
    /// Permissions beyond the default ones, such as `fs.write=src/**`. Needs the scope `admin`, or the Unix socket.
    #[serde(default)]
    allow: Vec<String>,
    /// Actions that need an approval, such as `shell.run`. With a token of the scope `act`, they only add to the
    /// restrictions of the host's policy.
    #[serde(default)]
    ask: Vec<String>,
    /// Servers at which models are called instead of the providers' own, as `URL` or `PROVIDER=URL`. Needs the Unix socket.
    #[serde(default)]
    servers: Vec<String>,
    /// `fail` or `resume`: whether its runs resume after a restart of the host. Also applies to children whose agents
    /// do not choose. Default: the choice of the agent.
    #[schema(value_type = Option<String>)]
    on_restart: Option<OnRestart>,
    /// The first input.
    // Excluded from the hash for the idempotency key, because the input is compared separately. `skip_serializing`
    // would also remove it from the schema.
    #[serde(skip_serializing_if = "always")]
    input: Option<NewInput>,
}

/// Returns the options of a session that the page opens, with the same checks as for the API.
///
/// # Errors
/// As [`NewSession::options`].
pub(crate) async fn of_page(
    host: &Host,
    sender: Option<Sender>,
    agent: String,
    [workspace, model]: [Option<String>; 2],
) -> Result<OpenOptions, Problem> {
    let open = NewSession {
        agent: Some(agent),
        title: None,
        metadata: None,
        model,
        limits: Map::new(),
        workspace,
        allow: Vec::new(),
        ask: Vec::new(),
        servers: Vec::new(),
        on_restart: None,
        input: None,
    };
    Ok(open.options(host, sender).await?.0)
}

fn always<T>(_: &T) -> bool {
    true
}

impl NewSession {
    fn agent_name(&self, host: &Host) -> Text {
        self.agent.as_deref().map_or_else(|| host.options().open.agent.clone(), Into::into)
    }

    /// Returns the options for the runtime, and the first input.
    ///
    /// # Errors
    /// If `sender` lacks a right, or an option is invalid.
    pub(super) async fn options(
        self,
        host: &Host,
        sender: Option<Sender>,
    ) -> Result<(OpenOptions, Option<NewInput>), Problem> {
        if let Some(draft) = &self.input {
            draft.check()?;
        }
        let restricts = matches!(&sender, Some(Sender::Token(grant)) if grant.scope() < TokenScope::Admin);
        self.check_rights(sender)?;
        let default = host.options().open.clone();
        let (agent, policy) = (self.agent_name(host), self.policy()?);
        let (policy, restriction) = match restricts {
            true => (None, self.restriction()?),
            false => (policy, None),
        };
        let home_root = |workspace: &String| {
            self.servers.is_empty() && host.options().home.as_deref() == Some(workspace) && !is_loaded(&self.model)
        };
        let named = self.workspace.clone().or_else(|| is_loaded(&self.model).then(|| host.options().home.clone())?);
        let workspace = named.filter(|workspace| !home_root(workspace));
        if workspace.is_none() && !self.servers.is_empty() {
            return Err(Problem::invalid("invalid_servers", "`servers` needs `workspace`: name the directory too"));
        }
        if let Some(workspace) = workspace.as_deref().filter(|path| !std::path::Path::new(path).is_absolute()) {
            let why = format!("the workspace {workspace} is not an absolute path", workspace = quote(workspace));
            return Err(Problem::invalid("workspace_unusable", why));
        }
        if let Some(model) = self.model.as_deref().filter(|_| !is_script(&self.model)) {
            check_model(host, model, workspace.is_none()).await?;
        }
        // The host's defaults apply only in its own directory.
        let is_own_list = workspace == host.options().home && is_loaded(&self.model) && !is_script(&self.model);
        let mut limit_changes = if is_own_list { default.limit_changes.clone() } else { Map::new() };
        limit_changes.extend(self.limits);
        let (model, servers, policy) = match workspace {
            Some(_) => {
                let policy = policy.or_else(|| default.policy.clone().filter(|_| is_own_list));
                let servers = self.servers.into_iter().map(Into::into).collect();
                (
                    None,
                    servers,
                    Some(policy.unwrap_or_else(|| with_protected_paths(HostPolicy::default_for_workspace()))),
                )
            }
            None => (default.model.clone(), default.servers.clone(), policy.or_else(|| default.policy.clone())),
        };
        let options = OpenOptions {
            agent,
            title: self.title.map(Into::into),
            metadata: self.metadata.map(|metadata| metadata.0),
            model: self.model.map(Into::into).or(model),
            servers,
            limit_changes,
            only_lower_limits: restricts,
            restriction,
            workspace: workspace.map(Into::into),
            policy,
            on_restart: self.on_restart.or(default.on_restart),
            ..default
        };
        Ok((options, self.input))
    }

    /// Refuses options for which the sender lacks rights. The Unix socket has all: its user could open the store.
    fn check_rights(&self, sender: Option<Sender>) -> Result<(), Problem> {
        let Some(sender) = sender else { return Ok(()) };
        if !self.servers.is_empty() || is_script(&self.model) {
            let why = "`servers` and scripted models are for the Unix socket only: leave them out";
            return Err(Problem::forbidden(why));
        }
        // The environment of a list of models has the configuration of the directory, not the options of the host.
        let reaches = self.workspace.is_some() || !self.allow.is_empty() || is_loaded(&self.model);
        match sender {
            Sender::Token(grant) if reaches && grant.scope() < TokenScope::Admin => {
                let scope = grant.scope();
                let why = format!(
                    "`workspace`, `allow` and a list of models need a token of the scope admin, and the scope of this one is {scope}"
                );
                Err(Problem::forbidden(why))
            }
            Sender::Token(_) | Sender::Login => Ok(()),
        }
    }

    /// Returns the rules of `ask` as a restriction of the host's policy.
    fn restriction(&self) -> Result<Option<Authority>, Problem> {
        let mut rules = RuleSet::only(Verdict::Allow);
        for word in &self.ask {
            rules.rules.push(Rule { verdict: Verdict::Ask, ..rule_of(word)? });
        }
        Ok((!rules.rules.is_empty()).then(|| Authority::of(rules)))
    }

    /// Returns the maximum permissions of the session, if the request has any.
    fn policy(&self) -> Result<Option<Authority>, Problem> {
        if self.allow.is_empty() && self.ask.is_empty() {
            return Ok(None);
        }
        let mut policy = HostPolicy::default_for_workspace();
        for (verdict, rules) in [(Verdict::Allow, &self.allow), (Verdict::Ask, &self.ask)] {
            for word in rules {
                policy.rules.push(Rule { verdict, ..rule_of(word)? });
            }
        }
        Ok(Some(with_protected_paths(policy)))
    }
}

/// Maximum bytes of a model's name, or of a list of names. It is limited because each session in a listing repeats it.
const MAX_MODEL_BYTES: usize = 512;

/// Refuses a model that the host cannot call. Otherwise the fallback would answer, or the first run would fail.
async fn check_model(host: &Host, model: &str, is_home: bool) -> Result<(), Problem> {
    if model.len() > MAX_MODEL_BYTES || model.contains(char::is_control) || harmless(model) != *model {
        let why = format!("model: a name has at most {MAX_MODEL_BYTES} bytes, and no control or invisible characters");
        return Err(Problem::invalid("unknown_model", why));
    }
    // The loader of another environment checks its models.
    if !is_home || model.starts_with("pool:") {
        return Ok(());
    }
    // This needs a permit because the runtime creates the model to check it.
    let unusable = host.reads().read_session(async { host.runtime().unusable_model(&model.into()) }).await?;
    unusable.map_or(Ok(()), |why| Err(Problem::invalid("unknown_model", why)))
}

fn rule_of(word: &str) -> Result<Rule, Problem> {
    HostPolicy::allow(word).map_err(|bad| Problem::invalid("invalid_rule", bad.to_string()))
}

/// Adds rules that require approvals for protected paths, unless the policy names those paths.
fn with_protected_paths(policy: RuleSet) -> Authority {
    let protected = Authority::of(HostPolicy::protected_files(&policy));
    Authority::of(policy).meet(&protected)
}

/// Returns whether the model is a script or a list, which only the loader of an environment resolves.
fn is_loaded(model: &Option<String>) -> bool {
    is_script(model) || model.as_deref().is_some_and(|models| models.contains(',') && !models.starts_with("pool:"))
}

/// Returns whether the model is a script, alone or in a list. A script would be a file that the client chooses.
fn is_script(model: &Option<String>) -> bool {
    model.as_deref().is_some_and(|models| models.split(',').any(|model| model.trim_start().starts_with("scripted:")))
}
