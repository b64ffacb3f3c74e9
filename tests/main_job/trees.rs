//! The tree of a run: each session made model calls, and its owner received its end.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use subtend::format::Record;
use subtend::session::{CallEnd, Outcome};

use super::answers::ask;
use super::planted;
use super::record::{journals, sound_outcomes};
use crate::cli::call::{User, last_event};

const QUESTION: &str = "Where does it handle errors?";

fn fields(value: &Value) -> BTreeSet<&str> {
    value.as_object().expect("an object").keys().map(|key| &**key).collect()
}

fn start_tree(seed: u64) -> (User, Value) {
    let user = User::new();
    planted::plant(&user.workspace(), seed);
    let done = user.succeeds(&["run", "--json", QUESTION]);
    let end = last_event(&done.out);
    (user, end)
}

#[test]
fn last_event_has_only_the_fields_of_an_end() {
    let (user, end) = start_tree(5);
    let expected = ["type", "session", "run", "outcome", "answer", "partial", "turns", "usage"];
    assert_eq!(fields(&end), expected.into());
    assert_eq!((&end["type"], &end["run"], &end["outcome"]), (&json!("run_ended"), &json!(1), &json!("completed")));
    let again = ask(&user, QUESTION);
    assert_eq!(end["answer"].as_str(), Some(again.trim_end()), "the answers to one question differ");
}

#[test]
fn tree_has_only_the_documented_fields() {
    let (user, end) = start_tree(6);
    let root = user.json(&["tree", "--json", end["session"].as_str().expect("an id")]);
    let expected = ["id", "agent", "state", "outcome", "depth", "background", "usage", "children"];
    let nodes = root["children"].as_array().expect("children");
    assert_eq!(fields(&root), expected.into(), "{root:#}");
    for node in nodes {
        let child = expected.into_iter().chain(["branch"]).collect();
        assert_eq!(fields(node), child, "{node:#}");
    }
    assert_eq!((&root["id"], &root["agent"], &root["depth"]), (&end["session"], &json!("general"), &json!(0)));
    for node in nodes {
        let row = [&node["agent"], &node["state"], &node["outcome"], &node["depth"], &node["background"]];
        let expected = [json!("explore"), json!("quiet"), json!("completed"), json!(1), json!(true)];
        assert_eq!(row, expected.each_ref(), "{node:#}");
        assert_eq!(node["children"], json!([]));
    }
}

#[test]
fn three_children_or_more_work_in_the_background() {
    let (user, end) = start_tree(7);
    let ends = sound_outcomes(&user);
    let journals = journals(&user);
    let root = end["session"].as_str().and_then(|id| id.parse().ok()).expect("an id");
    assert!(journals.len() >= 4 && ends.values().all(|outcome| *outcome == Outcome::Completed), "{ends:#?}");
    for (session, records) in journals.iter().filter(|(session, _)| **session != root) {
        let worked = |record: &&Record| matches!(record, Record::CallFinished(call) if call.end == CallEnd::Ok);
        let worked = records.iter().filter(worked).count();
        assert!(worked >= 2, "{session} had {worked} results: {records:#?}");
    }
}

#[test]
fn each_end_arrives_once_as_a_generated_message() {
    let (user, end) = start_tree(8);
    let journals = journals(&user);
    let root = end["session"].as_str().and_then(|id| id.parse().ok()).expect("an id");
    let (mut spawned, mut notified) = (BTreeMap::new(), BTreeMap::new());
    for record in &journals[&root] {
        if let Record::ChildSpawned(child) = record {
            let mode = serde_json::to_value(child.mode).expect("json");
            assert_eq!((mode, child.detached), (json!("background"), false), "{child:?}");
            spawned.insert(child.child, child.call);
        }
        if let Record::NoticeTaken(taken) = record {
            let carrier = serde_json::to_value(taken.carrier).expect("json");
            assert_eq!(carrier, json!("message"), "{taken:?}");
            for item in &taken.items {
                let before = notified.insert(item.child, item.key.expect("an owned run"));
                assert_eq!(before, None, "{} was noticed twice", item.child);
            }
        }
    }
    assert!(spawned.len() >= 3, "{spawned:?}");
    assert_eq!(notified, spawned);

    let shown = user.json(&["show", "--json", end["session"].as_str().expect("an id")]);
    let notices = shown["entries"].as_array().expect("entries").iter().filter(|entry| entry["type"] == "notice");
    let ends = notices.flat_map(|notice| notice["ends"].as_array().expect("ends"));
    let reported: BTreeSet<_> = ends.map(|end| end["child"].as_str().expect("an id").to_owned()).collect();
    assert_eq!(reported, spawned.keys().map(ToString::to_string).collect());
}

