use super::call::User;

#[test]
fn help_lists_the_verbs_and_the_exit_codes() {
    let help = User::new().call(&["--help"]);
    assert_eq!((help.code, help.err.as_str()), (Some(0), ""));
    for verb in [
        "run",
        "sessions",
        "tree",
        "show",
        "agents",
        "verify",
        "drill",
        "recover",
        "doctor",
        "export",
        "import",
        "completions",
        "3 store refused",
    ] {
        assert!(help.out.contains(verb), "{verb}: {}", help.out);
    }
    assert!(!help.out.contains("guard"), "{}", help.out);
}

#[test]
fn impossible_option_is_a_usage_error_with_a_remedy() {
    let user = User::new();
    let cases: [(&[&str], &[&str]); 14] = [
        (&[], &["Usage: subtend"]),
        (&["juggle"], &["juggle"]),
        (&["run"], &["<PROMPT>"]),
        (&["run", ""], &["the prompt is empty"]),
        (&["run", " \n"], &["the prompt is empty"]),
        (&["run", "--model", "sonnet", "hi"], &["`sonnet`", "offline", "scripted:FILE"]),
        (&["run", "--model", "scripted:/no/such/file", "hi"], &["/no/such/file"]),
        (&["run", "--workspace", "/no/such/place", "hi"], &["/no/such/place", "--workspace"]),
        (&["run", "--store", "tape:0", "hi"], &["tape:0", "redb:PATH"]),
        (&["run", "--allow", "fs.write=", "hi"], &["fs.write=", "--allow"]),
        (&["run", "--allow", "fs.wirte=a.txt", "hi"], &["fs.wirte", "--allow", "fs.write"]),
        (&["run", "--ask", "task:", "hi"], &["task:", "--ask"]),
        (&["run", "--agent", "nosuch", "hi"], &["nosuch", "general", "subtend agents"]),
        (&["run", "--agent", "explore", "hi"], &["explore", "general"]),
    ];
    for (args, expected) in cases {
        let done = user.call(args);
        assert_eq!((done.code, done.out.as_str()), (Some(2), ""), "{args:?}: {done:?}");
        for word in expected {
            assert!(done.err.contains(word), "{args:?}: {word} is not in {}", done.err);
        }
    }
}

#[test]
fn prompt_from_stdin_is_bounded() {
    let user = User::new();
    let model = user.script(r#"{ "rules": [ { "agent": "*", "steps": [ { "text": "You said: {prompt}" } ] } ] }"#);
    let run = ["run", "--quiet", "--model", &model, "-"];
    let done = user.call_with(&run, "from a pipe\n");
    assert_eq!((done.code, done.out.as_str(), done.err.as_str()), (Some(0), "You said: from a pipe\n", ""), "{done:?}");

    let done = user.call_with(&run, "\n");
    assert_eq!(done.code, Some(2), "{done:?}");
    assert!(done.err.contains("the prompt is empty"), "{done:?}");

    let done = user.call_with(&run, &"a".repeat((1 << 20) + 1));
    assert_eq!(done.code, Some(2), "{done:?}");
    assert!(done.err.contains("larger than 1048576 bytes"), "{done:?}");
}

#[test]
fn completions_print_a_script() {
    let done = User::new().call(&["completions", "bash"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.out.contains("_subtend()"), "{}", done.out);
}
