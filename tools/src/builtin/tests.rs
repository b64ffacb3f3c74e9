mod edit;
mod list;
mod memory;
mod read;
mod search;
#[cfg(unix)]
mod shell;
mod write;

use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use subtend_session::authority::{Authority, Rule, RuleSet, Verdict};
use subtend_session::call::ToolErrorKind;
use subtend_session::ids::{CallId, RunNo, SessionId, TurnNo};
use tokio_util::sync::CancellationToken;

use crate::processes::Processes;
use crate::registry::{Classified, Registry};
use crate::tool::{Progress, ToolError, ToolInvocation, ToolKey, ToolOutput};
use crate::workspace::Workspace;

pub(super) struct ToolFixture {
    pub(super) dir: tempfile::TempDir,
    pub(super) workspace: Arc<Workspace>,
    pub(super) authority: Authority,
    pub(super) cancel: CancellationToken,
    pub(super) max_bytes: u64,
    pub(super) progress: Progress,
    registry: Registry,
}

impl ToolFixture {
    pub(super) fn new(files: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        Self {
            workspace: Arc::new(Workspace::open(dir.path()).unwrap()),
            dir,
            authority: Authority::allow_all(),
            cancel: CancellationToken::new(),
            max_bytes: 256 << 10,
            progress: Progress::none(),
            registry: Registry::builder().tools(Registry::workspace_tools(None)).unwrap().build(),
        }
    }

    pub(super) fn at(&self, path: &str) -> std::path::PathBuf {
        self.dir.path().join(path)
    }

    pub(super) fn content(&self, path: &str) -> String {
        std::fs::read_to_string(self.at(path)).unwrap()
    }

    #[cfg(unix)]
    pub(super) fn link(&self, target: impl AsRef<Path>, link: &str) {
        std::os::unix::fs::symlink(target, self.at(link)).unwrap();
    }

    /// Allows everything except what these rules deny.
    pub(super) fn with_rules(mut self, rules: &[(&str, &str, Verdict)]) -> Self {
        let rule = |(action, resource, verdict): &(&str, &str, Verdict)| Rule {
            action: (*action).into(),
            resource: (*resource).into(),
            verdict: *verdict,
        };
        self.authority = Authority::of(RuleSet { default: Verdict::Allow, rules: rules.iter().map(rule).collect() });
        self
    }

    pub(super) async fn call(&self, tool: &str, args: Value) -> Result<ToolOutput, ToolError> {
        let classified = self.registry.classify(tool, &args.to_string(), &self.authority, None, false, &|_| false);
        let (tool, args) = match classified {
            Classified::Ready { tool, args, .. } => (tool, args),
            Classified::Invalid { kind, message } => panic!("{kind:?}: {message}"),
        };
        self.registry.check(tool.as_ref(), &args, &self.authority, &|_| false)?;
        let session: SessionId = "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap();
        let key = ToolKey { session, run: RunNo(1), call: CallId { turn: TurnNo(2), ix: 3 } };
        let call = ToolInvocation {
            key,
            args,
            options: Default::default(),
            workspace: Arc::clone(&self.workspace),
            authority: Arc::new(self.authority.clone()),
            cancel: self.cancel.clone(),
            max_bytes: self.max_bytes,
            progress: self.progress.clone(),
            processes: Processes::default(),
            checkpoints: None,
            messenger: None,
            child_tools: None,
            approved: false,
        };
        tool.run(call).await
    }

    pub(super) async fn text(&self, tool: &str, args: Value) -> String {
        self.call(tool, args).await.unwrap().content.to_string()
    }

    pub(super) async fn error(&self, tool: &str, args: Value) -> (ToolErrorKind, String) {
        let error = self.call(tool, args).await.unwrap_err();
        (error.kind, error.message)
    }
}

#[cfg(unix)]
pub(super) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[cfg(unix)]
#[tokio::test]
async fn every_file_tool_refuses_paths_and_links_that_lead_out() {
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("secret"), "hidden").unwrap();
    let fixture = ToolFixture::new(&[("a.txt", "text")]);
    fixture.link(outside.path(), "out");
    fixture.link(outside.path().join("secret"), "key");
    fixture.link("../../../../../../etc/passwd", "climb");
    let with = |path: &str| {
        [
            ("list", serde_json::json!({"path": path})),
            ("read", serde_json::json!({"path": path})),
            ("search", serde_json::json!({"path": path, "pattern": "hidden"})),
            ("write", serde_json::json!({"path": path, "content": "spoiled"})),
            ("edit", serde_json::json!({"path": path, "old": "hidden", "new": "spoiled"})),
        ]
    };
    for path in ["out/secret", "out/new", "key", "climb", "..", "../x", "/etc/passwd", "a.txt/../../x", "nul\0"] {
        for (tool, args) in with(path) {
            let error = fixture.call(tool, args).await.unwrap_err();
            let refused = matches!(error.kind, ToolErrorKind::Refused | ToolErrorKind::BadArgs);
            assert!(refused && !error.message.contains("hidden"), "{tool} {path}: {error:?}");
        }
    }
    assert_eq!(std::fs::read_to_string(outside.path().join("secret")).unwrap(), "hidden");
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1);
}

