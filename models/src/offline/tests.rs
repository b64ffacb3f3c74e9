use std::sync::Arc;

use proptest::prelude::*;
use subtend_session::ids::{AttemptNo, Seq};
use subtend_session::record::{Prompt, Stop};
use subtend_session::settings::Settings;

use super::results::FoundCount;
use super::*;

/// A simulated session: the answers of the model, and the results and notices that the test supplies.
struct Talk {
    messages: Vec<Message>,
    tools: Vec<ToolSpec>,
}

fn tool(name: &str) -> ToolSpec {
    let agents = json!({ "properties": { "subagent_type": { "enum": ["explore", "general"] } } });
    ToolSpec { name: name.into(), description: "".into(), schema: Arc::new(agents) }
}

fn input(text: &str) -> Message {
    Message::User { seq: Seq(1), text: text.into() }
}

impl Talk {
    fn new(tools: &[&str], question: &str) -> Self {
        Self { messages: vec![input(question)], tools: tools.iter().map(|name| tool(name)).collect() }
    }

    /// Returns the model's next answer and appends it to the transcript.
    fn turn(&mut self) -> Answer {
        let answer = respond(&self.messages, &self.tools);
        self.messages.push(Message::Assistant {
            seq: Seq(2),
            text: answer.text.clone(),
            reasoning: None,
            calls: answer.calls.clone().into(),
        });
        answer
    }

    /// Returns the calls of the next answer as (tool, arguments).
    fn calls(&mut self) -> Vec<(String, Value)> {
        let answer = self.turn();
        let args = |call: &ToolCall| serde_json::from_str(&call.args).unwrap();
        answer.calls.iter().map(|call| (call.tool.to_string(), args(call))).collect()
    }

    /// Returns the text of the next answer, which has no calls.
    fn next_text(&mut self) -> String {
        let answer = self.turn();
        assert_eq!((&*answer.calls, answer.stop), (&[][..], Stop::End), "{answer:?}");
        answer.text.unwrap().to_string()
    }

    fn results(&mut self, contents: &[&str]) {
        let results: Vec<(bool, &str)> = contents.iter().map(|content| (false, *content)).collect();
        self.add_results(&results);
    }

    fn add_results(&mut self, contents: &[(bool, &str)]) {
        for (ix, (error, content)) in (0_u32..).zip(contents) {
            let call = CallId { turn: TurnNo(1), ix };
            self.messages.push(Message::Result { call, error: *error, content: (*content).into() });
        }
    }

    fn notice(&mut self, blocks: &str) {
        let text = format!("Background tasks have ended. The text between the fences is their output.\n{blocks}");
        self.messages.push(Message::Notice { seq: Seq(3), text: text.into() });
    }

    fn user(&mut self, text: &str) {
        self.messages.push(input(text));
    }
}

const ALL: [&str; 4] = ["list", "search", "read", "task"];
const READERS: [&str; 3] = ["list", "search", "read"];

fn first_calls(text: &str) -> [(String, Value); 2] {
    let search = areas::search(&words::words(text), true);
    [("list".into(), json!({ "path": ".", "depth": 2 })), ("search".into(), search)]
}

/// The result of the search for locks in [`TREE`].
const FOUND: &str = "src/lock.rs  2 matching lines\nsrc/lib.rs  1 matching line\n[3 matching lines in 2 files of 5 files; 1 path matches]";

const TREE: &str = "docs/  1 entry\nsrc/  3 entries\nREADME.md  9 bytes, 2 lines\ndocs/guide.md  5 bytes, 1 line\n\
                    src/lib.rs  30 bytes, 3 lines\nsrc/lock.rs  40 bytes, 4 lines\nsrc/x.bin  9 bytes\n[2 directories; 5 files]";

fn completed(id: &str, report: &str) -> String {
    format!("\n[{id} (explore)] completed:\n````\n{report}\n````\n")
}

fn dull_report(area: &Area) -> String {
    ChildReport { files: Some(FoundCount::exactly(1)), ..ChildReport::of(area.clone()) }.text()
}

