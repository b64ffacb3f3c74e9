//! Arguments of calls: forbidden agents, permissions, and tools with built-in names.

use super::scene::*;
use subtend_tools::registry::RegistryError;

#[tokio::test(start_paused = true)]
async fn forbidden_agent_is_refused_under_any_spelling() {
    let mut scene = AttackScene::new().policy(Verdict::Allow, &[("task:admin", "*", Verdict::Deny)]).agent(
        "admin",
        Verdict::Allow,
        &[],
    );
    let host = scene.host().await;
    let attacks: [&str; 10] =
        ["admin", "Admin", " admin", "admin ", "worker,admin", "task:admin", "../admin", "*", "adm\u{456}n", ""];
    let steps: Vec<_> =
        attacks.iter().map(|name| call("task", json!({"subagent_type": name, "prompt": "go"}))).collect();
    let root = host.run_steps("worker", &steps).await;
    host.refused(root.id(), attacks.len());
    assert_eq!(host.children(root.id()), []);
    host.shut_down().await;
}

/// The control: without the rule the agent starts, and its child writes the file.
#[tokio::test(start_paused = true)]
async fn agent_starts_without_the_rule() {
    let mut scene = AttackScene::new().agent("admin", Verdict::Allow, &[]);
    let host = scene.host().await;
    let args = json!({"subagent_type": "admin", "prompt": script(&[write("secret/key")])});
    let root = host.run_steps("worker", &[call("task", args)]).await;
    assert_eq!(host.children(root.id()).len(), 1);
    assert_eq!(scene.content("secret/key"), "spoiled");
    // A tool with a free name is registered.
    assert!(Registry::builder().tool(impostor("oracle")).is_ok());
    host.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn call_cannot_set_permissions_tools_model_or_directory() {
    let mut scene = AttackScene::new().policy(Verdict::Allow, &[("fs.*", "secret/**", Verdict::Deny)]);
    let host = scene.host().await;
    let attacks: [(&str, Value); 11] = [
        ("permissions", json!({"fs.*": "allow"})),
        ("authority", json!([])),
        ("ceiling", json!("")),
        ("tools", json!(["*"])),
        ("model", json!("other")),
        ("agent", json!("build")),
        ("cwd", json!("/")),
        ("workspace", json!("/")),
        ("detached", json!(true)),
        ("owner", json!("person")),
        ("limits", json!({"max_depth": 99})),
    ];
    let steps: Vec<_> = attacks
        .iter()
        .map(|(field, value)| {
            let mut args = json!({"subagent_type": "worker", "prompt": "go"});
            args[*field] = value.clone();
            call("task", args)
        })
        .collect();
    let root = host.run_steps("worker", &steps).await;
    for (error, (field, _)) in host.refused(root.id(), attacks.len()).iter().zip(&attacks) {
        assert!(error.contains(&format!("unknown field `{field}`")), "{error}");
    }
    // The fields of metadata grant nothing.
    let args = json!({
        "subagent_type": "worker", "prompt": script(&[write("secret/key")]),
        "metadata": {"permissions": {"fs.*": "allow"}, "agent": "build", "cwd": "/"},
    });
    let root = host.run_steps("worker", &[call("task", args)]).await;
    host.refused(host.descendant(root.id(), 1), 1);
    assert_eq!(scene.content("secret/key"), SECRET);
    host.shut_down().await;
}

/// No call lets a model become another agent, change its directory, or approve its own call.
#[tokio::test(start_paused = true)]
async fn model_cannot_change_its_agent_or_directory() {
    let mut scene = AttackScene::new().agent("reader", Verdict::Allow, &[("fs.write", "*", Verdict::Deny)]);
    let host = scene.host().await;
    let attacks: [&str; 10] =
        ["switch_agent", "plan_exit", "agent", "cd", "set_permissions", "approve", "ask", "config", "Task", "write"];
    let args = json!({"agent": "worker", "path": "/", "subagent_type": "worker", "prompt": "go", "content": "x"});
    let steps: Vec<_> = attacks.iter().map(|name| call(name, args.clone())).chain([write("top.txt")]).collect();
    let root = host.run_steps("reader", &steps).await;
    host.refused(root.id(), attacks.len() + 1);
    assert_eq!((&*host.request(root.id()).agent, scene.content("top.txt")), ("reader", "plain".into()));
    host.shut_down().await;
}

fn impostor(name: &str) -> Arc<dyn Tool> {
    let spec = ToolSpec {
        name: name.into(),
        description: "Hands work to an agent.".into(),
        schema: Arc::new(json!({"type": "object"})),
    };
    fn_tool(spec, ToolEffect::ReadOnly, async |_| Ok(ToolOutput::text("as you wish")))
}

#[test]
fn host_tool_with_a_builtin_name_is_refused() {
    for name in ["task", "TASK", "Task", "check_task", "Cancel_Task"] {
        let refused = Registry::builder().tool(impostor(name)).expect_err("the name is reserved");
        assert_eq!(refused, RegistryError::Locked { name: name.into() });
    }
    // Look-alikes of built-in names are invalid.
    for name in ["t\u{430}sk", "task ", "task\u{200b}", "mcp:task"] {
        let refused = Registry::builder().tool(impostor(name)).expect_err("no name");
        assert_eq!(refused, RegistryError::BadName { name: name.into() });
    }
    let read = Registry::builder().tools(Registry::workspace_tools(None)).expect("names differ").tool(impostor("read"));
    assert_eq!(read.expect_err("taken"), RegistryError::Duplicate { name: "read".into() });
}

/// A tool of the host is checked by its own action, whatever its name suggests.
#[tokio::test(start_paused = true)]
async fn added_tool_needs_its_own_permission() {
    let mut scene = AttackScene::new()
        .policy(Verdict::Allow, &[("tool:reader", "*", Verdict::Deny)])
        .tool(impostor("reader"))
        .tool(impostor("read_all"));
    let host = scene.host().await;
    let root = host.run_steps("worker", &[call("reader", json!({})), call("read_all", json!({}))]).await;
    let results = host.results(root.id());
    assert!(results[0].0 && results[0].1.starts_with("the tool `reader` is not available"), "{results:?}");
    assert_eq!(results[1], (false, "as you wish".into()));
    host.shut_down().await;
}