#[test]
fn different_questions_give_different_trees() {
    let user = User::new();
    planted::plant_lights(&user.workspace());
    let questions = ["Where does it handle errors?", "Who uses RunLantern?", "What is in ships and in shore?"];
    let mut prompts = BTreeSet::new();
    let mut answers = BTreeSet::new();
    for question in questions {
        let done = user.succeeds(&["run", "--json", question]);
        let end = last_event(&done.out);
        answers.insert(end["answer"].as_str().expect("an answer").to_owned());
        let tree = user.json(&["tree", "--json", end["session"].as_str().expect("an id")]);
        let children = tree["children"].as_array().expect("children");
        assert!(children.len() >= 3, "{question}: {tree:#}");
        for child in children {
            let shown = user.json(&["show", "--json", child["id"].as_str().expect("an id")]);
            let prompt = shown["entries"][0]["text"].as_str().expect("a prompt").to_owned();
            assert!(prompt.contains(question), "{prompt}");
            let area_and_words: Vec<_> = prompt.lines().filter(|line| !line.starts_with("Question: ")).collect();
            assert!(prompts.insert(area_and_words.join("\n")), "asked twice: {prompt}");
        }
    }
    assert_eq!(answers.len(), questions.len());
    let roots = user.json(&["sessions", "--json"]);
    let titles: Vec<_> =
        roots.as_array().expect("rows").iter().map(|row| row["title"].as_str().expect("a title")).collect();
    assert_eq!(titles, questions.iter().rev().copied().collect::<Vec<_>>(), "newest first");
    sound_outcomes(&user);
}

#[test]
fn reading_verbs_show_the_tree() {
    let (user, end) = start_tree(9);
    let id = end["session"].as_str().expect("an id");
    let answer = end["answer"].as_str().expect("an answer");
    let shown = user.succeeds(&["show", "--full", id]);
    let first = answer.lines().nth(2).expect("a heading");
    assert!(shown.out.contains(QUESTION) && shown.out.contains(first), "{}", shown.out);
    let sessions = user.call(&["sessions"]);
    assert_eq!((sessions.code, sessions.err.as_str()), (Some(0), ""), "{sessions:?}");
    assert!(sessions.out.starts_with(&id[id.len() - 6..]) && sessions.out.contains(QUESTION), "{sessions:?}");
    let tree = user.call(&["tree", id]);
    assert!(tree.out.matches("✓ explore").count() >= 3 && tree.out.starts_with("✓ general"), "{tree:?}");
    let verified = user.json(&["verify", "--json"]);
    assert_eq!((&verified["sound"], &verified["problems"]), (&json!(true), &json!([])));
}

#[test]
fn areas_are_chosen_by_matches_of_the_question() {
    let user = User::new();
    let write = |path: String, text: &str| {
        let path = user.workspace().join(path);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(path, text).expect("a file");
    };
    // Large crates with words that contain `actor`, and small ones with the word itself.
    for of in ["asn1", "bindings", "codes", "formats", "parsers", "tables", "zones"] {
        (0..30).for_each(|n| write(format!("{of}-1.0.{n}/src/lib.rs"), "//! Refactor.\nfn factory() {}\n"));
        (0..30).for_each(|n| write(format!("{of}-2.0.0/src/{n}.rs"), "// The refactored factor.\n"));
    }
    write("ractor-0.16.5/src/actor.rs".into(), "//! Actors.\npub struct ActorRef;\n");
    write("ractor-0.16.5/src/supervision.rs".into(), "//! A supervisor restarts an actor.\n");
    write("checker-0.3.1/src/model.rs".into(), "//! Explores an actor.\n");
    let question = "Which of these crates implement an actor supervisor?";
    let done = user.succeeds(&["run", "--json", question]);
    let end = last_event(&done.out);
    let answer = end["answer"].as_str().expect("an answer");
    let rows: Vec<&str> = answer.lines().filter(|line| line.starts_with("| `")).collect();
    let chosen: Vec<String> =
        rows.iter().map(|row| row.splitn(4, " | ").take(2).collect::<Vec<_>>().join(": ")).collect();
    let expected =
        ["| `ractor-0.16.5`: paths name `actor`, `supervisor`; 3 matching lines", "| `checker-0.3.1`: 1 matching line"];
    assert_eq!(chosen[..2], expected, "{answer}");
    assert!(chosen.len() == 3 && chosen[2].ends_with(": size"), "{answer}");
    let how = "found 4 matching lines in 3 files. Areas that match come first";
    assert!(answer.contains("One search for the words of the question, `") && answer.contains(how), "{answer}");
    assert!(answer.contains("and 199 more"), "{answer}");
}