fn src_report() -> ChildReport {
    let places = vec![results::Location { path: "src/lock.rs".into(), line: 2, text: "pub struct Lock;".into() }];
    ChildReport {
        files: Some(FoundCount::exactly(3)),
        kinds: vec![("Rust".into(), FoundCount::exactly(2))],
        words: vec![locks(FoundCount::at_least(9), FoundCount::at_least(2), places)],
        ..ChildReport::of(Area::deep("src"))
    }
}

fn docs_report() -> ChildReport {
    let words = vec![locks(FoundCount::exactly(0), FoundCount::exactly(0), Vec::new())];
    ChildReport { files: Some(FoundCount::exactly(1)), words, ..ChildReport::of(Area::deep("docs")) }
}

fn locks(lines: FoundCount, files: FoundCount, places: Vec<results::Location>) -> report::Matches {
    report::Matches { label: "locks".into(), pattern: "(?i)lock".into(), lines, files, places }
}

#[test]
fn explorer_lists_and_searches_then_reads_then_reports() {
    let words = words::words("locks and RunEnded");
    let brief = Brief { area: Area::deep("src"), words };
    let mut talk = Talk::new(&READERS, &brief.prompt("locks and RunEnded?"));
    let search = |pattern: &str| json!({ "pattern": pattern, "path": "src", "regex": true, "max_matches": 200 });
    assert_eq!(
        talk.calls(),
        [
            ("list".into(), json!({ "path": "src", "depth": 10 })),
            ("search".into(), search(r"RunEnded|run_ended|run\-ended")),
            ("search".into(), search("(?i)lock")),
        ]
    );
    talk.results(&[
        "src/lib.rs  30 bytes, 3 lines\nsrc/lock.rs  40 bytes, 4 lines\nsrc/x.bin  9 bytes\n[0 directories; 3 files]",
        "[no matches in 3 files; 1 binary file skipped]",
        "src/lib.rs:3: mod lock;\nsrc/lock.rs:2: pub struct Lock;\n[9 matching lines in 2 files of 3 files; 2 shown: narrow the pattern, path or glob]",
    ]);
    let read = |path: &str| ("read".to_owned(), json!({ "path": path, "from_line": 1, "lines": 80 }));
    assert_eq!(talk.calls(), [read("src/lib.rs"), read("src/lock.rs")]);
    talk.add_results(&[
        (false, "     1\t//! The library.\n     2\t\n     3\tmod lock;\n[lines 1-3 of 3, 30 bytes]"),
        (true, "cannot read `src/lock.rs`: the system denies permission"),
    ]);
    assert_eq!(
        talk.next_text(),
        "`src` holds 3 files (Rust 2, .bin 1). Nothing matches `RunEnded`. 9 lines match `locks` in 2 files. \
         `src/lib.rs:1` begins: `//! The library.` \
         Note: `src/lock.rs` could not be read: cannot read `src/lock.rs`: the system denies permission.\n\
         \n\
         ```findings\n\
         area: src\n\
         depth: all\n\
         files: 3\n\
         kind: Rust: 2\n\
         kind: .bin: 1\n\
         begins: src/lib.rs:1: //! The library.\n\
         note: `src/lock.rs` could not be read: cannot read `src/lock.rs`: the system denies permission\n\
         word: RunEnded\n\
         pattern: RunEnded|run_ended|run\\-ended\n\
         matching lines: 0\n\
         matching files: 0\n\
         word: locks\n\
         pattern: (?i)lock\n\
         matching lines: 9\n\
         matching files: 2\n\
         src/lib.rs:3: mod lock;\n\
         src/lock.rs:2: pub struct Lock;\n\
         end\n\
         ```"
    );
}

