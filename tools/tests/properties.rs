//! Properties of approvals (P-5) and of model-written arguments (P-6), each with seeded bugs that it must detect.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use proptest::prelude::{Just, Strategy, any, prop, prop_assert, prop_assert_eq, prop_oneof};
use proptest::sample::{Index, select};
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use serde_json::{Map, Value, json};
use subtend_session::authority::{Access, Authority, Rule, RuleSet, Verdict};
use subtend_session::command::NeededApproval;
use subtend_session::ids::Text;
use subtend_tools::dialect::{Offered, Request, task};
use subtend_tools::registry::{Classified, Registry};

const CASES: u32 = 10_000;
/// Number of sessions.
const DEPTH: usize = 12;

fn run_property<S: Strategy>(
    cases: S,
    shrink: u32,
    property: impl Fn(S::Value) -> Result<(), TestCaseError>,
) -> Result<(), TestError<S::Value>> {
    let config = Config { cases: CASES, max_shrink_iters: shrink, failure_persistence: None, ..Config::default() };
    TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha)).run(&cases, property)
}

/// Checks that a property holds, and that each seeded bug violates it.
fn check_property<S: Strategy, R: Copy>(
    cases: impl Fn() -> S,
    property: impl Fn(R, S::Value) -> Result<(), TestCaseError>,
    real: R,
    bugs: &[(&str, R)],
) {
    if let Err(broken) = run_property(cases(), 10_000, |case| property(real, case)) {
        panic!("{broken}");
    }
    for (name, bug) in bugs {
        let noticed = run_property(cases(), 0, |case| property(*bug, case));
        assert!(matches!(noticed, Err(TestError::Fail(..))), "the seeded bug `{name}` was not noticed");
    }
}

static BUILT_IN: LazyLock<Registry> =
    LazyLock::new(|| Registry::builder().tools(Registry::workspace_tools(None)).unwrap().build());

fn verdicts() -> impl Strategy<Value = Verdict> {
    prop_oneof![1 => Just(Verdict::Deny), 3 => Just(Verdict::Ask), 3 => Just(Verdict::Allow)]
}

