//! `subtend drill --clients N`: kills a host under many clients.

use super::Args;
use crate::cli::fail::{Code, Fail};

#[cfg(unix)]
pub(super) fn run(args: &Args, clients: u64, seed: u64) -> Result<Code, Fail> {
    unix::run(args, clients, seed)
}

#[cfg(not(unix))]
pub(super) fn run(_: &Args, _: u64, _: u64) -> Result<Code, Fail> {
    Err(Fail::Usage("`--clients` needs a Unix socket, which this system does not have; leave it out".to_owned()))
}

#[cfg(unix)]
mod unix {
    use std::io::Write as _;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use serde_json::json;
    use subtend_drill::clients::{ClientOptions, ClientReport, drill};
    use subtend_drill::{DrillVerdict, Sabotage};

    use super::Args;
    use crate::cli::fail::{Code, Fail};
    use crate::cli::json as output;
    use crate::cli::paint::{BAD, GOOD, Styled, count, format_duration};
    use crate::cli::work::{self, StopSignal};

    pub(super) fn run(args: &Args, clients: u64, seed: u64) -> Result<Code, Fail> {
        let options =
            ClientOptions { store: args.store.clone(), seed, kills: args.kills, clients, sabotage: args.sabotage };
        let report = work::async_runtime()?.block_on(async {
            let mut stop = StopSignal::listen()?;
            let stop_requested = Arc::new(AtomicBool::new(false));
            let flag = Arc::clone(&stop_requested);
            tokio::spawn(async move {
                stop.requested().await;
                flag.store(true, Ordering::Relaxed);
            });
            let kills = args.kills;
            let mut report_progress = |report: &ClientReport| {
                if report.kills.is_multiple_of(10) {
                    // A failed write of progress does not stop the drill.
                    drop(writeln!(std::io::stderr(), "{} of {}", report.kills, count(kills, "kill")));
                }
            };
            Ok::<_, Fail>(drill(&options, &stop_requested, &mut report_progress).await?)
        })?;
        let mut out = anstream::stdout().lock();
        if args.json {
            let mut object = json!(report);
            if let Some(fields) = object.as_object_mut() {
                let took = u64::try_from(report.took.as_millis()).unwrap_or(u64::MAX);
                fields.extend([
                    ("verdict".to_owned(), json!(report.verdict())),
                    ("vacuous".to_owned(), json!(report.vacuous())),
                    ("took_ms".to_owned(), json!(took)),
                ]);
            }
            writeln!(out, "{}", output::text(&object)?)?;
        } else {
            writeln!(out, "{}", text(&report))?;
        }
        Ok(match report.verdict() {
            DrillVerdict::Sound | DrillVerdict::Caught => Code::Done,
            DrillVerdict::Violated | DrillVerdict::Vacuous | DrillVerdict::Uncaught => Code::Failed,
            DrillVerdict::Stopped => Code::Cancelled,
        })
    }

    fn text(report: &ClientReport) -> String {
        let kills = count(report.kills, "kill");
        let clients = count(report.clients, "client");
        let mut lines = vec![format!(
            "{}, seed {}: {clients}, {kills} in {}",
            report.engine,
            report.seed,
            format_duration(report.took)
        )];
        let mut row = |name: &str, text: String| lines.push(format!("  {name:<15}{text}"));
        let hits = report.hits;
        row(
            "kills hit",
            format!(
                "{} during a command · {} during an event stream · {} during the start",
                hits.unanswered, hits.reading, hits.starting
            ),
        );
        row(
            "events",
            format!(
                "{} durable in {} · {} received over {}",
                report.events,
                count(report.sessions, "session"),
                report.received,
                count(report.connections, "connection")
            ),
        );
        row(
            "commands",
            format!(
                "{} · {} retried without a reply · {} repeated after their reply",
                report.commands, report.unanswered, report.repeated
            ),
        );
        row("cancels", format!("{} done, each sent by two clients at once", report.cancels));
        let name = report.sabotage.map_or("none", Sabotage::name);
        let violations = count(report.violations.len() as u64, "violation");
        let bad = |text: String| format!("{} {text}", Styled(BAD, "✗"));
        match report.verdict() {
            DrillVerdict::Sound => lines.push(format!("{} {violations}", Styled(GOOD, "✓"))),
            DrillVerdict::Violated => lines.push(bad(violations)),
            DrillVerdict::Vacuous => {
                lines.extend(report.vacuous().into_iter().map(|what| bad(format!("the drill is vacuous: {what}"))));
            }
            DrillVerdict::Caught => {
                lines.push(format!("{} the injected bug {name} was detected: {violations}", Styled(GOOD, "✓")));
            }
            DrillVerdict::Uncaught => {
                lines.push(bad(format!("the injected bug {name} was not detected: the drill is ineffective")));
            }
            DrillVerdict::Stopped => lines.push("stopped before its end".to_owned()),
        }
        lines.extend(report.violations.iter().take(10).map(|what| format!("  {what}")));
        lines.extend(report.kept.iter().map(|kept| format!("kept for inspection: {kept}")));
        lines.join("\n")
    }
}
