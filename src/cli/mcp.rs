use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use serde::Serialize;
use subtend::config::Loaded;
use subtend_tools::mcp::{
    LoginKey, LoginOptions, LoginReport, LoginStore as _, PendingLogin, RegisteredClient, ServerConfig, UnprovenPage,
    login_address,
};
use subtend_tools::workspace::Workspace;

use super::fail::{Code, Fail};
use super::logins::LoginFile;
use super::paint::{BAD, BOLD, CAUTION, DIM, GOOD, Styled, ago, harmless, on_one_line};
use super::trust::Trust;
use super::{clock, json, servers, settings, web, workspace};

mod callback;
mod client_secret;

/// Logs in to MCP servers that ask for it, and logs out.
#[derive(clap::Args, Debug)]
#[command(subcommand_value_name = "COMMAND")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: McpCommand,
}

#[derive(Debug, clap::Subcommand)]
enum McpCommand {
    Login(LoginArgs),
    Logout(LogoutArgs),
    Status(StatusArgs),
}

/// Logs in to an MCP server with a browser (OAuth).
///
/// It prints the address of a page, and waits until the page redirects the browser to this process. The login is stored
/// next to your configuration. It is sent only to the address of the server, and renewed while the server allows it.
#[derive(clap::Args, Debug)]
struct LoginArgs {
    /// Name of the server
    server: String,

    #[command(flatten)]
    place: PlaceArgs,

    /// Id of the client that you registered at the authorization server, if the server does not register clients itself
    #[arg(long, value_name = "ID")]
    client_id: Option<String>,

    /// Environment variable with the secret of that client. There is no argument for the secret, because other programs
    /// can read arguments
    #[arg(long, value_name = "NAME", requires = "client_id")]
    client_secret_env: Option<String>,

    /// Ask for the secret of that client, without showing it
    #[arg(long, requires = "client_id", conflicts_with = "client_secret_env")]
    client_secret_prompt: bool,

    /// Authorization server at which you registered that client; the secret is sent to no other server
    #[arg(long, value_name = "URL", requires = "client_id")]
    issuer: Option<String>,

    /// Scope to request in addition to those that the server names; repeatable
    #[arg(long = "scope", value_name = "SCOPE")]
    scopes: Vec<String>,

    /// Log in without proof that the login page and the server that receives its answer belong together, and that the
    /// token is valid for this server only
    #[arg(long)]
    unproven_page: bool,

    /// Port of this machine to which the login page redirects the browser, as `http://127.0.0.1:PORT/callback`
    /// [default: a free one]
    #[arg(long, value_name = "PORT", default_value_t = 0, hide_default_value = true)]
    port: u16,
}

/// Removes the login for an MCP server from this machine. The server is not notified.
#[derive(clap::Args, Debug)]
struct LogoutArgs {
    /// Name of the server
    server: String,

    #[command(flatten)]
    place: PlaceArgs,
}

/// Lists the MCP servers that can ask for a login, and the logins. It starts no server.
#[derive(clap::Args, Debug)]
struct StatusArgs {
    #[command(flatten)]
    place: PlaceArgs,

    /// Print one JSON array
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args, Debug)]
struct PlaceArgs {
    /// Workspace whose servers are used
    #[arg(long, value_name = "DIR", default_value = ".")]
    workspace: PathBuf,
}

/// The login of one server.
#[derive(Serialize)]
struct StatusRow {
    server: String,
    url: String,
    from_workspace: bool,
    state: LoginState,
    issuer: Option<String>,
    scopes: Vec<String>,
    /// Unix time in seconds.
    since: Option<u64>,
    expires: Option<u64>,
    is_renewed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum LoginState {
    /// The tokens are valid, or can be renewed.
    LoggedIn,
    NotLoggedIn,
    /// The token has expired and cannot be renewed.
    Ended,
    /// The address of the server changed.
    OtherAddress,
}

pub(crate) fn run(args: &Args) -> Result<Code, Fail> {
    match &args.command {
        McpCommand::Login(args) => login(args),
        McpCommand::Logout(args) => logout(args),
        McpCommand::Status(args) => status(args),
    }
}

/// The servers of a workspace that can ask for a login.
struct LoginPlace {
    workspace: std::sync::Arc<Workspace>,
    loaded: Loaded,
    servers: Vec<ServerConfig>,
}

impl LoginPlace {
    fn of(args: &PlaceArgs) -> Result<Self, Fail> {
        let workspace = workspace::open(&args.workspace)?;
        let trust = Trust::decide_and_warn(&workspace)?;
        let loaded = settings::load(&workspace, trust)?;
        let servers = servers::list(&workspace, trust, &loaded)?.servers;
        Ok(Self { workspace, loaded, servers })
    }

    fn path(&self) -> &Path {
        self.workspace.path()
    }