fn rule_sets() -> impl Strategy<Value = RuleSet> {
    let actions = select(vec!["*", "fs.*", "fs.read", "fs.write"]);
    let resources = select(vec!["*", "a", "a/**", "b", "b/*"]);
    let rule = (actions, resources, verdicts()).prop_map(|(action, resource, verdict)| Rule {
        action: action.into(),
        resource: resource.into(),
        verdict,
    });
    (verdicts(), prop::collection::vec(rule, 0..4)).prop_map(|(default, rules)| RuleSet { default, rules })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ApproverAnswer {
    Deny,
    Allow,
    Always,
    /// No approver, or no answer in time.
    None,
}

/// One call of one session, and the answer to its question.
type CallCase = (Index, &'static str, &'static str, ApproverAnswer);

fn calls() -> impl Strategy<Value = Vec<CallCase>> {
    let verdicts = prop_oneof![1 => Just(ApproverAnswer::Deny), 1 => Just(ApproverAnswer::Allow), 3 => Just(ApproverAnswer::Always), 1 => Just(ApproverAnswer::None)];
    let tools = select(vec!["read", "write", "edit"]);
    prop::collection::vec((any::<Index>(), tools, select(vec!["a", "a/b", "b", "b/c"]), verdicts), 1..16)
}

/// Decides whether a permanent approval in some session covers an access of session `of`.
type Covers = fn(words: &[BTreeSet<Access>], of: usize, access: &Access) -> bool;

/// The real rule: only the session's own approvals count.
fn own(approvals: &[BTreeSet<Access>], of: usize, access: &Access) -> bool {
    approvals[of].contains(access)
}

/// Seeded bug: all sessions of the tree share their approvals.
fn share_approvals(approvals: &[BTreeSet<Access>], _: usize, access: &Access) -> bool {
    approvals.iter().any(|given| given.contains(access))
}

/// Seeded bug: a child inherits its parent's approvals.
fn inherit_approvals(approvals: &[BTreeSet<Access>], of: usize, access: &Access) -> bool {
    approvals[..=of].iter().any(|words| words.contains(access))
}

/// Seeded bug: an approval of one resource covers all resources of the action.
fn by_action(approvals: &[BTreeSet<Access>], of: usize, access: &Access) -> bool {
    approvals[of].iter().any(|word| word.action == access.action)
}

/// Seeded bug: a permanent approval is forgotten.
fn forget_approvals(_: &[BTreeSet<Access>], _: usize, _: &Access) -> bool {
    false
}

/// P-5: a call that needs an approval runs only with an approval. A permanent approval applies only to its session and to the shown access,
/// and does not override a deny.
fn approval_binds_one_session(
    covers: Covers,
    (chain, calls): (Vec<RuleSet>, Vec<CallCase>),
) -> Result<(), TestCaseError> {
    let mut authorities: Vec<Authority> = Vec::new();
    for own in chain {
        let above = authorities.last().cloned().unwrap_or_else(Authority::allow_all);
        authorities.push(above.meet(&Authority::of(own)));
    }
    let mut approvals = vec![BTreeSet::new(); authorities.len()];
    for (of, name, path, word) in calls {
        let of = of.index(authorities.len());
        let authority = &authorities[of];
        let args = match name {
            "read" => json!({"path": path}),
            "write" => json!({"path": path, "content": "x"}),
            _ => json!({"path": path, "old": "x", "new": "y"}),
        };
        let tool = BUILT_IN.get(name).unwrap().as_ref();
        // The expectation is computed independently, from this session's approvals.
        let accesses = tool.access(Some(&args));
        let denied = accesses.iter().any(|access| authority.verdict(access) == Verdict::Deny);
        let due = |access: &&Access| authority.verdict(access) == Verdict::Ask && !approvals[of].contains(*access);
        let due: Vec<Access> = accesses.iter().filter(due).cloned().collect();

        let granted = |access: &Access| covers(&approvals, of, access);
        let classified = BUILT_IN.classify(name, &args.to_string(), authority, None, true, &granted);
        let (asked_access, asks) = match classified {
            Classified::Ready { access, ask, .. } => {
                let several = ask == NeededApproval::SeveralAccesses;
                prop_assert_eq!(several, !denied && due.len() > 1, "{} of {} in session {}", name, path, of);
                (access, ask.is_needed())
            }
            Classified::Invalid { .. } => {
                prop_assert!(denied, "{name} of {path} is not offered");
                continue;
            }
        };
        prop_assert_eq!(asks, !denied && !due.is_empty(), "{} of {} in session {}", name, path, of);
        prop_assert_eq!(BUILT_IN.check(tool, &args, authority, &granted).is_ok(), !denied && due.is_empty());
        prop_assert_eq!(BUILT_IN.check(tool, &args, authority, &|_| true).is_ok(), !denied);
        if let (true, Some(asked_access), ApproverAnswer::Always) = (asks, asked_access, word) {
            prop_assert!(due.contains(&asked_access));
            approvals[of].insert(asked_access);
        }
    }
    Ok(())
}

#[test]
fn p5_permanent_approval_applies_to_its_session_only() {
    check_property(
        || (prop::collection::vec(rule_sets(), 1..=DEPTH + 1), calls()),
        approval_binds_one_session,
        own as Covers,
        &[
            ("shared", share_approvals),
            ("inherited", inherit_approvals),
            ("by action", by_action),
            ("forgotten", forget_approvals),
        ],
    );
}

/// Fields that a model may try, including existing ones.
const FIELDS: [&str; 18] = [
    "subagent_type",
    "prompt",
    "background",
    "session_id",
    "metadata",
    "tools",
    "model",
    "agent",
    "cwd",
    "workspace",
    "permissions",
    "authority",
    "ceiling",
    "rules",
    "owner",
    "detached",
    "limits",
    "__proto__",
];

const AGENTS: [&str; 3] = ["explore", "worker", "build"];

fn values() -> impl Strategy<Value = Value> {
    let names = select(vec![
        "explore",
        "build",
        "worker",
        "Build",
        " build",
        "build\0",
        "../build",
        "explore,build",
        "explore\nbuild",
        "*",
        "root",
        "/",
        "..",
        "allow",
        "admin",
        "01890a5d-ac96-774b-bcce-b302099a8057",
        "9a8057",
        "root/9a8057",
        "",
    ]);
    let leaf = prop_oneof![
        4 => names.prop_map(|name| json!(name)),
        1 => "\\PC{0,12}".prop_map(Value::from),
        1 => any::<bool>().prop_map(Value::from),
        1 => any::<i64>().prop_map(Value::from),
        1 => Just(Value::Null),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::vec((select(&FIELDS[..]), inner), 0..3)
                .prop_map(|entries| entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()),
        ]
    })
}

/// Generates model output: mostly a call with additions or errors, sometimes not a call.
fn written() -> impl Strategy<Value = String> {
    let fields = prop::collection::vec((select(&FIELDS[..]), values()), 0..3);
    let whole = (any::<bool>(), fields).prop_map(|(sound, fields)| {
        let mut call = Map::new();
        if sound {
            call.insert("subagent_type".into(), json!("worker"));
            call.insert("prompt".into(), json!("go"));
        }
        call.extend(fields.into_iter().map(|(key, value)| (key.to_owned(), value)));
        Value::Object(call).to_string()
    });
    let cut = (whole, 0..200_usize, any::<bool>())
        .prop_map(|(text, at, cut)| text[..if cut { text.floor_char_boundary(at) } else { text.len() }].to_owned());
    prop_oneof![9 => cut, 1 => "\\PC{0,40}"]
}

