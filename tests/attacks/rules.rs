//! Rules without effect, which a user could take for a restriction or a permission.

use super::scene::*;
use crate::cli::call::User;

/// A meaningless rule on the command line is refused; a rule for a directory covers its contents.
#[test]
fn rule_without_effect_is_refused() {
    let user = User::new();
    for (option, rule, why) in [
        ("--allow", "fs.write=src/**,docs/**", "a comma does not separate patterns"),
        ("--ask", "fs.read=a,b", "a comma does not separate patterns"),
        ("--allow", "net.fetch=https://*.rs/*", "`https://*.rs/*` is not limited to one host"),
        ("--ask", "net.fetch=evil.com", "`evil.com` matches no address"),
    ] {
        let refused = user.call(&["run", option, rule, "hi"]);
        assert_eq!((refused.code, refused.err.contains(why)), (Some(2), true), "{rule}: {refused:?}");
    }
    // The control: a rule that takes effect.
    user.file("docs/deep/a.txt", "");
    let write = |path: &str| json!({"calls": [{"tool": "write", "args": {"path": path, "content": "x"}}]});
    let steps: Vec<Value> = vec![write("docs/deep/made"), write("other"), json!({"text": "done"})];
    let model = user.script(&json!({"rules": [{"agent": "*", "steps": steps}]}).to_string());
    user.succeeds(&["run", "--model", &model, "--allow", "fs.write=docs/", "go"]);
    assert_eq!(["docs/deep/made", "other"].map(|path| user.workspace().join(path).exists()), [true, false]);
}

#[test]
fn permissions_without_effect_are_reported() {
    let user = User::new();
    let refusal = |permissions: &str| {
        user.file(".subtend/agents/mine.md", &format!("---\nmode: all\n{permissions}---\nWork.\n"));
        user.call(&["agents"]).err
    };
    for (permissions, warning) in [
        ("permissions:\n", "`permissions` is empty, which changes nothing"),
        ("permissions: {}\n", "`permissions` is empty, which changes nothing"),
        (
            "permissions: {net.fetch: {evil.com: deny}}\n",
            "`net.fetch`: `evil.com` matches no address: write `https://evil.com/*`",
        ),
    ] {
        let err = refusal(permissions);
        assert!(err.contains(warning), "{permissions:?}: {err}");
    }
    let err = refusal("permissions: {net.fetch: {\"https://evil.com/*\": deny}}\n");
    assert!(!err.contains("warning"), "{err}");
}
