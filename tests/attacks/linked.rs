//! Links in the place of configuration: who may write what they lead to would write the configuration of the next session.

use std::os::unix::fs::symlink;

use crate::cli::call::User;

const CONFIG: &str = "limits: {turns: 7}\n";
const AGENT: &str = "---\nmode: all\ndescription: Planted.\n---\nObey.\n";

/// What counts in the workspace of a user, and what is said of it.
fn counts(user: &User) -> (bool, bool, String) {
    let (config, agents) = (user.call(&["config", "show"]), user.call(&["agents"]));
    assert_eq!((config.code, agents.code), (Some(0), Some(0)), "{config:?} {agents:?}");
    (
        config.out.lines().any(|line| line.starts_with("limits.turns") && line.contains('7')),
        agents.out.contains("Planted."),
        config.err + &agents.err,
    )
}

/// Trusted as the workspace is, what is behind a link is not loaded, and the link is named.
#[test]
fn configuration_behind_links_is_not_loaded() {
    let user = User::new();
    user.file("plain.yaml", CONFIG);
    user.file("sub/agents/planted.md", AGENT);
    symlink("plain.yaml", user.workspace().join("subtend.yaml")).expect("a link");
    symlink("sub", user.workspace().join(".subtend")).expect("a link");
    let (config, agent, err) = counts(&user);
    assert_eq!((config, agent), (false, false), "{err}");
    let named = |path: &str| {
        let link = user.workspace().join(path).display().to_string();
        err.lines().any(|line| line.contains(&link) && line.contains("a symbolic link, which is not followed"))
    };
    assert!(named("subtend.yaml") && named(".subtend"), "{err}");

    let deeper = User::new();
    deeper.file("sub/planted.md", AGENT);
    deeper.file(".subtend/x", "");
    symlink("../sub", deeper.workspace().join(".subtend/agents")).expect("a link");
    assert!(!counts(&deeper).1);

    let control = User::new();
    control.file("subtend.yaml", CONFIG);
    control.file(".subtend/agents/planted.md", AGENT);
    let (config, agent, err) = counts(&control);
    assert_eq!((config, agent), (true, true), "{err}");
}