#[test]
fn lead_starts_explorers_and_answers_from_their_reports() {
    let mut talk = Talk::new(&ALL, "Where are the locks?");
    assert_eq!(talk.calls(), first_calls("locks"));
    talk.results(&[TREE, FOUND]);
    let tasks = talk.calls();
    let briefs: Vec<Brief> =
        tasks.iter().map(|(_, args)| Brief::parse(args["prompt"].as_str().unwrap()).unwrap()).collect();
    assert_eq!(
        briefs.iter().map(|brief| brief.area.clone()).collect::<Vec<_>>(),
        [Area::deep("src"), Area::shallow("."), Area::deep("docs")]
    );
    assert!(
        tasks
            .iter()
            .all(|(tool, args)| tool == "task" && args["subagent_type"] == "explore" && args["background"] == true)
    );
    talk.results(&[
        r#"{"session_id":"01890a5d","short":"bbbbbb"}"#,
        r#"{"session_id":"aaaaaa"}"#,
        r#"{"session_id":"cccccc"}"#,
    ]);
    assert_eq!(talk.next_text(), "Offline, at work: 0 of 3 explorers are back; the answer comes when all have ended.");
    talk.notice(&completed("bbbbbb", &src_report().text()));
    assert_eq!(talk.next_text(), "Offline, at work: 1 of 3 explorers are back; the answer comes when all have ended.");
    talk.notice(&format!(
        "{}\n[aaaaaa (explore)] was cancelled by a person; no output\n",
        completed("cccccc", &docs_report().text())
    ));
    assert_eq!(
        talk.next_text(),
        "Offline answer, put together by rules from what the workspace tools returned; no language model was asked.\n\
         \n\
         ## How it is put together\n\
         \n\
         At its top the workspace has 1 file and the directories `docs/`, `src/`. What ignore files leave out is not counted.\n\
         \n\
         One search for the words of the question, `(?:(?-u:\\b)|_)(?:(?i)lock)`, found 3 matching lines in 2 files. Areas that match \
         come first: by names of paths, then by matching lines. Where too few match, the largest follow.\n\
         \n\
         | area | chosen by | files | kinds | first lines of its files |\n\
         |---|---|---|---|---|\n\
         | `src` | paths name `locks`; 3 matching lines | 3 | Rust 2 |  |\n\
         | `docs` | size | 1 |  |  |\n\
         \n\
         ## `locks`\n\
         \n\
         At least 9 lines match `(?i)lock` in at least 2 files of the 2 areas searched:\n\
         \n\
         - `src`: at least 9 lines in at least 2 files\n\
         \x20 - `src/lock.rs:2` `pub struct Lock;`\n\
         - no line in `docs`\n\
         \n\
         ## What this does not cover\n\
         \n\
         - `.` (its own files): no report: the explorer was cancelled by a person"
    );
}

