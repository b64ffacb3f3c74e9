//! Answers of the offline model contain only true claims.

use std::fs;
use std::path::Path;

use super::checker::{self, Checked};
use super::planted::{self, HIDDEN};
use super::record::sound_outcomes;
use super::truth::{BEACON, ERROR, LANTERN, Truth, Word};
use crate::cli::call::{CommandOutput, User};

const QUESTION: &str = "How is this project put together, and where does it handle errors?";

/// Asks a question in a workspace, and checks that stdout has only the answer.
pub(crate) fn ask(user: &User, question: &str) -> String {
    let done = user.succeeds(&["run", question]);
    let CommandOutput { out, err, .. } = done;
    assert!(out.starts_with("Offline answer") && !err.contains("Offline answer"), "{err}");
    out
}

/// Checks that all claims are true, that there are at least `facts` of them, and that no number is a lower bound.
fn assert_true(checked: &Checked, facts: usize, text: &str) {
    assert_eq!(checked.wrong, [""; 0], "{text}");
    assert!(checked.facts >= facts && !checked.doubt, "{checked:?}: {text}");
}

fn assert_reports_true(user: &User, truth: &Truth, words: &[Word]) {
    let tree = user.json(&["tree", "root", "--json"]);
    for child in tree["children"].as_array().expect("children") {
        let shown = user.json(&["show", "--json", child["id"].as_str().expect("an id")]);
        let mut answers = shown["entries"].as_array().expect("entries").iter();
        let last = answers.rfind(|entry| entry["type"] == "answer").expect("an answer");
        let report = last["text"].as_str().expect("a report");
        assert_true(&checker::findings(report, truth, words), 4, report);
    }
}

fn check_planted_repository(seed: u64) {
    let user = User::new();
    let planted = planted::plant(&user.workspace(), seed);
    let truth = Truth::of(&user.workspace(), HIDDEN);
    let lines = truth.files.iter().flat_map(|(path, file)| {
        (1..).zip(file.lines.iter().flatten()).map(move |(number, line)| (path.clone(), number, line))
    });
    let found = lines.filter(|(_, _, line)| (ERROR.means)(line)).map(|(path, number, _)| (path, number));
    assert_eq!(found.collect::<std::collections::BTreeSet<_>>(), planted.errors, "the checker misses planted errors");

    let answer = ask(&user, QUESTION);
    assert_true(&checker::answer(&answer, &truth, &[ERROR]), 40, &answer);
    assert_reports_true(&user, &truth, &[ERROR]);
    sound_outcomes(&user);
}

#[test]
fn answers_about_a_generated_repository_are_true() {
    check_planted_repository(1);
}

#[test]
fn answers_about_a_second_repository_are_true() {
    check_planted_repository(2);
}

#[test]
fn answers_about_a_third_repository_are_true() {
    check_planted_repository(3);
}

#[test]
fn answers_about_names_and_plain_words_are_true() {
    let user = User::new();
    planted::plant_lights(&user.workspace());
    let truth = Truth::of(&user.workspace(), &[]);
    let answer = ask(&user, "Who uses RunLantern, and where is the beacon?");
    assert_true(&checker::answer(&answer, &truth, &[LANTERN, BEACON]), 30, &answer);
    assert_reports_true(&user, &truth, &[LANTERN, BEACON]);
}

#[test]
fn answers_about_this_repository_are_true() {
    let user = User::new();
    // Works on a copy, because the original may change.
    copy(Path::new(env!("CARGO_MANIFEST_DIR")), &user.workspace());
    user.file("target/debug/made.rs", "error\n");
    let truth = Truth::of(&user.workspace(), &["target"]);
    let answer = ask(&user, QUESTION);
    assert_true(&checker::answer(&answer, &truth, &[ERROR]), 60, &answer);
    assert_reports_true(&user, &truth, &[ERROR]);
    sound_outcomes(&user);
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a directory").map(|entry| entry.expect("an entry")) {
        let (name, kind) = (entry.file_name(), entry.file_type().expect("its kind"));
        if kind.is_file() {
            fs::copy(entry.path(), to.join(name)).expect("a copy");
        } else if kind.is_dir() && name != "target" && name != ".git" {
            copy(&entry.path(), &to.join(name));
        }
    }
}