/// The agent and ceiling of the child that a call of a session with `offered` starts.
type StartChild = fn(
    args: &str,
    offered: &[(Text, Text)],
    parent: &Authority,
    manifests: &[Authority; 3],
) -> Option<(Text, Authority)>;

fn manifest<'a>(agent: &str, manifests: &'a [Authority; 3]) -> Option<&'a Authority> {
    AGENTS.iter().position(|name| *name == agent).map(|at| &manifests[at])
}

/// The real rule: the dialect parses the agent, and the ceiling is the meet of the parent's and the manifest's permissions.
fn real(
    args: &str,
    offered: &[(Text, Text)],
    parent: &Authority,
    manifests: &[Authority; 3],
) -> Option<(Text, Authority)> {
    match task::parse(args, &Offered { agents: offered.to_vec(), shown: offered.to_vec(), ..Offered::default() }) {
        Ok(Request::Start(start)) => {
            let ceiling = parent.meet(manifest(&start.agent, manifests)?);
            Some((start.agent, ceiling))
        }
        Ok(Request::Continue(_)) | Err(_) => None,
    }
}

/// Seeded bug: any existing agent can be named, even if it is not offered.
fn any_agent(
    args: &str,
    _: &[(Text, Text)],
    parent: &Authority,
    manifests: &[Authority; 3],
) -> Option<(Text, Authority)> {
    let args: Value = serde_json::from_str(args).ok()?;
    let agent = args.get("subagent_type")?.as_str()?;
    Some((agent.into(), parent.meet(manifest(agent, manifests)?)))
}

/// Seeded bug: a call can set its own permissions.
fn own_permissions(
    args: &str,
    offered: &[(Text, Text)],
    parent: &Authority,
    manifests: &[Authority; 3],
) -> Option<(Text, Authority)> {
    let mut fields: Map<String, Value> = serde_json::from_str(args).ok()?;
    let raised = ["permissions", "authority", "ceiling", "rules"].iter().any(|key| fields.remove(*key).is_some());
    let (agent, ceiling) = real(&Value::Object(fields).to_string(), offered, parent, manifests)?;
    Some((agent, if raised { Authority::allow_all() } else { ceiling }))
}

/// Seeded bug: a child gets the permissions of its manifest without its parent's limits.
fn manifest_only(
    args: &str,
    offered: &[(Text, Text)],
    parent: &Authority,
    manifests: &[Authority; 3],
) -> Option<(Text, Authority)> {
    let (agent, _) = real(args, offered, parent, manifests)?;
    let own = manifest(&agent, manifests)?.clone();
    Some((agent, own))
}

type Written = (RuleSet, [RuleSet; 3], String, &'static str, &'static str);

/// P-6: for any arguments, the child has an offered agent and at most the permissions of its parent.
fn no_field_adds_permissions(
    created: StartChild,
    (parent, manifests, args, action, resource): Written,
) -> Result<(), TestCaseError> {
    let parent = Authority::of(parent);
    let manifests = manifests.map(Authority::of);
    let offered: Vec<(Text, Text)> = AGENTS[..2].iter().map(|name| ((*name).into(), "Works.".into())).collect();
    let Some((agent, ceiling)) = created(&args, &offered, &parent, &manifests) else { return Ok(()) };
    prop_assert!(offered.iter().any(|(name, _)| *name == agent), "{agent} was not offered");
    let at = Access { action: action.into(), resource: resource.into() };
    prop_assert!(ceiling.verdict(&at) <= parent.verdict(&at), "{args} raises {at:?}");
    prop_assert!(ceiling.verdict(&at) <= manifest(&agent, &manifests).unwrap().verdict(&at));
    Ok(())
}

#[test]
fn p6_arguments_cannot_add_permissions_to_a_child() {
    let cases = || {
        let actions = select(vec!["fs.read", "fs.write", "shell.run", "task:build"]);
        (
            rule_sets(),
            [rule_sets(), rule_sets(), rule_sets()],
            written(),
            actions,
            select(vec!["a", "a/b", "b", "../a"]),
        )
    };
    check_property(
        cases,
        no_field_adds_permissions,
        real as StartChild,
        &[("any agent", any_agent), ("own permissions", own_permissions), ("manifest only", manifest_only)],
    );
}
