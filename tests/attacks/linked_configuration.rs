//! Links in place of configuration: the owner of a target could write the next session's configuration.

use std::os::unix::fs::symlink;

use crate::cli::call::User;

const CONFIG: &str = "limits: {turns: 7}\n";
const AGENT: &str = "---\nmode: all\ndescription: Planted.\n---\nObey.\n";

/// Returns whether the configuration and the agent of a workspace are used, and the warnings about them.
fn loaded(user: &User) -> (bool, bool, String) {
    let (config, agents) = (user.call(&["config", "show"]), user.call(&["agents"]));
    assert_eq!((config.code, agents.code), (Some(0), Some(0)), "{config:?} {agents:?}");
    (
        config.out.lines().any(|line| line.starts_with("limits.turns") && line.contains('7')),
        agents.out.contains("Planted."),
        config.err + &agents.err,
    )
}

/// Even in a trusted workspace the target of a link is not loaded, and the link is reported.
#[test]
fn configuration_behind_links_is_not_loaded() {
    let user = User::new();
    user.file("plain.yaml", CONFIG);
    user.file("sub/agents/planted.md", AGENT);
    symlink("plain.yaml", user.workspace().join("subtend.yaml")).expect("a link");
    symlink("sub", user.workspace().join(".subtend")).expect("a link");
    let (config, agent, err) = loaded(&user);
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
    assert!(!loaded(&deeper).1);

    let control = User::new();
    control.file("subtend.yaml", CONFIG);
    control.file(".subtend/agents/planted.md", AGENT);
    let (config, agent, err) = loaded(&control);
    assert_eq!((config, agent), (true, true), "{err}");
}

const TURNS: &str = "limits:\n  turns: 7\n";

/// `config set` writes a new file and renames it. It does not write through a hard or symbolic link, at the final name
/// or the temporary one. The control: a plain write goes through such a link.
#[test]
fn config_set_does_not_write_through_links() {
    let user = User::new();
    let outside = user.workspace().with_file_name("outside.yaml");
    std::fs::write(&outside, TURNS).expect("a file");
    let kept = || std::fs::read_to_string(&outside).expect("a file") == TURNS;
    let file = user.workspace().join("subtend.yaml");
    let set = |more: &[&str]| user.call(&[&["config", "set", "limits.turns", "9"], more].concat());
    let begin = || std::fs::remove_file(&file).expect("removed");

    symlink(&outside, &file).expect("a link");
    let refused = set(&[]);
    assert!(
        refused.code == Some(2) && refused.err.contains("is a symbolic link, which is not followed"),
        "{refused:?}"
    );
    assert!(kept() && file.is_symlink());
    begin();
    std::fs::write(user.workspace().join("inside.yaml"), TURNS).expect("a file");
    symlink("inside.yaml", &file).expect("a link");
    assert_eq!((set(&[]).code, file.is_symlink()), (Some(2), true));
    begin();
    std::fs::hard_link(&outside, &file).expect("a hard link");
    assert_eq!((set(&[]).code, kept()), (Some(0), true));
    assert_eq!(std::fs::read_to_string(&file).expect("a file"), TURNS.replace('7', "9"));

    // The process id makes the name of the temporary file predictable.
    let shell = "ln -s ../outside.yaml subtend.yaml.$$; exec \"$0\" config set limits.turns 8";
    let command = user.command(&[]);
    let program = command.get_program().to_owned();
    let mut planted = std::process::Command::new("sh");
    planted.args(["-c", shell]).arg(program).current_dir(user.workspace());
    planted.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let done = planted.output().expect("run the command");
    assert!(done.status.success() && kept(), "{done:?}");
    assert!(user.json(&["config", "show", "--json"]).to_string().contains("\"value\":8"));
    begin();
    symlink(&outside, &file).expect("a link");
    std::fs::write(&file, "").expect("written");
    assert!(!kept());
}

/// The user's own file may be a link to a file elsewhere: the target is written, and the link remains.
#[test]
fn config_set_follows_the_users_own_link() {
    let user = User::new();
    let (kept, file) = (user.config().join("kept.yaml"), user.config().join("subtend/subtend.yaml"));
    std::fs::create_dir_all(user.config().join("subtend")).expect("a folder");
    std::fs::write(&kept, TURNS).expect("a file");
    symlink(&kept, &file).expect("a link");
    let set = user.call(&["config", "set", "--user", "limits.max_depth", "2"]);
    assert_eq!((set.code, file.is_symlink()), (Some(0), true));
    assert!(std::fs::read_to_string(&kept).expect("a file").contains("max_depth: 2"));
}
