use std::fs;

use super::*;

fn command(product: Product, text: &str) -> SlashCommand {
    parse(Some(product), Path::new("/c/x.md"), "x", text).unwrap()
}

fn filled(product: Product, text: &str, arguments: &str) -> String {
    command(product, text).expand(arguments).unwrap().text
}

fn problems(commands: &SlashCommands) -> Vec<String> {
    let word = |problem: &AgentProblem| if problem.kind == ProblemKind::Refused { "refused" } else { "warning" };
    commands.problems().iter().map(|problem| format!("{}: {}", word(problem), problem.message)).collect()
}

#[test]
fn arguments_are_substituted_once() {
    use Product::{Claude, Codex, OpenCode};
    let cases = [
        (Claude, "Fix $ARGUMENTS now", "issue 7", "Fix issue 7 now"),
        (Claude, "$1 then $2, $3!", "a 'b c'", "a then b c, !"),
        (Claude, "$ARGUMENTS[0] $ARGUMENTS[1] $ARGUMENTS[x]", "a b", "a b a b[x]"),
        (Claude, "Review.", "all of it", "Review.\n\nArguments: all of it"),
        (Claude, "Review.", " ", "Review."),
        (Claude, "It costs \\$5, $12 and $0.", "a", "It costs $5, $12 and $0.\n\nArguments: a"),
        (OpenCode, "First $1, then $2", "a b c d", "First a, then b c d"),
        (Claude, "First $1, then $2", "a b c d", "First a, then b"),
        (Codex, "$$1 is $1", "x", "$1 is x"),
        (Codex, "$FILE_2: $NOTE, $HOME, $$FILE_2", "NOTE='a b' FILE_2=x=y", "x=y: a b, $HOME, $FILE_2"),
        (Codex, "In $HOME.", "a=b c", "In $HOME.\n\nArguments: a=b c"),
        (Claude, "$FILE", "FILE=x", "$FILE\n\nArguments: FILE=x"),
        (Claude, "<$ARGUMENTS>", "$1 !`rm` @/etc/passwd", "<$1 !`rm` @/etc/passwd>"),
        (Claude, "ä$1ö", "ü", "äüö"),
    ];
    for (product, text, arguments, expected) in cases {
        assert_eq!(filled(product, text, arguments), expected, "{text}");
    }
}

/// A file can repeat its arguments. The control: a prompt of exactly the maximum size is accepted.
#[test]
fn expansion_stops_at_the_limit_of_an_input() {
    use Product::{Claude, OpenCode};
    let attacks: [(Product, &str, usize); 8] = [
        (Claude, "$1", 10_000),
        (Claude, "$ARGUMENTS", 10_000),
        (Claude, "$ARGUMENTS[0]", 10_000),
        (OpenCode, "$1", 10_000),
        (Claude, " !`$1 x`", 10_000),
        (Claude, " @$1", 10_000),
        (Claude, " @a.b", 0),
        (Claude, "x", MAX_EXPANDED),
    ];
    for (product, part, length) in attacks {
        let refused = command(product, &part.repeat(20_000)).expand(&"x".repeat(length)).unwrap_err();
        let expected =
            "the prompt of /x is larger than 1048576 bytes, the limit of one input: shorten its arguments or its file";
        assert_eq!(refused.to_string(), expected, "{part}");
    }
    assert_eq!(filled(Claude, "$1$1", &"x".repeat(MAX_EXPANDED / 2)), "x".repeat(MAX_EXPANDED));
}

/// The rest is not searched again for each opening mark. The control: a closed mark is recognized.
#[test]
fn unclosed_marks_take_linear_time() {
    use Product::Claude;
    let file = |path: &str| format!("(first read this file with the tool `read`, and use its text here: `{path}`)");
    let ats = "@".repeat(200);
    assert_eq!(filled(Claude, &format!("@{ats}/a.b"), ""), file(&format!("{ats}/a.b")));
    assert_eq!(filled(Claude, &format!("x {ats}"), ""), format!("x {ats}"));
    let attacks: [(&str, usize); 3] = [(" ```!\n", 160_000), ("$ARGUMENTS[1234", 60_000), (" @a!`", 200_000)];
    for (part, times) in attacks {
        let text = format!("{}]", part.repeat(times));
        assert_eq!(filled(Claude, &text, ""), text.replace("$ARGUMENTS", "").trim(), "{part:?}");
    }
    assert_eq!(filled(Claude, "$ARGUMENTS[2] $ARGUMENTS[123] $ARGUMENTS[1234]", "a b c"), "c  a b c[1234]");
    let shell = "(first run this command with the tool `shell`, and use its output here: `ls`) ```!\n";
    assert_eq!(filled(Claude, "```!\nls\n``` ```!\n-", ""), format!("{shell}-"));
}