#[test]
fn different_questions_give_different_trees() {
    let tree = |question: &str| {
        let mut talk = Talk::new(&ALL, question);
        talk.turn();
        talk.results(&[TREE, FOUND]);
        let brief = |args: &Value| Brief::parse(args["prompt"].as_str().unwrap()).unwrap();
        let briefs: Vec<Brief> = talk.calls().iter().map(|(_, args)| brief(args)).collect();
        briefs
            .into_iter()
            .map(|brief| (brief.area.path, brief.words.into_iter().map(|word| word.label).collect::<Vec<_>>()))
            .collect::<Vec<_>>()
    };
    let area =
        |path: &str, words: &[&str]| (path.to_owned(), words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
    assert_eq!(
        tree("What do the docs say about timers?"),
        [area("docs", &["timers"]), area("src", &["timers"]), area(".", &["timers"])]
    );
    assert_eq!(
        tree("Where are errors handled?"),
        [area("src", &["error"]), area(".", &["error"]), area("docs", &["error"])]
    );
}

#[test]
fn empty_workspace_is_reported() {
    let mut talk = Talk::new(&ALL, "What is this?");
    talk.turn();
    talk.results(&["[0 directories; 0 files]"]);
    let says = "The workspace shows no files, so there is nothing to answer from. [0 directories; 0 files]";
    assert_eq!(talk.next_text(), answer::plain(says));
}

#[test]
fn single_file_is_explored_without_children() {
    let mut talk = Talk::new(&ALL, "What is the parser?");
    talk.turn();
    let listed = "main.rs  30 bytes, 2 lines\n[0 directories; 1 file]";
    talk.results(&[listed, "[no matches in 1 file]"]);
    let parts = areas::search(&words::words("parser"), false);
    assert_eq!(talk.calls(), [("search".into(), parts)], "no word starts with it, so parts of words must be searched");
    talk.results(&["[no matches in 1 file]"]);
    let search = json!({ "pattern": "(?i)pars", "path": ".", "regex": true, "max_matches": 200 });
    assert_eq!(talk.calls(), [("list".into(), json!({ "path": ".", "depth": 10 })), ("search".into(), search)]);
    talk.results(&[listed, "[no matches in 1 file]"]);
    assert_eq!(talk.calls(), [("read".into(), Brief::read("main.rs"))]);
    talk.results(&["     1\t// Adds.\n     2\tfn main() {}\n[lines 1-2 of 2, 30 bytes]"]);
    let says = talk.next_text();
    assert!(says.contains("The workspace has no directories and 1 file at its top."), "{says}");
    assert!(says.contains("| `.` | the whole workspace | 1 | Rust 1 | `main.rs:1` `// Adds.` |"), "{says}");
    assert!(says.contains("No line of the one area searched matches `(?i)pars`."), "{says}");
}

#[test]
fn lead_without_task_explores_itself() {
    let mut talk = Talk::new(&READERS, "Where are the locks?");
    talk.turn();
    talk.results(&[TREE, FOUND]);
    let tools: Vec<String> = talk.calls().into_iter().map(|(tool, _)| tool).collect();
    assert_eq!(tools, ["list", "search"]);
    talk.add_results(&[(false, "a  1 byte\n[0 directories; 1 file]"), (true, "the time limit of 120000 ms passed")]);
    let says = talk.next_text();
    assert!(says.contains("It was not searched: see below."), "{says}");
    assert!(says.contains("- `.`: `locks`: search failed: the time limit of 120000 ms passed"), "{says}");
}

#[test]
fn lead_explores_itself_if_explorers_cannot_start() {
    let mut talk = Talk::new(&ALL, "Where are the locks?");
    talk.turn();
    talk.results(&[TREE, FOUND]);
    assert_eq!(talk.calls().len(), 3);
    talk.add_results(&[(true, "depth 5 is the limit"); 3]);
    assert_eq!(talk.calls().len(), 2);
    talk.results(&["a.rs  1 byte, 1 line\n[0 directories; 1 file]", "[no matches in 1 file]"]);
    assert_eq!(talk.calls().len(), 1);
    talk.results(&["     1\tx\n[lines 1-1 of 1, 1 byte]"]);
    let says = talk.next_text();
    assert!(says.ends_with("- `.`: no explorer could be started: depth 5 is the limit"), "{says}");
}

#[test]
fn answer_reports_an_unlisted_workspace_or_missing_tools() {
    let mut talk = Talk::new(&ALL, "What is this?");
    talk.turn();
    talk.add_results(&[(true, "cannot list `.`: the system denies permission")]);
    let says = "The workspace could not be listed: cannot list `.`: the system denies permission";
    assert_eq!(talk.next_text(), answer::plain(says));
    let says = Talk::new(&["task", "shell"], "What is this?").next_text();
    assert!(says.contains("none of the tools `list`, `search` and `read` is offered here"), "{says}");
    let searched = Talk::new(&["search"], "Where are the locks?").calls();
    assert_eq!(searched.iter().map(|(tool, _)| &**tool).collect::<Vec<_>>(), ["search"]);
}

#[test]
fn answered_question_is_closed_and_the_next_starts_fresh() {
    let mut talk = Talk::new(&ALL, "What is this?");
    talk.turn();
    talk.results(&["[0 directories; 0 files]"]);
    talk.next_text();
    talk.notice("\n[dddddd (explore)] completed:\n```\nlate\n```\n");
    assert_eq!(talk.turn(), Answer { text: None, ..Answer::of_text("") });
    talk.user("And now?");
    assert_eq!(talk.calls(), [("list".into(), json!({ "path": ".", "depth": 2 }))]);
}

#[test]
fn new_input_extends_the_question_and_retries_failed_calls() {
    let mut talk = Talk::new(&ALL, "Where are the locks?");
    talk.turn();
    talk.add_results(&[(true, "interrupted"), (true, "interrupted")]);
    talk.user("And the timers?");
    assert_eq!(talk.calls(), first_calls("locks timers"));
    talk.results(&[TREE, FOUND]);
    let briefs: Vec<Brief> =
        talk.calls().iter().map(|(_, args)| Brief::parse(args["prompt"].as_str().unwrap()).unwrap()).collect();
    let labels: Vec<&str> = briefs[0].words.iter().map(|word| &*word.label).collect();
    assert_eq!(labels, ["locks", "timers"]);
    let reports: String = briefs
        .iter()
        .enumerate()
        .map(|(n, brief)| completed(&format!("eeeee{n}"), &dull_report(&brief.area)))
        .collect();
    // Without ids, results are matched by the area of a report.
    talk.results(&["started", "started", "started"]);
    talk.notice(&reports);
    assert!(talk.next_text().starts_with(answer::OPENING));
}

#[tokio::test]
async fn answer_is_streamed_in_pieces() {
    let received = Arc::new(std::sync::Mutex::new(String::new()));
    let sink = Arc::clone(&received);
    let deltas = Deltas::to(move |delta| match delta {
        Delta::Text(text) | Delta::Reasoning(text) => sink.lock().unwrap().push_str(&text),
        Delta::Call { call, tool } => sink.lock().unwrap().push_str(&format!("<{call} {tool}>")),
    });
    let request = Request {
        session: "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap(),
        agent: "general".into(),
        model: "offline".into(),
        turn: TurnNo(1),
        attempt: AttemptNo(1),
        system: "".into(),
        messages: Arc::new(vec![input("What is this?")]),
        prompt: Prompt::Plain,
        tools: ALL.iter().map(|name| tool(name)).collect(),
        settings: Settings::default(),
        format: None,
    };
    let answer = Offline::new().call(request, deltas).await.unwrap();
    assert_eq!(answer.text.as_deref(), Some("Offline, at work: listing the workspace."));
    assert_eq!(*received.lock().unwrap(), "Offline, at work: listing the workspace.<1.0 list>");
}

fn any_message() -> impl Strategy<Value = Message> {
    let text = prop_oneof![
        "\\PC{0,60}",
        Just(TREE.to_owned()),
        Just(completed("aaaaaa", &dull_report(&Area::deep("src")))),
        Just("a:1: b\n[1 matching line in 1 file of 1 file]".to_owned()),
        Just(r#"{"session_id":"aaaaaa"}"#.to_owned()),
        Just(Brief { area: Area::deep("src"), words: words::words("locks") }.prompt("locks")),
    ];
    let tool_calls = prop::sample::select(vec!["list", "search", "read", "task", "odd"]).prop_flat_map(|tool| {
        let args = prop::sample::select(vec![r#"{"path":".","depth":2}"#, r#"{"path":"src","depth":10}"#, "{", "null"]);
        args.prop_map(move |args| ToolCall { provider_id: "".into(), tool: tool.into(), args: args.into() })
    });
    (text, prop::collection::vec(tool_calls, 0..3), 0_u32..3, any::<bool>(), 0..5).prop_map(
        |(text, calls, ix, error, kind)| {
            let text: Text = text.into();
            match kind {
                0 => Message::User { seq: Seq(1), text },
                1 => Message::Assistant { seq: Seq(1), text: Some(text), reasoning: None, calls: calls.into() },
                2 => Message::Result { call: CallId { turn: TurnNo(1), ix }, error, content: text },
                3 => Message::Notice { seq: Seq(1), text },
                _ => Message::Prompt { text },
            }
        },
    )
}

proptest! {
    #[test]
    fn any_transcript_gets_an_answer(messages in prop::collection::vec(any_message(), 0..20), tools in prop::sample::subsequence(ALL.to_vec(), 0..=4)) {
        let tools: Vec<ToolSpec> = tools.into_iter().map(tool).collect();
        let answer = respond(&messages, &tools);
        prop_assert_eq!(answer.stop == Stop::Calls, !answer.calls.is_empty());
        prop_assert!(answer.calls.iter().all(|call| tools.iter().any(|tool| tool.name == call.tool)));
    }

    #[test]
    fn results_of_any_shape_are_read(text in "\\PC{0,20}(\n[\\[\\]a-z0-9:/ ;\t.]{0,40}){0,6}") {
        let _ = (ToolListing::parse(&text, false), results::SearchMatches::parse(&text, false), results::page(&text), ChildReport::parse(&text), Matched::parse(&text));
        let _ = crate::notice::ends(&text);
    }
}
