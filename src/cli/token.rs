use std::io::Write as _;
use std::path::PathBuf;

use clap::ValueEnum;
use hyper::Method;
use subtend_host::auth::{LoginLink, TokenError, TokenFile, TokenInfo, TokenScope};

use super::client::Attached;
use super::data::StoreArgs;
use super::fail::{Code, Fail};
use super::paint::harmless;
use super::serve;
use crate::cli::json;

/// Creates, lists and revokes tokens for `subtend serve`, and logs browsers in. A change takes effect at once, also in a running host.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: TokenCommand,

    /// File of the tokens, as `subtend serve --tokens` names it [default: that of the store]
    #[arg(long, value_name = "FILE", global = true)]
    tokens: Option<PathBuf>,

    #[command(flatten)]
    store: StoreArgs,
}

#[derive(Debug, clap::Subcommand)]
enum TokenCommand {
    /// Create a token; its secret is printed once
    Create {
        /// Name of the token
        name: String,

        /// Scope: `read` allows reading everything, `act` also sending, approving and cancelling, `admin` also deleting and
        /// exporting; `work` allows only answering calls of remote tools
        #[arg(long, value_enum, default_value_t = ScopeArg::Act)]
        scope: ScopeArg,

        /// Remote tool whose calls the token may answer; repeatable. Needs `--scope work` [default: every remote tool]
        #[arg(long, value_name = "TOOL")]
        tool: Vec<String>,

        /// Print one JSON object, with the secret as `token`
        #[arg(long)]
        json: bool,
    },
    /// List tokens, without their secrets
    List {
        /// Print one JSON array
        #[arg(long)]
        json: bool,
    },
    /// Print a new login link of the running host: it opens one browser, once, within five minutes
    Login {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Revoke a token
    Revoke {
        /// Name of the token
        name: String,

        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ScopeArg {
    Read,
    Act,
    Admin,
    Work,
}

/// Requests a login link from the host of the store, over the socket that only the owner of the store can use.
fn login(args: &Args, is_json: bool) -> Result<Code, Fail> {
    let none =
        || Fail::Usage("no process hosts the store: `subtend serve` prints a login link when it starts".to_owned());
    let host = Attached::to(&args.store.place()?)?.ok_or_else(none)?;
    let made: Option<LoginLink> = host.find(Method::POST, "/login/links")?;
    let no_page = || {
        Fail::Usage(
            "the host of the store does not serve a page: it is not `subtend serve`, or it has no address".to_owned(),
        )
    };
    let made = made.ok_or_else(no_page)?;
    let mut out = std::io::stdout().lock();
    if is_json {
        json::write_line(&mut out, &made)?;
    } else {
        writeln!(out, "{}", harmless(&made.login))?;
    }
    Ok(Code::Done)
}

pub(crate) fn run(args: &Args) -> Result<Code, Fail> {
    if let TokenCommand::Login { json } = args.command {
        return login(args, json);
    }
    let (tokens, place) = match &args.tokens {
        Some(file) => (TokenFile::at(file), harmless(&file.display().to_string())),
        None => {
            let place = args.store.place()?;
            (serve::tokens(&place)?, place.name())
        }
    };
    let mut out = std::io::stdout().lock();
    match &args.command {
        TokenCommand::Create { name, scope, tool, json } => {
            if name.is_empty() || name.len() > 64 || name.chars().any(|c| c.is_control()) {
                return Err(Fail::Usage(format!(
                    "invalid token name {:?}: use 1 to 64 characters on one line",
                    harmless(name)
                )));
            }
            if !tool.is_empty() && !matches!(scope, ScopeArg::Work) {
                return Err(Fail::Usage(
                    "`--tool` limits tokens of workers: add `--scope work`, or leave it out".to_owned(),
                ));
            }
            let scope = match scope {
                ScopeArg::Work => TokenScope::Work,
                ScopeArg::Read => TokenScope::Read,
                ScopeArg::Act => TokenScope::Act,
                ScopeArg::Admin => TokenScope::Admin,
            };
            let secret =
                if tool.is_empty() { tokens.create(name, scope) } else { tokens.create_for_tools(name, tool.clone()) }?;
            if *json {
                let limit = (!tool.is_empty()).then_some(tool);
                let created = serde_json::json!({"name": name, "scope": scope, "tools": limit, "token": secret});
                json::write_line(&mut out, &created)?;
                return Ok(Code::Done);
            }
            writeln!(out, "{secret}")?;
            writeln!(anstream::stderr(), "token {name:?} allows {scope}{}; it is shown this once", tools_suffix(tool))?;
        }
        TokenCommand::Login { .. } => {}
        TokenCommand::List { json } => {
            let tokens = tokens.list()?;
            if *json {
                let row = |TokenInfo { name, scope, tools, .. }: &TokenInfo| match tools {
                    None => serde_json::json!({"name": name, "scope": scope}),
                    Some(tools) => serde_json::json!({"name": name, "scope": scope, "tools": tools}),
                };
                let rows: Vec<_> = tokens.iter().map(row).collect();
                json::write_line(&mut out, &rows)?;
            } else if tokens.is_empty() {
                writeln!(anstream::stderr(), "no tokens in {}: `subtend token create NAME` creates one", place)?;
            }
            for token in tokens.iter().filter(|_| !json) {
                let tools = tools_suffix(token.tools.as_deref().unwrap_or_default());
                writeln!(out, "{:<6} {}{tools}", token.scope.to_string(), harmless(&token.name))?;
            }
        }
        TokenCommand::Revoke { name, json } => {
            tokens.revoke(name)?;
            if *json {
                json::write_line(&mut out, &serde_json::json!({"name": name, "revoked": true}))?;
                return Ok(Code::Done);
            }
            writeln!(anstream::stderr(), "token {name:?} is revoked")?;
        }
    }
    Ok(Code::Done)
}

/// Formats the tools to which a token is limited.
fn tools_suffix(tools: &[String]) -> String {
    if tools.is_empty() { String::new() } else { format!(" (tools: {})", tools.join(", ")) }
}

impl From<TokenError> for Fail {
    fn from(error: TokenError) -> Self {
        match error {
            TokenError::Exists(_) | TokenError::Unknown(_) | TokenError::Tool(_) => Self::Usage(error.to_string()),
            TokenError::Io { .. } | TokenError::Malformed { .. } | TokenError::NoRandomness => {
                Self::Other(error.to_string())
            }
        }
    }
}
