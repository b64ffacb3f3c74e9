//! `subtend doctor`: whether installation, store and disk are fit for work, and what to do where they are not.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde::Serialize;
use subtend_agents::catalog::ProblemKind;

use super::agents::model;
use super::data::StoreArgs;
use super::fail::{Code, Fail};
use super::paint::{BAD, GOOD, In, ODD, harmless};
use super::trust::Trust;
use super::work::{choice, hub};
use super::{settings, workspace};
use crate::cli::json;

mod disk;
mod installation;
mod store;

/// Checks installation, store and disk, and says what to do; the exit code is 1 if something must be done.
///
/// Reads the whole store, as `subtend verify` does, and repeats what that finds.
///
/// Changes nothing in the store but its lock file, which names this process meanwhile, and writes a small file beside it that it
/// removes. What the engine writes whenever it opens a store goes elsewhere, as for `subtend verify`.
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

/// What was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Area {
    Installation,
    Workspace,
    Store,
    Disk,
}

/// How it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Grade {
    /// As it should be.
    Good,
    /// To be known; nothing must be done.
    Note,
    /// Something must be done.
    Bad,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Finding {
    area: Area,
    check: &'static str,
    grade: Grade,
    found: String,
    /// What to do; absent where nothing is to be done.
    #[serde(rename = "do")]
    advice: Option<String>,
}

impl Finding {
    fn good(area: Area, check: &'static str, found: impl Into<String>) -> Self {
        Self { area, check, grade: Grade::Good, found: found.into(), advice: None }
    }

    fn note(area: Area, check: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { area, check, grade: Grade::Note, found: found.into(), advice: Some(advice.into()) }
    }

    fn bad(area: Area, check: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { area, check, grade: Grade::Bad, found: found.into(), advice: Some(advice.into()) }
    }
}

#[derive(Serialize)]
struct Findings<'a> {
    sound: bool,
    findings: &'a [Finding],
}

pub(crate) fn verb(args: &Args) -> Result<Code, Fail> {
    let place = args.store.place()?;
    let mut findings = installation::look();
    findings.push(agents(&args.workspace)?);
    findings.extend(store::look(&place));
    findings.extend(disk::look(place.path()));
    let sound = findings.iter().all(|finding| finding.grade != Grade::Bad);
    let mut out = anstream::stdout().lock();
    if args.json {
        json::write(&mut out, &Findings { sound, findings: &findings })?;
        writeln!(out)?;
    } else {
        findings.iter().try_for_each(|finding| writeln!(out, "{}", text(finding)))?;
    }
    Ok(if sound { Code::Done } else { Code::Failed })
}

/// What agent files and profiles of the workspace name that does not exist, and files that are refused.
fn agents(folder: &Path) -> Result<Finding, Fail> {
    let workspace = workspace::open(folder)?;
    let trust = Trust::told(&workspace)?;
    let catalog = trust.catalog(&workspace);
    let loaded = match settings::load(&workspace, trust) {
        Ok(loaded) => loaded,
        Err(fail) => {
            return Ok(Finding::bad(Area::Workspace, "configuration", fail.to_string(), "correct that value"));
        }
    };
    let problems = model::problems(&catalog, &loaded, choice::variable().as_deref(), &hub::tools()?);
    let Some(first) = problems.first() else {
        return Ok(Finding::good(Area::Workspace, "agents", "agent files and profiles are sound"));
    };
    let found = format!("{}: {}", first.path.display(), first.message);
    let more = match problems.len() {
        1 => "correct it".to_owned(),
        all => format!("correct it; `subtend agents` lists {} more", all.saturating_sub(1)),
    };
    let refused = problems.iter().any(|problem| problem.kind == ProblemKind::Refused);
    Ok(match refused {
        true => Finding::bad(Area::Workspace, "agents", found, more),
        false => Finding::note(Area::Workspace, "agents", found, more),
    })
}

fn text(finding: &Finding) -> String {
    let mark = match finding.grade {
        Grade::Good => In(GOOD, "✓"),
        Grade::Note => In(ODD, "•"),
        Grade::Bad => In(BAD, "✗"),
    };
    let advice = finding.advice.as_ref().map_or_else(String::new, |advice| format!("\n    → {}", harmless(advice)));
    format!("{mark} {}: {}{advice}", finding.check, harmless(&finding.found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_says_what_to_do() {
        let plain = |finding: &Finding| anstream::adapter::strip_str(&text(finding)).to_string();
        assert_eq!(plain(&Finding::good(Area::Store, "rows", "all are sound")), "✓ rows: all are sound");
        let full = Finding::bad(Area::Disk, "free space", "1 MiB", "make room");
        assert_eq!(plain(&full), "✗ free space: 1 MiB\n    → make room");
        let json = serde_json::to_value(&full).expect("JSON");
        let expected = serde_json::json!({
            "area": "disk", "check": "free space", "grade": "bad", "found": "1 MiB", "do": "make room",
        });
        assert_eq!(json, expected);
    }
}
