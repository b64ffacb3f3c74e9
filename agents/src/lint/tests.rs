use super::*;

/// Each file is read by the loader that a workspace uses. Unused files and fields are reported.
#[test]
fn prompt_files_are_linted_by_their_kind() {
    let dir = tempfile::tempdir().unwrap();
    let files: [(&str, &str); 16] = [
        (".claude/agents/lead.md", "---\nname: lead\ndescription: Leads.\n---\nLead."),
        (".claude/commands/git/commit.md", "---\nmodel: opus\n---\nCommit $1 after !`git status`."),
        (".claude/commands/none.md", "---\ndescription: Nothing.\n---\n"),
        (".claude/rules/web/api.md", "---\npaths: src/*.ts\nglobs: x\n---\nShort lines."),
        (".claude/rules/notes.txt", "Short lines."),
        (".claude/skills/pdf/SKILL.md", "---\nname: pdf\ndescription: Reads PDF files.\ncontext: fork\n---\nRead it."),
        (".claude/skills/pdf/forms.md", "Read when it is needed."),
        (".claude/skills/Bad_Name/SKILL.md", "---\ndescription: Bad.\n---\nBad."),
        (".agents/skills/pdf/SKILL.md", "---\ndescription: Also reads PDF files.\n---\nRead."),
        (".cursorrules", "Be brief."),
        (".github/copilot-instructions.md", "Be brief."),
        ("AGENTS.md", "Use tabs. @docs/style.md and @../secret.md"),
        ("CLAUDE.md", "Use spaces."),
        ("CLAUDE.local.md", "Mine.\u{202e}"),
        ("docs/style.md", "Short lines."),
        ("empty/AGENTS.md", " \n"),
    ];
    for (path, text) in files {
        let path = dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let read = |folder: &Path, path: &str| match std::fs::read_to_string(folder.join(path)) {
        Ok(text) => Ok(FoundFile { real: path.into(), text }),
        Err(_) => Err(Unread::Missing),
    };
    let names = [".claude", ".agents", ".cursorrules", ".github", "AGENTS.md", "CLAUDE.md", "CLAUDE.local.md", "empty"];
    let paths = names.map(|name| dir.path().join(name));
    let below = |path: &Path| path.strip_prefix(dir.path()).unwrap().display().to_string();
    let describe = |checked: Checked| {
        let gives = match &checked.content {
            None => "nothing".to_owned(),
            Some(FileContent::Agent(agent)) => format!("agent {}", agent.name),
            Some(FileContent::Skill(skill)) => format!("skill {}", skill.name),
            Some(FileContent::Command(command)) => format!("command /{}", command.name),
            Some(FileContent::Instructions(files)) => {
                format!("instructions {}", files.iter().map(|file| below(file)).collect::<Vec<_>>().join(" "))
            }
        };
        let describe_problem = |problem: &AgentProblem| {
            assert_eq!(problem.path, checked.path);
            let word = if problem.kind == ProblemKind::Refused { "refused" } else { "warning" };
            format!("{word}: {}", problem.message.replace(&*dir.path().to_string_lossy(), "W"))
        };
        (below(&checked.path), gives, checked.problems.iter().map(describe_problem).collect::<Vec<_>>())
    };
    let found: Vec<_> = lint(&paths, None, &Catalog::builtin(), &read).into_iter().map(describe).collect();
    let expected: [(&str, &str, &[&str]); 14] = [
        (".claude/agents/lead.md", "agent lead", &[]),
        (
            ".claude/commands/git/commit.md",
            "command /git:commit",
            &[
                "warning: `model` has no effect: name a model by `--model`",
                "warning: does not run its commands: the prompt asks the model to run them with `shell`",
            ],
        ),
        (".claude/commands/none.md", "nothing", &["refused: has no prompt: write it below the front matter"]),
        (
            ".claude/rules/notes.txt",
            "nothing",
            &["refused: is not read: import it in an `AGENTS.md`, by a line `@.claude/rules/notes.txt`"],
        ),
        (
            ".claude/rules/web/api.md",
            "instructions .claude/rules/web/api.md",
            &["warning: unknown key `globs` has no effect in a rule of Claude Code"],
        ),
        (
            ".claude/skills/Bad_Name/SKILL.md",
            "nothing",
            &[
                "refused: `name` must be 1 to 64 of a-z, 0-9 and single `-` between them, not `Bad_Name` (the name of the folder)",
            ],
        ),
        (
            ".claude/skills/pdf/SKILL.md",
            "skill pdf",
            &["warning: `context` has no effect: the session itself reads the skill"],
        ),
        (
            ".agents/skills/pdf/SKILL.md",
            "nothing",
            &["refused: not used: `pdf` is already defined in W/.claude/skills/pdf"],
        ),
        (".cursorrules", "nothing", &["refused: is not read: import it in an `AGENTS.md`, by a line `@.cursorrules`"]),
        (
            ".github/copilot-instructions.md",
            "nothing",
            &["refused: is not read: import it in an `AGENTS.md`, by a line `@.github/copilot-instructions.md`"],
        ),
        (
            "AGENTS.md",
            "instructions AGENTS.md docs/style.md",
            &[
                "refused: its import `@../secret.md` is not used: it leads out of the directory whose files it may import",
            ],
        ),
        ("CLAUDE.md", "nothing", &["warning: not used: `AGENTS.md` of that directory comes first"]),
        (
            "CLAUDE.local.md",
            "instructions CLAUDE.local.md",
            &["warning: contains invisible characters: they are written out as `<U+…>`"],
        ),
        ("empty/AGENTS.md", "nothing", &["warning: is empty, and adds nothing"]),
    ];
    let expected = expected.map(|(path, gives, messages)| {
        (path.to_owned(), gives.to_owned(), messages.iter().map(|message| (*message).to_owned()).collect::<Vec<_>>())
    });
    assert_eq!(found, expected);
}

/// As in a workspace, a native file may replace an agent of the host, but a file of another product may not.
#[test]
fn foreign_file_with_a_name_of_the_host_is_refused() {
    let claude = "---\nname: title\ndescription: Names.\n---\nName it.\n";
    let messages = |checked: Checked| checked.problems.into_iter().map(|problem| problem.message).collect::<Vec<_>>();
    let foreign = check_foreign_text(Path::new(".claude/agents/x.md"), Product::Claude, "x", claude, &[]);
    assert!(foreign.is_refused() && foreign.content.is_none());
    assert_eq!(messages(foreign), ["not used: `title` is an agent that the host itself starts: rename yours"]);
    let native = "---\nname: title\nmode: subagent\ndescription: Names.\n---\nName it.\n";
    let native = check_text(Path::new(".subtend/agents/title.md"), native, &[]);
    assert_eq!(messages(native), ["replaces the built-in agent `title`"]);
}