#[cfg(unix)]
#[tokio::test]
async fn link_does_not_bypass_a_rule() {
    let fixture = ToolFixture::new(&[("secrets/key", "hidden"), ("a.txt", "")])
        .with_rules(&[("fs.read", "secrets/**", Verdict::Deny), ("fs.write", "secrets/**", Verdict::Deny)]);
    fixture.link("secrets/key", "open");
    fixture.link("secrets", "dir");
    let calls = [
        ("read", serde_json::json!({"path": "secrets/key"})),
        ("read", serde_json::json!({"path": "open"})),
        ("read", serde_json::json!({"path": "dir/key"})),
        ("search", serde_json::json!({"path": "open", "pattern": "hidden"})),
        ("write", serde_json::json!({"path": "open", "content": "x"})),
        ("write", serde_json::json!({"path": "dir/new", "content": "x"})),
        ("write", serde_json::json!({"path": "dir/new/deep", "content": "x"})),
        ("edit", serde_json::json!({"path": "open", "old": "hidden", "new": "x"})),
    ];
    for (tool, args) in calls {
        let error = fixture.call(tool, args.clone()).await.unwrap_err();
        assert!(error.denied, "{tool} {args}: {error:?}");
    }
    assert_eq!(fixture.content("secrets/key"), "hidden");
    assert_eq!(
        fixture.text("search", serde_json::json!({"pattern": "hidden"})).await,
        "[no matches in 1 file; 1 entry not permitted]"
    );
}

/// A rule that denies one name of a file denies its content under all its hard links.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn hard_link_does_not_bypass_a_rule() {
    let fixture = ToolFixture::new(&[("secrets/key", "hidden\n"), ("a.txt", "open\n")]);
    std::fs::hard_link(fixture.at("secrets/key"), fixture.at("alias")).unwrap();
    std::fs::hard_link(fixture.at("a.txt"), fixture.at("b.txt")).unwrap();
    let search = serde_json::json!({"pattern": "hidden|open", "regex": true});
    let all = fixture.text("search", search.clone()).await;
    assert!(all.starts_with("a.txt:1: open\nalias:1: hidden\n"), "the control, without a rule: {all}");
    let fixture = fixture.with_rules(&[("fs.*", "secrets/**", Verdict::Deny)]);
    for (tool, args) in [
        ("read", serde_json::json!({"path": "alias"})),
        ("search", serde_json::json!({"path": "alias", "pattern": "hidden"})),
        ("edit", serde_json::json!({"path": "alias", "old": "hidden", "new": "x"})),
    ] {
        let error = fixture.call(tool, args).await.unwrap_err();
        let expected =
            format!("cannot {tool} `alias`: it has another name (a hard link), which this session may not read");
        assert_eq!((error.denied, error.message), (true, expected));
    }
    assert_eq!(
        fixture.text("search", search).await,
        "a.txt:1: open\nb.txt:1: open\n[2 matching lines in 2 files of 2 files; 2 entries not permitted]"
    );
    // A write replaces only this name. The file is unchanged under its other names.
    fixture.text("write", serde_json::json!({"path": "alias", "content": "mine"})).await;
    assert_eq!((fixture.content("secrets/key"), fixture.content("alias")), ("hidden\n".into(), "mine".into()));
}

#[cfg(unix)]
#[tokio::test]
async fn link_inside_the_workspace_is_followed() {
    let fixture = ToolFixture::new(&[("src/a.txt", "text\n")]);
    fixture.link("src", "dir");
    fixture.link("src/a.txt", "file");
    assert_eq!(
        fixture.text("read", serde_json::json!({"path": "dir/a.txt"})).await,
        "     1\ttext\n[lines 1-1 of 1, 5 bytes]"
    );
    let written = fixture.text("write", serde_json::json!({"path": "file", "content": "new"})).await;
    assert_eq!(written, "replaced `src/a.txt`: 3 bytes, 1 line");
    assert_eq!((fixture.content("src/a.txt"), fixture.at("file").is_symlink()), ("new".into(), true));
}

#[tokio::test]
async fn cancelled_call_does_nothing() {
    let fixture = ToolFixture::new(&[("a.txt", "text")]);
    fixture.cancel.cancel();
    for (tool, args) in [
        ("list", serde_json::json!({})),
        ("read", serde_json::json!({"path": "a.txt"})),
        ("search", serde_json::json!({"pattern": "text"})),
        ("write", serde_json::json!({"path": "a.txt", "content": "x"})),
        ("edit", serde_json::json!({"path": "a.txt", "old": "text", "new": "x"})),
        ("shell", serde_json::json!({"command": "echo x > a.txt"})),
    ] {
        assert_eq!(fixture.call(tool, args).await, Err(ToolError::cancelled()), "{tool}");
    }
    assert_eq!(fixture.content("a.txt"), "text");
}

#[cfg(unix)]
#[tokio::test]
async fn file_tools_do_not_block_on_pipes() {
    let fixture = ToolFixture::new(&[("a.txt", "needle\n")]);
    for name in ["pipe", ".gitignore"] {
        let made = std::process::Command::new("mkfifo").arg(fixture.at(name)).status().unwrap();
        assert!(made.success());
    }
    let (kind, message) = fixture.error("read", serde_json::json!({"path": "pipe"})).await;
    assert_eq!(
        (kind, &*message),
        (ToolErrorKind::Refused, "`pipe` is a pipe, socket or device, not a file or directory")
    );
    assert_eq!(
        fixture.text("search", serde_json::json!({"pattern": "needle"})).await,
        "a.txt:1: needle\n[1 matching line in 1 file of 1 file]"
    );
    assert_eq!(
        fixture.text("list", serde_json::json!({})).await,
        ".gitignore  special file\na.txt  7 bytes, 1 line\npipe  special file\n[0 directories; 1 file; 2 others]"
    );
}
