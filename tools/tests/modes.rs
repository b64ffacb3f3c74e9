//! A command of an ordinary user changes modes of the user's directories, so that the host cannot look into them.
//!
//! The tests start this test program again, as the runtime of a session and as its guard.

use super::scene::*;
use subtend_tools::policy::HostPolicy;
use subtend_tools::sandbox;
use subtend_tools::workspace::Workspace;

use super::scene;

/// A tool and its argument: the command of `shell`, or the path of `read`.
type Step = (&'static str, &'static str);

/// Not a test: the entry point of this program when it is started again as a runtime.
#[test]
fn role() {
    scene::run_case(async |(rules, steps): (RuleSet, Vec<(String, String)>)| {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("above/root");
        for (path, text) in [("subtend.yaml", "mine"), ("open/a", "plain")] {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
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
fn outcomes(rules: RuleSet, steps: &[Step]) -> [String; 2] {
    let all = RuleSet { default: Verdict::Allow, rules: Vec::new() };
    [rules, all].map(|rules| scene::runtime("modes::role", &(rules, steps), true, &[]))
}

/// The control is the same session without protected files.
#[test]
fn configuration_stays_protected_after_chmod_above_it() {
    const STEPS: [Step; 2] = [
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
