//! Writes the final answer from merged reports.

use super::areas::AreaPlan;
use super::brief::Area;
use super::markdown::code;
use super::report::{ChildReport, Matches, display_line};
use super::results::{FoundCount, ToolListing};
use super::transcript::MAX_QUESTION_BYTES;

/// The start of every final answer, which says how the answer was made.
pub(super) const OPENING: &str =
    "Offline answer, put together by rules from what the workspace tools returned; no language model was asked.";

const MAX_PLACES: usize = 16;

const MAX_LISTED: usize = 20;

#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) area: Area,
    pub(super) why: String,
    pub(super) report: Result<ChildReport, String>,
}

pub(super) fn plain(text: &str) -> String {
    format!("{OPENING}\n\n{text}")
}

pub(super) fn markdown(listing: Option<&ToolListing>, plan: &AreaPlan, parts: &[Part]) -> String {
    let mut out = format!("{OPENING}\n\n## How it is put together\n\n");
    if let Some(listing) = listing {
        out.push_str(&describe_listing(listing));
    }
    if !plan.how.is_empty() {
        out.push_str(&format!("{}\n\n", plan.how));
    }
    let reports: Vec<&ChildReport> = parts.iter().filter_map(|part| part.report.as_ref().ok()).collect();
    if !reports.is_empty() {
        out.push_str(&table(parts));
    }
    for word in searched_words(plan, &reports) {
        out.push_str(&describe_matches(word, &reports));
    }
    out.push_str(&limits(plan, parts));
    out.trim_end().to_owned()
}

fn describe_listing(listing: &ToolListing) -> String {
    let tops: Vec<&str> = listing.dirs.iter().map(|dir| &*dir.path).filter(|path| !path.contains('/')).collect();
    let own = listing.files.iter().filter(|file| !file.path.contains('/')).count();
    let own = FoundCount {
        n: u64::try_from(own).unwrap_or(u64::MAX),
        exact: listing.count.n == u64::try_from(listing.files.len()).unwrap_or(0),
    };
    // A truncated listing may show none of the files.
    let own = if own.n == 0 && !own.exact { "files".to_owned() } else { own.of("file", "files") };
    match tops.len() {
        0 => format!("The workspace has no directories and {own} at its top.\n\n"),
        _ => format!(
            "At its top the workspace has {own} and the directories {}. What ignore files leave out is not counted.\n\n",
            dirs(&tops)
        ),
    }
}

fn dirs(paths: &[&str]) -> String {
    let mut shown: Vec<String> = paths.iter().take(MAX_LISTED).map(|path| code(&format!("{path}/"))).collect();
    if let Some(more) = paths.len().checked_sub(MAX_LISTED).filter(|more| *more > 0) {
        shown.push(format!("and {more} more"));
    }
    shown.join(", ")
}

fn table(parts: &[Part]) -> String {
    let mut out =
        String::from("| area | chosen by | files | kinds | first lines of its files |\n|---|---|---|---|---|\n");
    for (why, report) in parts.iter().filter_map(|part| Some((&part.why, part.report.as_ref().ok()?))) {
        let files = report.files.map_or_else(|| "not listed".to_owned(), |files| files.to_string());
        let begins: Vec<String> =
            report.opens.iter().take(2).map(|place| format!("{} {}", code(&place.name()), code(&place.text))).collect();
        let cells = [report.area.to_text(), why.clone(), files, report.kinds_text(), begins.join("<br>")];
        out.push_str(&format!("| {} |\n", cells.map(|cell| cell.replace('|', "\\|")).join(" | ")));
    }
    out.push('\n');
    out
}

/// Returns the searched words, by label and pattern, in the order of the plan.
fn searched_words<'a>(plan: &'a AreaPlan, reports: &[&'a ChildReport]) -> Vec<(&'a str, &'a str)> {
    let planned = plan.briefs.iter().flat_map(|(brief, _)| &brief.words).map(|word| (&*word.label, &*word.pattern));
    let reported = reports.iter().flat_map(|report| &report.words).map(|word| (&*word.label, &*word.pattern));
    let mut out: Vec<(&str, &str)> = Vec::new();
    for word in planned.chain(reported) {
        if !out.contains(&word) {
            out.push(word);
        }
    }
    out
}

