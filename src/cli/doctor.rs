use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde::Serialize;
use subtend_agents::catalog::{AgentProblem, ProblemKind};

use super::agents::model;
use super::data::StoreArgs;
use super::fail::{Code, Fail};
use super::paint::{BAD, CAUTION, GOOD, Styled, count, on_one_line};
use super::servers::ServerPool;
use super::trust::Trust;
use super::work::{choice, setup};
use super::{settings, workspace};
use crate::cli::json;

mod disk;
mod installation;
mod store;

/// Checks installation, store and disk, and names a remedy for each problem; the exit code is 1 if something must be repaired.
///
/// It reads the whole store, as `subtend verify` does.
///
/// It does not change the store, except for its lock file, which names this process meanwhile. It writes a small file
/// next to the store and removes it.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Workspace whose agents and configuration are checked
    #[arg(long, value_name = "DIR", default_value = ".")]
    workspace: PathBuf,

    /// Print one JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    store: StoreArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum DoctorArea {
    Installation,
    Workspace,
    Store,
    Disk,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Severity {
    Good,
    /// A fact that needs no action.
    Note,
    /// A problem that must be repaired.
    Bad,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Finding {
    area: DoctorArea,
    check: &'static str,
    grade: Severity,
    found: String,
    /// The remedy; absent if none is needed.
    #[serde(rename = "do")]
    advice: Option<String>,
}

impl Finding {
    fn good(area: DoctorArea, check: &'static str, found: impl Into<String>) -> Self {
        Self { area, check, grade: Severity::Good, found: found.into(), advice: None }
    }

    fn note(area: DoctorArea, check: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { area, check, grade: Severity::Note, found: found.into(), advice: Some(advice.into()) }
    }

    fn bad(area: DoctorArea, check: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { area, check, grade: Severity::Bad, found: found.into(), advice: Some(advice.into()) }
    }
}

#[derive(Serialize)]
struct Findings<'a> {
    sound: bool,
    findings: &'a [Finding],
}

pub(crate) fn run(args: &Args) -> Result<Code, Fail> {
    let place = args.store.place()?;
    let mut findings = installation::check();
    findings.push(agents(&args.workspace)?);
    findings.extend(web(&args.workspace)?);
    findings.extend(mcp(&args.workspace)?);
    findings.extend(store::check(&place));
    findings.extend(disk::check(&place));
    let sound = findings.iter().all(|finding| finding.grade != Severity::Bad);
    let mut out = anstream::stdout().lock();
    if args.json {
        json::write_line(&mut out, &Findings { sound, findings: &findings })?;
    } else {
        findings.iter().try_for_each(|finding| writeln!(out, "{}", text(finding)))?;
    }
    Ok(if sound { Code::Done } else { Code::Failed })
}

/// Checks agent files and profiles for unknown names and refused files.
fn agents(folder: &Path) -> Result<Finding, Fail> {
    let workspace = workspace::open(folder)?;
    let trust = Trust::decide_and_warn(&workspace)?;
    let read = trust.catalog(&workspace).and_then(|catalog| Ok((catalog, settings::load(&workspace, trust)?)));
    let (catalog, loaded) = match read {
        Ok(read) => read,
        Err(fail) => {
            return Ok(Finding::bad(DoctorArea::Workspace, "configuration", fail.to_string(), "correct that value"));
        }
    };
    let problems = model::problems(&catalog, &loaded, choice::variable().as_deref(), &setup::tools(&loaded.config)?);
    // A refused file of another product may be something other than an agent, such as a readme.
    let is_bad = |problem: &&AgentProblem| problem.kind == ProblemKind::Refused && problem.product.is_none();
    let bad = problems.iter().find(is_bad);
    let Some(first) = bad.or_else(|| problems.first()) else {
        return Ok(Finding::good(DoctorArea::Workspace, "agents", "agent files and profiles are sound"));
    };
    let found = format!("{}: {}", first.path.display(), first.message);
    let more = match problems.len() {
        1 => "correct it".to_owned(),
        all => format!("correct it; `subtend agents` lists {} more", all.saturating_sub(1)),
    };
    Ok(match bad.is_some() {
        true => Finding::bad(DoctorArea::Workspace, "agents", found, more),
        false => Finding::note(DoctorArea::Workspace, "agents", found, more),
    })
}

/// Describes the hosts and the search engine of the web tools.
fn web(folder: &Path) -> Result<Option<Finding>, Fail> {
    let workspace = workspace::open(folder)?;
    // An unreadable configuration is already reported.
    let Ok(loaded) = settings::load(&workspace, Trust::decide(&workspace)?) else { return Ok(None) };
    let found = super::web::describe(&loaded.config.web).join("; ");
    let is_whole = loaded.config.web.search.engine.is_some() && !found.contains("not offered");
    Ok(Some(match is_whole {
        true => Finding::good(DoctorArea::Workspace, "web", found),
        false => Finding::note(DoctorArea::Workspace, "web", found, "the guide to the web names the settings"),
    }))
}

/// Checks the configured MCP servers without starting one; `None` if none is configured.
fn mcp(folder: &Path) -> Result<Option<Finding>, Fail> {
    let workspace = workspace::open(folder)?;
    let trust = Trust::decide(&workspace)?;
    // An unreadable configuration is already reported.
    let Ok(loaded) = settings::load(&workspace, trust) else { return Ok(None) };
    let servers = ServerPool::default().for_workspace(&workspace, trust, &loaded)?;
    let named = servers.reports().len();
    let refused = servers.problems().iter().find(|problem| !problem.ends_with("has no effect"));
    Ok(match refused {
        None if named == 0 => None,
        None => {
            let found = format!("{} configured", count(named as u64, "server"));
            Some(Finding::note(DoctorArea::Workspace, "MCP servers", found, "`subtend tools list` starts them"))
        }
        Some(why) => Some(Finding::bad(DoctorArea::Workspace, "MCP servers", why.clone(), "correct it")),
    })
}

fn text(finding: &Finding) -> String {
    let mark = match finding.grade {
        Severity::Good => Styled(GOOD, "✓"),
        Severity::Note => Styled(CAUTION, "•"),
        Severity::Bad => Styled(BAD, "✗"),
    };
    let advice = finding.advice.as_ref().map_or_else(String::new, |advice| format!("\n    → {}", on_one_line(advice)));
    format!("{mark} {}: {}{advice}", finding.check, on_one_line(&finding.found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finding_names_a_remedy() {
        let plain = |finding: &Finding| anstream::adapter::strip_str(&text(finding)).to_string();
        assert_eq!(plain(&Finding::good(DoctorArea::Store, "rows", "all are sound")), "✓ rows: all are sound");
        let full = Finding::bad(DoctorArea::Disk, "free space", "1 MiB", "make room");
        assert_eq!(plain(&full), "✗ free space: 1 MiB\n    → make room");
        let json = serde_json::to_value(&full).expect("JSON");
        let expected = serde_json::json!({
            "area": "disk", "check": "free space", "grade": "bad", "found": "1 MiB", "do": "make room",
        });
        assert_eq!(json, expected);
    }
}