#[test]
fn embedded_commands_and_files_are_left_to_the_model() {
    let shell =
        |command: &str| format!("(first run this command with the tool `shell`, and use its output here: `{command}`)");
    let file = |path: &str| format!("(first read this file with the tool `read`, and use its text here: `{path}`)");
    let text = "State: !`git log $1`\n@src/$1.rs, @alice, a@b.c and x!`no`\n```!\ngit status\n```\n";
    let expanded = command(Product::Claude, text).expand("main").unwrap();
    let expected = format!(
        "State: {}\n{}, @alice, a@b.c and x!`no`\n{}",
        shell("git log main"),
        file("src/main.rs"),
        shell("git status")
    );
    assert_eq!(expanded.text, expected);
    assert_eq!(
        expanded.notes,
        [
            "does not run its commands: the prompt asks the model to run them with `shell`",
            "does not read its files: the prompt asks the model to read them with `read`",
        ]
    );
}

#[test]
fn each_field_has_its_effect_or_a_report() {
    let text = "---\ndescription: Commits: all of it.\nargument-hint: [message]\nallowed-tools: Bash(git *)\nmodel: opus\n\
                agent: build\nsubtask: true\nodd: 1\n---\nCommit.\n";
    let command = command(Product::OpenCode, text);
    assert_eq!((&*command.description, command.argument_hint.as_deref()), ("Commits: all of it.", Some("[message]")));
    assert_eq!(
        command.notes,
        [
            "the front matter is not valid YAML: values with `: ` in them are read as text",
            "`allowed-tools` has no effect: the agent and your rules decide what a session may do",
            "`model` has no effect: name a model by `--model`",
            "`agent` has no effect: choose an agent by `--agent`, or by `/agent NAME` in a chat",
            "`subtask` has no effect: the session itself does the work",
            "unknown key `odd` has no effect in a command",
        ]
    );
    let plain = parse(None, Path::new("/c/x.md"), "x", "Look around. Then report.\n").unwrap();
    assert_eq!((&*plain.description, plain.argument_hint), ("Look around.", None));
}

#[test]
fn folders_are_part_of_names_and_bad_files_hide_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let file = |path: &str, text: &str| {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    file(".claude/commands/git/commit.md", "Claude's.");
    file(".claude/commands/review.md", "First.");
    file(".claude/commands/a b.md", "x");
    file(".claude/commands/empty.md", "---\ndescription: d\n---\n");
    file(".claude/commands/broken.md", "---\ndescription: [\n---\nx\n");
    file(".claude/commands/latin.md", "x");
    fs::write(dir.path().join(".claude/commands/latin.md"), [0x66, 0xfc]).unwrap();
    file(".opencode/command/review.md", "Second.");
    file(".opencode/commands/pr/commit.md", "OpenCode's.");
    file(".codex/prompts/plan.md", "Codex's $1.");
    file(".subtend/commands/own.md", "Own.");
    let commands = SlashCommands::load(dir.path());
    let names: Vec<&str> = commands.all().map(|command| &*command.name).collect();
    assert_eq!(names, ["git:commit", "own", "plan", "pr:commit", "review"]);
    let text_of = |name: &str| commands.get(name).map(|command| command.expand("").unwrap().text);
    assert_eq!(text_of("git:commit"), Some("Claude's.".into()));
    assert_eq!(
        (text_of("git/commit"), text_of("commit")),
        (text_of("git:commit"), None),
        "two commands have this name as their last part"
    );
    assert_eq!((text_of("review"), text_of("prompts:plan")), (Some("First.".into()), Some("Codex's .".into())));
    let shown = problems(&commands);
    let refused = |why: &str| shown.iter().filter(|line| line.starts_with("refused") && line.contains(why)).count();
    let whys = ["`/review` is already defined", "rename the file", "has no prompt", "not valid YAML", "not UTF-8"];
    assert_eq!((whys.map(refused), shown.len()), ([1; 5], 5), "{shown:?}");
}

