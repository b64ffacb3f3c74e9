//! Public collections of agent files: every file is loaded, or refused with a reason.
//!
//! `.ci/tools collections` fetches the packages. The test runs only if it is named.

#![allow(clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use subtend_agents::catalog::{Catalog, ProblemKind};

/// One package of `collections.txt`.
struct Collection {
    name: String,
    files: Vec<PathBuf>,
    catalog: Catalog,
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a folder of agents") {
        let entry = entry.expect("an entry");
        let (path, to) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy(&path, &to);
        } else {
            fs::copy(&path, &to).expect("a copy");
        }
    }
}

fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let below = |path: PathBuf| if path.is_dir() { files(&path, ending) } else { vec![path] };
    entries.flat_map(below).filter(|path| path.extension().is_some_and(|found| found == ending)).collect()
}

fn collections(workspace: &Path) -> Vec<Collection> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let lines = include_str!("collections.txt").lines().filter(|line| !line.starts_with('#'));
    let load = |line: &str| {
        let [name, _, from, to] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("four words: {line}") };
        let folder = name.replace('/', "+");
        let workspace = workspace.join(&folder);
        copy(&target.join("collections").join(&folder).join("package").join(from), &workspace.join(to));
        let ending = if to.starts_with(".codex") { "toml" } else { "md" };
        let files = files(&workspace.join(to), ending);
        Collection { name: name.to_owned(), files, catalog: Catalog::load_checked(&workspace) }
    };
    lines.map(load).collect()
}

#[test]
fn every_file_of_public_collections_is_loaded_or_refused() {
    let workspace = tempfile::tempdir().expect("a workspace");
    let mut rejected = Vec::new();
    for collection in collections(workspace.path()) {
        let agents = collection.catalog.all().filter_map(|agent| Some((agent.source.path()?.to_owned(), agent)));
        let agents: BTreeMap<_, _> = agents.collect();
        let refused = collection.catalog.problems().iter().filter(|problem| problem.kind == ProblemKind::Refused);
        let refused: BTreeMap<_, _> = refused.map(|problem| (problem.path.clone(), &problem.message)).collect();
        for file in &collection.files {
            let found = (agents.contains_key(file), refused.get(file).is_some_and(|why| !why.trim().is_empty()));
            assert!(matches!(found, (true, false) | (false, true)), "{}: {found:?}", file.display());
        }
        assert_eq!(agents.len() + refused.len(), collection.files.len(), "{}", collection.name);
        for agent in agents.values() {
            let listed = agent.tools.is_some();
            assert!(!listed || agent.rules.is_some(), "{}: a list of tools must restrict the agent", agent.name);
            assert!(!agent.body.trim().is_empty() && !agent.description.is_empty(), "{}", agent.name);
        }
        let why: std::collections::BTreeSet<_> =
            refused.values().map(|why| why.split('`').next().unwrap_or_default()).collect();
        println!("{}: {} agents, {} refused: {why:?}", collection.name, agents.len(), refused.len());
        rejected.push((agents.len(), refused.len()));
    }
    // All files of the fourth collection lack a name and a description, which Codex requires.
    assert_eq!(rejected, [(8, 0), (21, 1), (97, 11), (0, 3), (4, 1)]);
}
