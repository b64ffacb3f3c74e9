//! A workspace with a denied file.

use std::cell::OnceCell;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use subtend_session::authority::{Authority, Rule, RuleSet, Verdict};
use subtend_session::ids::{CallId, RunNo, SessionId, TurnNo};
use subtend_tools::processes::Processes;
use subtend_tools::registry::Registry;
use subtend_tools::tool::{Progress, ToolError, ToolInvocation, ToolKey};
use subtend_tools::workspace::Workspace;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

pub(crate) const SECRET: &str = "SECRET-4711";
pub(crate) const FILES: [&str; 5] = ["a.rs", "b.txt", "src/main.rs", "src/deep/x.rs", "docs/{a,b}.md"];

pub(crate) struct Tree {
    dir: TempDir,
    workspace: Arc<Workspace>,
    pub(crate) tools: Registry,
    pub(crate) authority: Arc<Authority>,
    runtime: Runtime,
}

/// Calls `with` on the workspace of this thread. `None` if no workspace can be created.
pub(crate) fn with_tree<T>(with: impl FnOnce(&Tree) -> T) -> Option<T> {
    thread_local! {
        static TREE: OnceCell<Option<Tree>> = const { OnceCell::new() };
    }
    TREE.with(|tree| tree.get_or_init(|| make().ok()).as_ref().map(with))
}

fn make() -> Result<Tree, Box<dyn std::error::Error>> {
    let dir = TempDir::new()?;
    for (path, text) in FILES.map(|path| (path, "fn found() {}\n")).into_iter().chain([("secret/key", SECRET)]) {
        let path = dir.path().join(path);
        path.parent().map(fs::create_dir_all).transpose()?;
        fs::write(path, text)?;
    }
    #[cfg(unix)]
    for (name, to) in [("src/link", "../secret/key"), ("up", ".."), ("docs/secret", "../secret")] {
        std::os::unix::fs::symlink(to, dir.path().join(name))?;
    }
    let rule =
        |action: &str, resource: &str, verdict| Rule { action: action.into(), resource: resource.into(), verdict };
    let rules = vec![
        rule("fs.read", "*", Verdict::Allow),
        rule("fs.*", "secret/**", Verdict::Deny),
        rule("fs.write", "src/**", Verdict::Ask),
        rule("shell.run", "*", Verdict::Ask),
    ];
    Ok(Tree {
        workspace: Arc::new(Workspace::open(dir.path())?),
        dir,
        tools: Registry::builder().tools(Registry::workspace_tools(None))?.build(),
        authority: Arc::new(Authority::of(RuleSet { default: Verdict::Deny, rules })),
        runtime: tokio::runtime::Builder::new_current_thread().enable_all().build()?,
    })
}

impl Tree {
    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn run(&self, tool: &str, args: Value) -> Option<Result<String, ToolError>> {
        let tool = self.tools.get(tool).filter(|_| matches!(tool, "list" | "read" | "search"))?;
        let call = ToolInvocation {
            key: ToolKey {
                session: SessionId(Default::default()),
                run: RunNo(1),
                call: CallId { turn: TurnNo(1), ix: 0 },
            },
            args,
            options: Default::default(),
            workspace: Arc::clone(&self.workspace),
            authority: Arc::clone(&self.authority),
            cancel: CancellationToken::new(),
            max_bytes: 10_000,
            progress: Progress::none(),
            processes: Processes::default(),
            checkpoints: None,
            messenger: None,
            child_tools: None,
            approved: false,
        };
        Some(self.runtime.block_on(tool.run(call)).map(|output| output.content.to_string()))
    }
}
