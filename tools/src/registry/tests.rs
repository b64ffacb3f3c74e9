use std::sync::LazyLock;

use proptest::prelude::*;
use serde_json::json;
use subtend_session::authority::{Rule, RuleSet};
use subtend_session::call::{ToolEffect, ToolErrorKind};

use super::*;
use crate::closure::{FnTool, fn_tool};
use crate::tool::ToolOutput;

fn tool(name: &str, schema: Value) -> Arc<dyn Tool> {
    let spec = ToolSpec { name: name.into(), description: "A tool.".into(), schema: Arc::new(schema) };
    fn_tool(spec, ToolEffect::ReadOnly, async |_| Ok(ToolOutput::text("done")))
}

fn object() -> Value {
    json!({"type": "object"})
}

fn built_in() -> Registry {
    // Shared by the tests, because compiling the schemas takes longer than the tests.
    static BUILT_IN: LazyLock<Registry> =
        LazyLock::new(|| Registry::builder().tools(Registry::workspace_tools(None)).unwrap().build());
    BUILT_IN.clone()
}

fn rules(default: Verdict, rules: &[(&str, &str, Verdict)]) -> Authority {
    let rule = |(action, resource, verdict): &(&str, &str, Verdict)| Rule {
        action: (*action).into(),
        resource: (*resource).into(),
        verdict: *verdict,
    };
    Authority::of(RuleSet { default, rules: rules.iter().map(rule).collect() })
}

fn offered(registry: &Registry, authority: &Authority, approver: bool) -> Vec<String> {
    registry.offered(authority, None, approver).iter().map(|spec| spec.name.to_string()).collect()
}

fn invalid(registry: &Registry, tool: &str, args: &str) -> (Invalid, String) {
    match registry.classify(tool, args, &Authority::allow_all(), None, false, &|_| false) {
        Classified::Invalid { kind, message } => (kind, message.to_string()),
        ready @ Classified::Ready { .. } => panic!("{ready:?}"),
    }
}

#[test]
fn duplicate_reserved_and_invalid_names_are_refused() {
    let refused = |name: &str| {
        let builder = Registry::builder().tool(tool("weather", object())).unwrap();
        builder.tool(tool(name, object())).unwrap_err()
    };
    assert_eq!(refused("weather"), RegistryError::Duplicate { name: "weather".into() });
    assert_eq!(refused("task"), RegistryError::Locked { name: "task".into() });
    assert_eq!(refused("Task"), RegistryError::Locked { name: "Task".into() });
    for name in ["", "a b", "mcp:x", "ä", &"x".repeat(65)] {
        assert_eq!(refused(name), RegistryError::BadName { name: name.into() });
    }
}

#[test]
fn tool_without_an_object_schema_is_refused() {
    let refused = Registry::builder().tool(tool("weather", json!({"type": "array"}))).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the schema of the tool `weather` cannot be used: its `type` must be `object`: arguments are always an object"
    );
}

#[test]
fn built_in_tools_have_plain_schemas() {
    let specs = built_in().offered(&Authority::allow_all(), None, false);
    assert_eq!(
        specs.iter().map(|spec| &*spec.name).collect::<Vec<_>>(),
        ["edit", "list", "process", "read", "search", "shell", "write"]
    );
    for spec in &specs {
        let schema = spec.schema.to_string();
        assert_eq!(spec.schema["additionalProperties"], json!(false), "{schema}");
        assert!(!["$ref", "$schema", "\"title\"", "\"format\""].iter().any(|word| schema.contains(word)), "{schema}");
    }
    let read = specs.iter().find(|spec| &*spec.name == "read").unwrap();
    assert_eq!(
        *read.schema,
        json!({
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "The path of the file in the workspace."},
                "from_line": {"type": "integer", "minimum": 1, "default": 1, "description": "The first line to show, from 1."},
                "lines": {
                    "type": "integer", "minimum": 1, "maximum": 100_000, "default": 400,
                    "description": "The maximum number of lines to show."
                },
            },
            "required": ["path"],
            "additionalProperties": false,
        })
    );
}