fn describe_matches((label, pattern): (&str, &str), reports: &[&ChildReport]) -> String {
    let found: Vec<(&Area, &Matches)> = reports
        .iter()
        .flat_map(|report| report.words.iter().map(move |word| (&report.area, word)))
        .filter(|(_, word)| word.label == label && word.pattern == pattern)
        .collect();
    let mut out = format!("## {}\n\n", code(label));
    if found.is_empty() {
        out.push_str("It was not searched: see below.\n\n");
        return out;
    }
    let lines = found.iter().fold(FoundCount::exactly(0), |sum, (_, word)| sum.add(word.lines));
    let files = found.iter().fold(FoundCount::exactly(0), |sum, (_, word)| sum.add(word.files));
    let areas = if found.len() == 1 { "the one area".into() } else { format!("the {} areas", found.len()) };
    if lines == FoundCount::exactly(0) {
        out.push_str(&format!("No line of {areas} searched matches {}.\n\n", code(pattern)));
        return out;
    }
    let lines = lines.of("line matches", "lines match").replacen("at least", "At least", 1);
    out.push_str(&format!("{lines} {} in {} of {areas} searched:\n\n", code(pattern), files.of("file", "files")));
    let each = MAX_PLACES
        .checked_div(found.iter().filter(|(_, word)| !word.places.is_empty()).count())
        .unwrap_or(MAX_PLACES)
        .max(2);
    for (area, word) in found.iter().filter(|(_, word)| word.lines != FoundCount::exactly(0)) {
        out.push_str(&format!(
            "- {}: {} in {}\n",
            area.to_text(),
            word.lines.of("line", "lines"),
            word.files.of("file", "files")
        ));
        for place in word.places.iter().take(each) {
            out.push_str(&format!("  - {} {}\n", code(&place.name()), code(&display_line(&place.text))));
        }
    }
    let none: Vec<String> =
        found.iter().filter(|(_, word)| word.lines == FoundCount::exactly(0)).map(|(area, _)| area.to_text()).collect();
    if !none.is_empty() {
        out.push_str(&format!("- no line in {}\n", none.join(", ")));
    }
    out.push('\n');
    out
}

fn limits(plan: &AreaPlan, parts: &[Part]) -> String {
    let mut out = Vec::new();
    for Part { area, report, .. } in parts {
        match report {
            Err(why) => out.push(format!("{}: no report: {}", area.to_text(), display_line(why))),
            Ok(report) => {
                out.extend(report.notes.iter().map(|note| format!("{}: {note}", area.to_text())));
                if !report.whole {
                    out.push(format!("{}: the report was truncated; its findings may be incomplete", area.to_text()));
                }
            }
        }
    }
    if !plan.left.is_empty() {
        let left: Vec<&str> = plan.left.iter().map(|path| &**path).collect();
        out.push(format!("not covered: {}", dirs(&left)));
    }
    if plan.cut {
        out.push(format!("only the first {MAX_QUESTION_BYTES} bytes of the question were read"));
    }
    if plan.briefs.iter().all(|(brief, _)| brief.words.is_empty()) {
        out.push("the question names nothing to search for, so nothing was searched".into());
    }
    let lines: String = out.iter().map(|line| format!("- {line}\n")).collect();
    if lines.is_empty() { String::new() } else { format!("## What this does not cover\n\n{lines}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncated_listing_without_files_shows_no_count() {
        let first = |listing: &str| {
            describe_listing(&ToolListing::parse(listing, false)).lines().next().unwrap_or_default().to_owned()
        };
        let rest = "What ignore files leave out is not counted.";
        let cut = first("a/  2 entries\nb/  1 entry\n[2 directories; 9 files; the rest is not shown]");
        assert_eq!(cut, format!("At its top the workspace has files and the directories `a/`, `b/`. {rest}"));
        let all = first("a/  0 entries\nx  1 byte, 1 line\n[1 directory; 1 file]");
        assert_eq!(all, format!("At its top the workspace has 1 file and the directories `a/`. {rest}"));
    }
}