#[test]
fn input_is_a_command_an_unknown_command_or_text() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join(".claude/commands/git")).unwrap();
    fs::write(dir.path().join(".claude/commands/git/commit.md"), "Commit.").unwrap();
    let commands = SlashCommands::load(dir.path());
    let read = |text| match commands.read(text) {
        Typed::Command(command, arguments) => format!("{} {arguments:?}", command.name),
        Typed::Unknown(name) => format!("unknown {name}"),
        Typed::Text => "text".to_owned(),
    };
    let cases = [
        ("/git:commit now\nor later", "git:commit \"now\\nor later\""),
        ("/commit", "git:commit \"\""),
        ("/git/commit x", "git:commit \"x\""),
        ("/comit", "unknown comit"),
        ("/usr/lib is full", "text"),
        ("/ and more", "text"),
        (" /commit", "text"),
        ("commit", "text"),
    ];
    for (text, expected) in cases {
        assert_eq!(read(text), expected, "{text}");
    }
}

#[test]
fn skill_is_a_command_unless_only_models_may_use_it() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let folder = dir.path().join(".claude/skills").join(name);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("SKILL.md"), text).unwrap();
    };
    file(
        "deploy",
        "---\ndescription: d\ndisable-model-invocation: true\n---\nDeploy $0 by ${CLAUDE_SKILL_DIR}/run.sh\n",
    );
    file("hidden", "---\ndescription: d\nuser-invocable: false\n---\nx\n");
    let mut commands = SlashCommands::default();
    commands.add_skills(&Skills::load(dir.path()));
    let names: Vec<&str> = commands.all().map(|command| &*command.name).collect();
    assert_eq!(names, ["deploy"]);
    let text = commands.get("deploy").unwrap().expand("now").unwrap().text;
    let folder = ".claude/skills/deploy";
    assert_eq!(text, format!("Deploy now by {folder}/run.sh\n\nThe folder of this skill is `{folder}`."));
}

#[cfg(unix)]
#[test]
fn links_to_commands_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join(".claude/commands")).unwrap();
    fs::write(dir.path().join("secret.md"), "secret").unwrap();
    std::os::unix::fs::symlink("../../secret.md", dir.path().join(".claude/commands/a.md")).unwrap();
    std::os::unix::fs::symlink("/", dir.path().join(".codex")).unwrap();
    let commands = SlashCommands::load(dir.path());
    assert_eq!((commands.all().count(), commands.problems().len()), (0, 2), "{:?}", commands.problems());
}

/// Git stores many equal files in a few bytes. The control: files that fit, and the user's own budget.
#[test]
fn files_beyond_the_size_of_all_are_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let text = format!("---\ndescription: d\n---\n{}", "$1".repeat(130_000));
    let fitting = (4 << 20) / text.len();
    let own = dir.path().join("own");
    let workspace = dir.path().join("workspace");
    let write = |path: String, text: &str| {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let agent = |name: &str| format!("---\nname: {name}\nmode: subagent\ndescription: d\n---\n{}", "x".repeat(260_000));
    for n in 0..fitting + 2 {
        write(format!("workspace/.subtend/commands/c{n:02}.md"), &text);
        write(format!("workspace/.subtend/agents/a{n:02}.md"), &agent(&format!("a{n:02}")));
        write(format!("workspace/.claude/agents/b{n:02}.md"), &agent(&format!("b{n:02}")));
        write(format!("workspace/.subtend/skills/s{n:02}/SKILL.md"), &text);
    }
    write("own/c.md".to_owned(), &text);
    write("own/s/SKILL.md".to_owned(), &text);
    let refused = "refused: not used: all files of this kind may have at most 4194304 bytes together";

    let mut commands = SlashCommands::load(&workspace);
    assert_eq!((commands.all().count(), problems(&commands)), (fitting, vec![refused.to_owned(); 2]));
    commands.add_own(None, &own, &workspace);
    assert!(commands.get("c").is_some());

    let mut skills = Skills::load(&workspace);
    let refusals = |all: &[AgentProblem]| all.iter().filter(|one| refused.ends_with(&one.message)).count();
    assert_eq!((skills.all().count(), refusals(skills.problems())), (fitting, 2));
    skills.add_own(&own, "~/own", &workspace);
    assert!(skills.get("s").is_some());

    // All products share one budget, so that more folders do not increase it.
    let (agents, builtin) = (Catalog::load(&workspace), Catalog::builtin());
    let loaded = agents.all().count() - builtin.all().count();
    assert_eq!((loaded, refusals(agents.problems())), (fitting, fitting + 4));
}