#[test]
fn valid_call_is_ready() {
    let registry = built_in();
    let ready =
        registry.classify("read", r#"{"path": "a", "lines": 2}"#, &Authority::allow_all(), None, false, &|_| false);
    let Classified::Ready { tool, args, kind, access, ask } = ready else { panic!("{ready:?}") };
    assert_eq!(
        (&*tool.spec().name, args, kind, access, ask),
        (
            "read",
            json!({"path": "a", "lines": 2}),
            CallKind::Local(ToolEffect::ReadOnly),
            Some(Access { action: "fs.read".into(), resource: "a".into() }),
            NeededApproval::None
        )
    );
    let empty = registry.classify("list", "", &Authority::allow_all(), None, false, &|_| false);
    assert!(matches!(empty, Classified::Ready { .. }), "{empty:?}");
}

#[test]
fn invalid_call_error_names_the_position() {
    let registry = built_in();
    assert_eq!(
        invalid(&registry, "read", r#"{"path": 1, "lines": 0}"#),
        (
            Invalid::BadArgs,
            "the arguments of read do not fit its schema:\n\
             - /lines: 0 is less than the minimum of 1\n\
             - /path: 1 is not of type \"string\"\n\
             Correct them and call read again."
                .into()
        )
    );
    assert!(invalid(&registry, "read", "{").1.starts_with("the arguments of read break off at column 1"));
    assert_eq!(
        invalid(&registry, "Read_File", "{}"),
        (
            Invalid::UnknownTool,
            "no tool is named `Read_File`. Did you mean `read`? Available: edit, list, process, read, search, shell, write."
                .into()
        )
    );
}

#[test]
fn tool_that_is_not_offered_is_unknown() {
    let registry = built_in();
    let only = [Text::from("list"), Text::from("read")];
    let authority = Authority::allow_all();
    assert_eq!(registry.offered(&authority, Some(&only), false).len(), 2);
    let write = registry.classify("write", "{}", &authority, Some(&only), false, &|_| false);
    let Classified::Invalid { kind, message } = write else { panic!("{write:?}") };
    assert_eq!(
        (kind, &*message),
        (Invalid::UnknownTool, "the tool `write` is not available in this session. Available: list, read.")
    );
    assert!(registry.offered(&authority, Some(&[]), false).is_empty());
}

#[test]
fn tools_that_ask_are_offered_with_an_approver_only() {
    let authority = rules(Verdict::Ask, &[("fs.read", "*", Verdict::Allow)]);
    let registry = built_in();
    assert_eq!(offered(&registry, &authority, false), ["list", "read", "search"]);
    assert_eq!(offered(&registry, &authority, true), ["edit", "list", "read", "search", "write"]);
}

#[test]
fn limited_session_without_a_guard_gets_no_shell() {
    let registry = built_in();
    for action in ["fs.read", "fs.write", "net.fetch"] {
        for verdict in [Verdict::Deny, Verdict::Ask] {
            let authority = rules(Verdict::Allow, &[(action, "x", verdict)]);
            assert!(!offered(&registry, &authority, true).contains(&"shell".into()), "{action} {verdict:?}");
        }
    }
    let authority = rules(Verdict::Allow, &[("net.fetch", "*", Verdict::Deny)]);
    let shell = Arc::clone(registry.get("shell").unwrap());
    let error = registry.check(shell.as_ref(), &json!({"command": "ls"}), &authority, &|_| false).unwrap_err();
    assert_eq!(
        (error.kind, error.denied, &*error.message),
        (
            ToolErrorKind::Refused,
            true,
            "shell is refused: this session's access to files and the network is limited, and no sandbox can enforce the \
             limits on a command: the runtime has no guard, which creates sandboxes. Use the file tools."
        )
    );
}

#[test]
fn call_is_checked_again_when_it_runs() {
    let registry = built_in();
    let write = Arc::clone(registry.get("write").unwrap());
    let check = |path: &str, authority: &Authority| {
        registry.check(write.as_ref(), &json!({"path": path, "content": ""}), authority, &|_| false)
    };
    let authority =
        rules(Verdict::Deny, &[("fs.write", "src/**", Verdict::Allow), ("fs.write", "doc/*", Verdict::Ask)]);
    assert_eq!(check("./src//a", &authority), Ok(()));
    let denied = check("b", &authority).unwrap_err();
    assert_eq!(
        (denied.denied, &*denied.message),
        (
            true,
            "denied: write needs fs.write of `b`, which is not allowed in this session; do without it, or say what you would \
             have done"
        )
    );
    let unasked = check("doc/a", &authority).unwrap_err();
    assert!(unasked.denied && unasked.message.contains("requires approval, and this call was not approved"));
    let outside = check("src/../b", &authority).unwrap_err();
    assert!(!outside.denied && outside.message.contains("contains `..`"), "{outside:?}");
}

#[test]
fn classified_call_names_the_access_to_approve() {
    let registry = built_in();
    let path = |action: &str| Access { action: action.into(), resource: "doc/a".into() };
    let edit = r#"{"path": "doc/a", "old": "x", "new": "y"}"#;
    let found = |authority: &Authority, granted: &[Access]| match registry.classify(
        "edit",
        edit,
        authority,
        None,
        true,
        &|access| granted.contains(access),
    ) {
        Classified::Ready { access, ask, .. } => (access, ask),
        invalid @ Classified::Invalid { .. } => panic!("{invalid:?}"),
    };
    let asks = rules(Verdict::Deny, &[("fs.*", "doc/*", Verdict::Ask)]);
    // The write access is shown first. The call needs approval until all accesses are granted.
    assert_eq!(found(&asks, &[]), (Some(path("fs.write")), NeededApproval::SeveralAccesses));
    assert_eq!(found(&asks, &[path("fs.write")]), (Some(path("fs.read")), NeededApproval::OneAccess));
    assert_eq!(found(&asks, &[path("fs.read"), path("fs.write")]), (Some(path("fs.write")), NeededApproval::None));
    // A denied call does not ask, and an approval does not lift the denial.
    let half = rules(Verdict::Deny, &[("fs.write", "*", Verdict::Ask), ("fs.read", "z", Verdict::Allow)]);
    assert_eq!(found(&half, &[]), (None, NeededApproval::None));
    let tool = Arc::clone(registry.get("edit").unwrap());
    let args = serde_json::from_str(edit).unwrap();
    assert!(registry.check(tool.as_ref(), &args, &half, &|_| true).unwrap_err().denied);
    assert_eq!(registry.check(tool.as_ref(), &args, &asks, &|_| true), Ok(()));
    assert!(registry.check(tool.as_ref(), &args, &asks, &|access| *access == path("fs.write")).unwrap_err().denied);
}

#[test]
fn closure_tool_needs_its_own_action_by_default() {
    let registry = Registry::builder().tool(tool("weather", object())).unwrap();
    let spec = ToolSpec { name: "clock".into(), description: "Returns the time.".into(), schema: Arc::new(object()) };
    let clock = FnTool::new(spec, ToolEffect::ReadOnly, async |_| Ok(ToolOutput::text("noon")));
    let registry = registry.tool(Arc::new(clock.in_process().access(|_| Vec::new()))).unwrap().build();
    assert_eq!(offered(&registry, &Authority::deny_all(), false), ["clock"]);
    assert_eq!(
        offered(&registry, &rules(Verdict::Deny, &[("tool:*", "*", Verdict::Allow)]), false),
        ["clock", "weather"]
    );
    assert_eq!(["clock", "weather"].map(|name| registry.get(name).unwrap().leaves_process()), [false, true]);
}

const PATHS: [&str; 6] = [".", "a", "a/b", "a/b/c", "z", "b"];

fn any_verdict() -> impl Strategy<Value = Verdict> {
    prop_oneof![Just(Verdict::Deny), Just(Verdict::Ask), Just(Verdict::Allow)]
}

fn any_rule() -> impl Strategy<Value = Rule> {
    let action = prop::sample::select(vec!["*", "fs.*", "fs.read", "fs.write", "shell.run", "net.fetch"]);
    let resource = prop::sample::select(vec!["*", "a", "a/*", "a/**", "z", "."]);
    (action, resource, any_verdict()).prop_map(|(action, resource, verdict)| Rule {
        action: action.into(),
        resource: resource.into(),
        verdict,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// A tool that may run is offered, and a call of a tool that is not offered is unknown.
    #[test]
    fn offered_if_and_only_if_permitted(
        default in any_verdict(),
        rules in prop::collection::vec(any_rule(), 0..6),
        path in prop::sample::select(&PATHS[..]),
        approver: bool,
    ) {
        let authority = Authority::of(RuleSet { default, rules });
        let registry = built_in();
        let offered = offered(&registry, &authority, approver);
        for name in registry.names() {
            let tool = registry.get(name).unwrap().as_ref();
            let is_offered = offered.contains(&name.to_string());
            let args =
                json!({"path": path, "pattern": "x", "content": "x", "old": "x", "new": "y", "command": path});
            let ruling = Registry::ruling(tool, &args, &authority, &|_| false);
            let passes = match &ruling {
                Ruling::Allowed(_) => true,
                Ruling::Asked(..) => approver,
                Ruling::Denied(_) => false,
            };
            // `process` is offered together with `shell`.
            let is_process = &**name == "process";
            prop_assert!(!passes || is_offered || is_process, "{name} {path} would run, but is not offered");
            // An approval overrides only `Ask`.
            let unasked = registry.check(tool, &args, &authority, &|_| false).is_ok();
            let asked = registry.check(tool, &args, &authority, &|_| true).is_ok();
            prop_assert_eq!(unasked, matches!(ruling, Ruling::Allowed(_)));
            prop_assert_eq!(asked, !matches!(ruling, Ruling::Denied(_)));
            let classified = registry.classify(name, "{}", &authority, None, approver, &|_| false);
            let unknown = matches!(classified, Classified::Invalid { kind: Invalid::UnknownTool, .. });
            prop_assert_eq!(unknown, !is_offered);
        }
    }

    /// The converse: if rules cover whole actions, an offered tool runs on every path.
    #[test]
    fn offered_tools_run_if_rules_cover_all_paths(
        default in any_verdict(),
        mut rules in prop::collection::vec(any_rule(), 0..6),
        approver: bool,
    ) {
        for rule in &mut rules {
            rule.resource = "*".into();
        }
        let authority = Authority::of(RuleSet { default, rules });
        let registry = built_in();
        for spec in registry.offered(&authority, None, approver) {
            let tool = registry.get(&spec.name).unwrap();
            let args = json!({"path": "a/b", "command": "ls"});
            match Registry::ruling(tool.as_ref(), &args, &authority, &|_| false) {
                Ruling::Allowed(_) => {}
                Ruling::Asked(..) => prop_assert!(approver, "{}", spec.name),
                Ruling::Denied(error) => prop_assert!(false, "{}: {error}", spec.name),
            }
        }
    }
}

/// Seeded bug: a tool is offered if any rule allows its action.
#[test]
fn offering_by_any_allow_rule_is_detected() {
    let some_rule_allows = |set: &RuleSet, tool: &dyn Tool| {
        tool.access(None).iter().all(|access| {
            let allows = |rule: &&Rule| *rule.action == *access.action && rule.verdict == Verdict::Allow;
            set.rules.iter().find(allows).is_some()
        })
    };
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 10_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let cases = (any_verdict(), prop::collection::vec(any_rule(), 0..6));
    let result = runner.run(&cases, |(default, rules)| {
        let set = RuleSet { default, rules };
        let authority = Authority::of(set.clone());
        let registry = built_in();
        let tool = registry.get("read").unwrap().as_ref();
        let shown = some_rule_allows(&set, tool);
        let runs = |path| {
            let ruling = Registry::ruling(tool, &json!({"path": path}), &authority, &|_| false);
            matches!(ruling, Ruling::Allowed(_))
        };
        prop_assert_eq!(shown, PATHS.iter().any(runs));
        Ok(())
    });
    assert!(matches!(result, Err(proptest::test_runner::TestError::Fail(..))), "{result:?}");
}
