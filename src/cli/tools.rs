use std::io::Write as _;
use std::path::PathBuf;

use serde::Serialize;
use subtend_host::workers::RemoteTool;
use subtend_tools::mcp::{Origin, ServerReport};

use super::fail::{Code, Fail};
use super::paint::{BAD, BOLD, CAUTION, DIM, GOOD, Styled, clip, harmless, on_one_line};
use super::servers::{self, ServerPool};
use super::trust::Trust;
use super::work::setup;
use super::{guidance, remote, settings, web, workspace};
use crate::cli::json;

/// Lists tools: the built-in ones, and those of MCP servers.
#[derive(clap::Args, Debug)]
#[command(subcommand_value_name = "COMMAND")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: ToolsCommand,
}

#[derive(Debug, clap::Subcommand)]
enum ToolsCommand {
    List(ListArgs),
}

/// Lists the tools of a workspace. It starts the workspace's MCP servers and ends them afterwards.
///
/// A server's tool is shown with its action for permission rules, and marked if its description changed. Descriptions
/// come from the servers' authors and do not grant permissions. The exit code is 1 if a server cannot be used.
#[derive(clap::Args, Debug)]
struct ListArgs {
    /// Workspace whose tools are listed
    #[arg(long, value_name = "DIR", default_value = ".")]
    workspace: PathBuf,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct ToolList {
    tools: Vec<String>,
    /// Remote tools, whose calls workers answer.
    remote: Vec<RemoteRow>,
    /// The hosts and the search engine of the web tools, and missing settings.
    web: Vec<String>,
    servers: Vec<ServerRow>,
    problems: Vec<String>,
}

#[derive(Serialize)]
struct RemoteRow {
    name: String,
    action: String,
    idempotent: bool,
}

#[derive(Serialize)]
struct ServerRow {
    name: String,
    from_workspace: bool,
    protocol: Option<String>,
    about: Option<String>,
    down: Option<String>,
    tools: Vec<ToolRow>,
    problems: Vec<String>,
}

#[derive(Serialize)]
struct ToolRow {
    name: String,
    action: String,
    changed: bool,
    description: String,
}

pub(crate) fn run(args: &Args) -> Result<Code, Fail> {
    let ToolsCommand::List(args) = &args.command;
    let workspace = workspace::open(&args.workspace)?;
    let trust = Trust::decide_and_warn(&workspace)?;
    let loaded = settings::load(&workspace, trust)?;
    let servers = ServerPool::default().for_workspace(&workspace, trust, &loaded)?;
    let workers = remote::workers(&loaded.config)?;
    let tools = setup::tools_with(&loaded.config, &guidance::skills(&workspace, trust)?, Some(&servers), &workers)?;
    let async_runtime = super::work::async_runtime()?;
    async_runtime.block_on(async {
        if let Some(settled) = tools.settle() {
            settled.await;
        }
    });
    let list = ToolList {
        tools: tools.names().map(ToString::to_string).collect(),
        remote: workers.declarations().iter().map(|tool| RemoteRow::of(tool)).collect(),
        web: web::describe(&loaded.config.web),
        servers: servers.reports().into_iter().map(ServerRow::of).collect(),
        problems: servers.problems().to_vec(),
    };
    let sound = list.servers.iter().all(|server| server.down.is_none());
    if args.json {
        let mut out = anstream::stdout().lock();
        json::write_line(&mut out, &list)?;
    } else {
        servers::warn(&servers)?;
        show(&list)?;
    }
    Ok(if sound { Code::Done } else { Code::Failed })
}

fn show(list: &ToolList) -> Result<(), Fail> {
    let mut out = anstream::stdout().lock();
    let is_remote = |name: &&String| list.remote.iter().any(|remote| remote.name == **name);
    let own: Vec<&str> = list.tools.iter().filter(|name| !is_remote(name)).map(String::as_str).collect();
    writeln!(out, "{}: {}", Styled(BOLD, "built in"), own.join(", "))?;
    for remote in &list.remote {
        let repeated = if remote.idempotent { ", idempotent" } else { "" };
        let about = format!("answered by workers ({}{repeated})", remote.action);
        writeln!(out, "{}: {}", Styled(BOLD, &remote.name), Styled(DIM, about))?;
    }
    for line in &list.web {
        writeln!(out, "  {}", Styled(DIM, harmless(line)))?;
    }
    for server in &list.servers {
        let from = if server.from_workspace { ".mcp.json" } else { "your configuration" };
        let state = match (&server.down, &server.protocol) {
            (Some(why), _) => format!("{} {}", Styled(BAD, "cannot be used:"), on_one_line(why)),
            (None, Some(protocol)) => {
                format!("{} {}, protocol {protocol}", Styled(GOOD, "up:"), server.about.as_deref().unwrap_or("unnamed"))
            }
            (None, None) => "not started".to_owned(),
        };
        writeln!(out, "\n{} {} {state}", Styled(BOLD, harmless(&server.name)), Styled(DIM, format!("({from})")))?;
        for problem in &server.problems {
            writeln!(out, "  {} {}", Styled(CAUTION, "problem:"), on_one_line(problem))?;
        }
        for tool in &server.tools {
            let changed = if tool.changed {
                format!("{} ", Styled(CAUTION, "[changed since the last listing]"))
            } else {
                String::new()
            };
            let about = clip(&harmless(&tool.description).replace('\n', " "), 160).to_string();
            writeln!(out, "  {} {changed}{}\n      {about}", tool.name, Styled(DIM, format!("({})", tool.action)))?;
        }
    }
    Ok(())
}

impl RemoteRow {
    fn of(tool: &RemoteTool) -> Self {
        Self { name: tool.spec.name.to_string(), action: tool.action.to_string(), idempotent: tool.idempotent }
    }
}

impl ServerRow {
    fn of(report: ServerReport) -> Self {
        let tool = |tool: subtend_tools::mcp::ToolReport| ToolRow {
            name: tool.name.to_string(),
            action: tool.action.to_string(),
            changed: tool.changed,
            description: tool.description.to_string(),
        };
        Self {
            name: report.name.to_string(),
            from_workspace: report.origin == Origin::Workspace,
            protocol: report.protocol,
            about: report.about,
            down: report.down,
            tools: report.tools.into_iter().map(tool).collect(),
            problems: report.problems,
        }
    }
}
