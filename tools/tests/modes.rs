//! A command of an ordinary user changes modes of the user's directories, so that the host cannot search them.
//!
//! The tests start this test program again, as the runtime of a session and as its guard.

use super::scene::*;
use subtend_tools::policy::HostPolicy;
use subtend_tools::sandbox;
use subtend_tools::workspace::Workspace;

use super::scene;

/// A tool and its argument: the command of `shell`, or the path of `read`.
type ModeStep = (&'static str, &'static str);

const FILES: [(&str, &str); 5] =
    [("subtend.yaml", "mine"), ("open/a", "plain"), ("secret/key", "hidden"), ("fixed/key", "kept\n"), ("src/y", "")];
/// Second names of the files.
const LINKS: [(&str, &str); 4] =
    [("open/a", "open/b"), ("secret/key", "open/copy"), ("secret/key", "more/deep/copy"), ("fixed/key", "src/x")];

/// Not a test: the entry point of this program when it is started again as a runtime.
#[test]
fn role() {
    scene::run_case(async |(rules, steps): (RuleSet, Vec<(String, String)>)| {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("above/root");
        for (path, text) in FILES {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        for (of, name) in LINKS {
            std::fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
            std::fs::hard_link(root.join(of), root.join(name)).unwrap();
        }
        let workspace = Arc::new(Workspace::open(&root).unwrap());
        let registry = Registry::builder().tools(Registry::workspace_tools(Some(guard()))).unwrap().build();
        let mut outcomes = String::new();
        for (tool, arg) in steps {
            let arg = if tool == "read" { json!({"path": arg}) } else { json!({"command": arg}) };
            let call = call_in(Arc::clone(&workspace), Authority::of(rules.clone()), arg);
            match registry.get(&tool).unwrap().run(call).await {
                Ok(output) => outcomes.push_str(&format!("{tool}: {}\n", output.content)),
                Err(error) => outcomes.push_str(&format!("{tool}: {error}\n")),
            }
        }
        outcomes
    });
}

/// Returns the outcomes of `steps` under `rules`, and without rules as a control.
fn outcomes(rules: RuleSet, steps: &[ModeStep]) -> [String; 2] {
    let all = RuleSet { default: Verdict::Allow, rules: Vec::new() };
    [rules, all].map(|rules| scene::runtime("modes::role", &(rules, steps), true, &[]))
}

/// The control is the same session without protected files.
#[test]
fn configuration_stays_protected_after_chmod_above_it() {
    const STEPS: [ModeStep; 2] = [
        ("shell", "chmod 000 .."),
        ("shell", "echo spoiled > subtend.yaml; echo made > open/new; chmod 755 ..; cat subtend.yaml open/new"),
    ];
    if sandbox::probe().is_err() {
        println!("not tried: this system has no sandbox");
        return;
    }
    let rules = HostPolicy::protected_files(&RuleSet { default: Verdict::Allow, rules: Vec::new() });
    let [held, free] = outcomes(rules, &STEPS);
    assert!(held.contains("minemade\n") && !held.contains("spoiled\n"), "{held}");
    assert!(free.contains("spoiled\nmade\n"), "the control: {free}");
}

/// Second names of denied files in a directory that cannot be listed are not known. The control is the same session without rules.
#[test]
fn unlisted_directory_reveals_no_second_names() {
    const STEPS: [ModeStep; 9] = [
        ("shell", "chmod 000 secret fixed; echo step 1"),
        ("read", "open/copy"),
        ("read", "open/b"),
        ("shell", "cat open/copy; echo spoiled > src/x; echo works > src/y; cat src/y"),
        ("shell", "chmod 444 secret; chmod 755 fixed; echo step 2"),
        ("shell", "cat open/copy open/b"),
        ("shell", "chmod 755 secret; chmod 000 more/deep; echo step 3"),
        ("shell", "chmod 755 more/deep; cat more/deep/copy open/b fixed/key"),
        ("read", "open/b"),
    ];
    if sandbox::probe().is_err() {
        println!("not tried: this system has no sandbox");
        return;
    }
    let rule = |action: &str, resource: &str| Rule {
        action: action.into(),
        resource: resource.into(),
        verdict: Verdict::Deny,
    };
    let rules =
        RuleSet { default: Verdict::Allow, rules: vec![rule("fs.read", "secret/**"), rule("fs.write", "fixed/**")] };
    let [held, free] = outcomes(rules, &STEPS);
    assert!(!held.contains("hidden") && held.contains("kept\n") && !held.contains("spoiled\n"), "{held}");
    assert!(held.contains("`secret` cannot be listed and may hold one of them."), "{held}");
    // Files with one name can be used, and with several where each directory can be listed.
    assert!(["step 1", "works", "step 2", "step 3"].iter().all(|text| held.contains(text)), "{held}");
    assert_eq!(held.matches("plain").count(), 2, "{held}");
    assert_eq!(["hidden", "spoiled\n"].map(|text| free.matches(text).count()), [4, 1], "the control: {free}");
}