    fn find(&self, name: &str) -> Result<(&ServerConfig, &str), Fail> {
        let found = self.servers.iter().find(|server| *server.name == *name);
        let Some(server) = found else {
            let all: Vec<&str> = self.servers.iter().map(|server| &*server.name).collect();
            let known =
                if all.is_empty() { "none is configured".to_owned() } else { format!("there are: {}", all.join(", ")) };
            return Err(Fail::Usage(format!("no MCP server is called `{}`: {known}", harmless(name))));
        };
        match login_address(server) {
            Ok(url) => Ok((server, url)),
            Err(why) => Err(Fail::Usage(format!("the MCP server `{name}` does not use logins: {why}"))),
        }
    }
}

fn login(args: &LoginArgs) -> Result<Code, Fail> {
    let place = LoginPlace::of(&args.place)?;
    let (server, url) = place.find(&args.server)?;
    let file = LoginFile::to_write()?;
    let hosts = web::internal_hosts(&place.loaded.config.web)?;
    let secret = client_secret::read(args.client_secret_env.as_deref(), args.client_secret_prompt)?;
    let client = args.client_id.as_deref().map(|id| RegisteredClient { id, secret: secret.as_deref() });
    let options = LoginOptions { client, scopes: &args.scopes, internal_hosts: &hosts };
    let runtime = super::work::async_runtime()?;
    let done = runtime.block_on(async {
        let listener = callback::Listener::bind(args.port).await?;
        let pending = PendingLogin::begin(server, listener.address(), options).await;
        let pending = pending.map_err(|why| cannot(server, &why.0))?;
        check_issuer(args.issuer.as_deref(), &pending)?;
        if !args.unproven_page {
            check_page(&pending)?;
            check_resource(url, &pending)?;
        }
        announce(server, url, &pending)?;
        listener.receive(pending).await.map_err(|why| cannot(server, &why))
    });
    let login = done?;
    let key = LoginKey::of(server, place.path());
    let locked = file.lock(&key).map_err(Fail::Other)?;
    file.save(&key, Some(&login)).map_err(Fail::Other)?;
    drop(locked);
    writeln!(anstream::stderr(), "{} at `{}`", Styled(GOOD, "logged in"), server.name)?;
    Ok(Code::Done)
}

fn cannot(server: &ServerConfig, why: &str) -> Fail {
    Fail::Other(format!("cannot log in to the MCP server `{}`: {}", server.name, on_one_line(why)))
}

/// Asks the user whether the login page and the server that receives its answer belong together, unless that is proven.
fn check_page(pending: &PendingLogin) -> Result<(), Fail> {
    let Some(UnprovenPage { page, receiver, issuer }) = pending.page_to_confirm() else { return Ok(()) };
    let (page, receiver, issuer) = (harmless(&page), harmless(&receiver), harmless(&issuer));
    let warning = format!(
        "you would log in at {page}, and {receiver} would receive the login, as the authorization server {issuer} specifies"
    );
    let alone = "there is no terminal to confirm that they belong together. If they do, log in with `--unproven-page`";
    confirm(&warning, &format!("If they do not belong together, {receiver} could act as you at {page}"), alone)
}

/// Asks the user for confirmation if the token would be valid beyond the server.
fn check_resource(url: &str, pending: &PendingLogin) -> Result<(), Fail> {
    let Some(resource) = pending.wider_resource() else { return Ok(()) };
    let warning = format!("the token would be valid for {}, and not only for {}", harmless(&resource), harmless(url));
    let alone = "there is no terminal to confirm that all servers there have the same owner. If they do, log in with \
                 `--unproven-page`";
    confirm(&warning, "The server could use the token at other servers there", alone)
}

/// Checks that the authorization server, which the MCP server chooses, is the one that the user named. If the user
/// named none, asks whether it may receive the secret of the client.
fn check_issuer(named: Option<&str>, pending: &PendingLogin) -> Result<(), Fail> {
    let issuer = pending.issuer();
    if let Some(named) = named {
        if named.trim_end_matches('/') == issuer.trim_end_matches('/') {
            return Ok(());
        }
        let why = "check the address of the MCP server, or register a client there";
        return Err(Fail::Usage(format!(
            "the MCP server names the authorization server {}, not {}: {why}",
            harmless(&issuer),
            harmless(named)
        )));
    }
    let Some(receiver) = pending.secret_receiver() else { return Ok(()) };
    let (receiver, issuer) = (harmless(&receiver), harmless(&issuer));
    let warning = format!("{receiver} would receive the secret of the client, as the MCP server specifies");
    let alone = "there is no terminal to confirm that the client is registered there. Name the authorization server at which \
                 you registered it with `--issuer URL`";
    confirm(
        &warning,
        &format!("If the client is not registered at {issuer}, that server could act as the client elsewhere"),
        alone,
    )
}

/// Asks the user to confirm a warning. `alone` says what to do without a terminal.
fn confirm(warning: &str, risk: &str, alone: &str) -> Result<(), Fail> {
    if !(std::io::stdin().is_terminal() && std::io::stderr().is_terminal()) {
        return Err(Fail::Usage(format!("{warning}: {alone}")));
    }
    let mut err = anstream::stderr();
    write!(err, "{warning}. {risk}.\nContinue? [y/N] ")?;
    err.flush()?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    let confirmed = matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes");
    if confirmed { Ok(()) } else { Err(Fail::Other("the login is cancelled".to_owned())) }
}

/// Prints the address of the page on stdout, and everything else on stderr.
fn announce(server: &ServerConfig, url: &str, pending: &PendingLogin) -> Result<(), Fail> {
    let mut err = anstream::stderr().lock();
    let (name, url, issuer) = (&server.name, harmless(url), pending.issuer());
    writeln!(err, "the MCP server `{name}` ({url}) asks you to log in to {}", Styled(BOLD, harmless(&issuer)))?;
    let minutes = callback::TIMEOUT.as_secs() / 60;
    writeln!(err, "open this address in a browser of this machine, within {minutes} minutes:")?;
    drop(err);
    let mut out = anstream::stdout().lock();
    writeln!(out, "{}", harmless(pending.address()))?;
    out.flush()?;
    Ok(())
}

fn logout(args: &LogoutArgs) -> Result<Code, Fail> {
    let place = LoginPlace::of(&args.place)?;
    let file = LoginFile::to_write()?;
    // A server that is no longer configured may still have a login.
    let configured = place.servers.iter().find(|server| *server.name == *args.server);
    let keys = match configured {
        Some(server) => vec![LoginKey::of(server, place.path())],
        None => [None, Some(place.path().to_owned())]
            .map(|workspace| LoginKey { server: args.server.as_str().into(), workspace })
            .to_vec(),
    };
    let mut removed = false;
    for key in keys {
        let _locked = file.lock(&key).map_err(Fail::Other)?;
        if file.load(&key).map_err(Fail::Other)?.is_some() {
            file.save(&key, None).map_err(Fail::Other)?;
            removed = true;
        }
    }
    let name = harmless(&args.server);
    if !removed {
        return Err(Fail::Usage(format!("no login for `{name}`: `subtend mcp status` lists logins")));
    }
    writeln!(anstream::stderr(), "logged out of `{name}`; the server is not notified: revoke the access there, too")?;
    Ok(Code::Done)
}

fn status(args: &StatusArgs) -> Result<Code, Fail> {
    let place = LoginPlace::of(&args.place)?;
    let file = LoginFile::locate();
    let now = u64::try_from(clock::wall_ms() / 1_000).unwrap_or_default();
    let mut rows = Vec::new();
    for server in &place.servers {
        let Ok(url) = login_address(server) else { continue };
        let key = LoginKey::of(server, place.path());
        let login = file.as_ref().map_or(Ok(None), |file| file.load(&key)).map_err(Fail::Other)?;
        rows.push(StatusRow::of(&key, url, login.map(|login| login.report()), now));
    }
    let mut out = anstream::stdout().lock();
    if args.json {
        json::write_line(&mut out, &rows)?;
        return Ok(Code::Done);
    }
    if rows.is_empty() {
        writeln!(anstream::stderr(), "no MCP server with `url` is configured")?;
    }
    for row in &rows {
        writeln!(out, "{} {} {}", Styled(BOLD, harmless(&row.server)), Styled(DIM, harmless(&row.url)), row.text(now))?;
    }
    Ok(Code::Done)
}

impl StatusRow {
    fn of(key: &LoginKey, url: &str, login: Option<LoginReport>, now: u64) -> Self {
        let state = match &login {
            None => LoginState::NotLoggedIn,
            Some(login) if login.url != url => LoginState::OtherAddress,
            Some(login) if !login.is_valid => LoginState::Ended,
            Some(login) if !login.is_renewed && login.expires.is_some_and(|end| end <= now) => LoginState::Ended,
            Some(_) => LoginState::LoggedIn,
        };
        Self {
            server: key.server.to_string(),
            url: url.to_owned(),
            from_workspace: key.workspace.is_some(),
            state,
            issuer: login.as_ref().map(|login| login.issuer.clone()),
            scopes: login.as_ref().map(|login| login.scopes.clone()).unwrap_or_default(),
            since: login.as_ref().map(|login| login.since),
            expires: login.as_ref().and_then(|login| login.expires),
            is_renewed: login.is_some_and(|login| login.is_renewed),
        }
    }

    fn text(&self, now: u64) -> String {
        let ms = |seconds: u64| i64::try_from(seconds.saturating_mul(1_000)).unwrap_or(i64::MAX);
        let issuer = harmless(self.issuer.as_deref().unwrap_or_default());
        let since = self.since.map_or_else(String::new, |since| ago(ms(now), ms(since)));
        match self.state {
            LoginState::LoggedIn => format!("{} at {issuer}, {since}", Styled(GOOD, "logged in")),
            LoginState::NotLoggedIn => "not logged in".to_owned(),
            LoginState::Ended => format!("{} at {issuer} has ended: log in again", Styled(BAD, "the login")),
            LoginState::OtherAddress => {
                format!("{}: log in again", Styled(CAUTION, "the login is for another address"))
            }
        }
    }
}
