use std::io::Write as _;

use serde::Serialize;
use subtend_agents::catalog::{AgentProblem, Catalog};
use subtend_agents::manifest::Manifest;
use subtend_session::authority::RuleSet;
use subtend_session::place::Isolation;

use super::super::fail::{Code, Fail};
use super::super::paint::{BOLD, DIM, Styled, clip, harmless};
use super::{Warning, print_problem, source, warning};
use crate::cli::json;

#[derive(Serialize)]
struct AgentDetails<'a> {
    #[serde(flatten)]
    manifest: &'a Manifest,
    source: String,
    replaces_builtin: bool,
    pickable: bool,
    spawnable: bool,
    warnings: Vec<Warning>,
}

pub(super) fn show(manifest: &Manifest, problems: &[AgentProblem], json: bool) -> Result<Code, Fail> {
    let own = |problem: &&AgentProblem| manifest.source.path() == Some(&problem.path);
    let problems = || problems.iter().filter(own);
    let replaces_builtin = Catalog::replaces_builtin(manifest);
    let mut out = anstream::stdout().lock();
    if json {
        let (pickable, spawnable) = (manifest.pickable(), manifest.spawnable());
        let (source, warnings) = (source(&manifest.source), problems().map(warning).collect());
        let shown = AgentDetails { manifest, source, replaces_builtin, pickable, spawnable, warnings };
        json::write_line(&mut out, &shown)?;
        return Ok(Code::Done);
    }
    let instead = if replaces_builtin { ", instead of the built-in one" } else { "" };
    writeln!(
        out,
        "{}  {}  {}",
        Styled(BOLD, &manifest.name),
        manifest.mode.as_str(),
        Styled(DIM, format!("({}{instead})", clip(&source(&manifest.source), 400)))
    )?;
    writeln!(out, "{}", harmless(&manifest.description))?;
    for (name, value) in detail_lines(manifest) {
        writeln!(out, "{}: {}", Styled(DIM, name), clip(&value, 400))?;
    }
    writeln!(out, "\n{}", harmless(manifest.body.trim_end()))?;
    drop(out);
    problems().try_for_each(print_problem)?;
    Ok(Code::Done)
}

fn detail_lines(manifest: &Manifest) -> Vec<(&'static str, String)> {
    let settings = &manifest.settings;
    let effort = settings.effort.and_then(|effort| serde_json::to_value(effort).ok());
    let tools = manifest.tools.as_ref().map(|tools| match tools.is_empty() {
        true => "none".to_owned(),
        false => tools.join(", "),
    });
    let yes = |is: bool| is.then(|| "yes".to_owned());
    let all = [
        ("model", manifest.model.as_ref().map(ToString::to_string)),
        ("pool", manifest.pool.as_ref().map(ToString::to_string)),
        ("temperature", settings.temperature.map(|number| number.to_string())),
        ("top_p", settings.top_p.map(|number| number.to_string())),
        ("output_tokens", settings.output_tokens.map(|count| count.to_string())),
        ("effort", effort.and_then(|effort| effort.as_str().map(str::to_owned))),
        ("tools", tools),
        ("permissions", manifest.rules.as_ref().map(rules)),
        ("and at most", limits_text(manifest)),
        ("skills", (!manifest.skills.is_empty()).then(|| manifest.skills.join(", "))),
        ("isolation", (manifest.isolation == Isolation::Worktree).then(|| "worktree".to_owned())),
        ("turns", manifest.turns.map(|turns| turns.to_string())),
        ("inspectable", yes(manifest.inspectable)),
        ("caller line", yes(manifest.caller)),
        ("detached", yes(manifest.detached)),
        ("hidden", yes(manifest.hidden)),
        ("plan_exit", yes(manifest.plan_exit)),
    ];
    all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

fn limits_text(manifest: &Manifest) -> Option<String> {
    let all: Vec<String> = manifest.bounds.iter().map(rules).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

fn rules(set: &RuleSet) -> String {
    let word = |verdict| format!("{verdict:?}").to_lowercase();
    let rule = |rule: &subtend_session::authority::Rule| {
        let on = if &*rule.resource == "*" { String::new() } else { format!(" on {}", rule.resource) };
        format!("{} {}{on}", word(rule.verdict), rule.action)
    };
    let mut all: Vec<String> = set.rules.iter().map(rule).collect();
    all.push(format!("else {}", word(set.default)));
    all.join(", ")
}
