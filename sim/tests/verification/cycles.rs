//! Import cycles: modules of one crate that import each other, directly or through other modules.

use std::collections::{BTreeMap, BTreeSet};

use syn::UseTree;
use syn::visit::Visit;

use super::source;

/// Maximum number of modules in cycles for each member. A limit may only fall.
const LIMITS: [(&str, usize); 12] = [
    ("actors", 0),
    ("agents", 0),
    ("drill", 0),
    ("invariants", 0),
    ("journal", 0),
    ("models", 0),
    ("seccomp", 0),
    ("session", 0),
    ("sim", 0),
    ("supervision", 0),
    ("tools", 0),
    ("", 0),
];

/// A module, as the names on its path from the root of its crate.
type Module = Vec<String>;

/// Returns the modules of a crate with their source, without tests.
fn modules(member: &str) -> BTreeMap<Module, String> {
    let below = if member.is_empty() { "src/".to_owned() } else { format!("{member}/src/") };
    let module = |(path, text): (String, String)| {
        let path = path.strip_prefix(&below)?.strip_suffix(".rs")?.to_owned();
        let mut names: Module = path.split('/').map(str::to_owned).collect();
        if names.iter().any(|name| name == "tests" || name == "bin") {
            return None;
        }
        if ["mod", "lib", "main"].contains(&names.last()?.as_str()) {
            names.pop();
        }
        Some((names, text))
    };
    source::files().into_iter().filter_map(module).collect()
}

/// Paths in one source that may name a module.
#[derive(Default)]
struct Paths(BTreeSet<Vec<String>>);

impl Paths {
    /// Adds the full paths that a `use` tree names.
    fn expand(&mut self, mut before: Vec<String>, tree: &UseTree) {
        match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.expand(before, &path.tree);
            }
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.expand(before.clone(), tree)),
            UseTree::Name(name) => self.0.extend([[before, vec![name.ident.to_string()]].concat()]),
            UseTree::Rename(name) => self.0.extend([[before, vec![name.ident.to_string()]].concat()]),
            UseTree::Glob(_) => self.0.extend([before]),
        }
    }
}

impl<'a> Visit<'a> for Paths {
    fn visit_item_use(&mut self, item: &'a syn::ItemUse) {
        self.expand(Vec::new(), &item.tree);
    }

    fn visit_item_mod(&mut self, item: &'a syn::ItemMod) {
        // Skips modules of unit tests.
        if !item.attrs.iter().any(|attribute| attribute.path().is_ident("cfg")) {
            syn::visit::visit_item_mod(self, item);
        }
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        self.0.extend([path.segments.iter().map(|segment| segment.ident.to_string()).collect::<Vec<_>>()]);
        syn::visit::visit_path(self, path);
    }
}

fn paths(text: &str) -> BTreeSet<Vec<String>> {
    let mut paths = Paths::default();
    paths.visit_file(&syn::parse_file(text).expect("Rust source"));
    paths.0
}

/// Resolves `path` in module `of`. Returns the named module if it belongs to the crate.
fn resolve(of: &Module, path: &[String], modules: &BTreeMap<Module, String>) -> Option<Module> {
    let first = path.first()?;
    let supers = path.iter().take_while(|name| *name == "super").count();
    let (mut at, names) = match first.as_str() {
        "crate" => (Vec::new(), path.get(1..)?),
        "self" => (of.clone(), path.get(1..)?),
        "super" => (of.get(..of.len().checked_sub(supers)?)?.to_vec(), path.get(supers..)?),
        _ => {
            modules.contains_key(&[of.as_slice(), std::slice::from_ref(first)].concat()).then(|| (of.clone(), path))?
        }
    };
    for name in names {
        let next = [at.as_slice(), std::slice::from_ref(name)].concat();
        if !modules.contains_key(&next) {
            break;
        }
        at = next;
    }
    Some(at)
}

/// Returns the imports of each module. A module may use items of its parent, and a parent items of its children.
fn imports(modules: &BTreeMap<Module, String>) -> BTreeMap<&Module, BTreeSet<Module>> {
    let imported = |module: &Module, text: &String| {
        let all = paths(text).into_iter().filter_map(|path| resolve(module, &path, modules));
        all.filter(|other| !module.starts_with(other) && !other.starts_with(module)).collect()
    };
    modules.iter().map(|(module, text)| (module, imported(module, text))).collect()
}

fn reached(from: &Module, imports: &BTreeMap<&Module, BTreeSet<Module>>) -> BTreeSet<Module> {
    let (mut seen, mut next) = (BTreeSet::new(), vec![from.clone()]);
    while let Some(module) = next.pop() {
        for other in imports.get(&module).into_iter().flatten() {
            if seen.insert(other.clone()) {
                next.push(other.clone());
            }
        }
    }
    seen
}

/// Returns the modules that import themselves indirectly, each with its imports of other such modules.
fn cycles(modules: &BTreeMap<Module, String>) -> Vec<String> {
    let imports = imports(modules);
    let reach: BTreeMap<&Module, BTreeSet<Module>> =
        imports.keys().map(|module| (*module, reached(module, &imports))).collect();
    let in_one_cycle = |module: &Module, other: &Module| reach.get(other).is_some_and(|seen| seen.contains(module));
    let cyclic = imports.iter().filter(|(module, _)| in_one_cycle(module, module));
    let shown = cyclic.map(|(module, others)| {
        let to: Vec<String> =
            others.iter().filter(|other| in_one_cycle(module, other)).map(|to| to.join("::")).collect();
        format!("{} -> {}", module.join("::"), to.join(", "))
    });
    shown.collect()
}

#[test]
fn modules_import_each_other_in_one_direction() {
    for (member, limit) in LIMITS {
        let modules = modules(member);
        assert!(!modules.is_empty(), "{member} has no modules");
        let cyclic = cycles(&modules);
        let name = if member.is_empty() { "subtend" } else { member };
        println!("{name}: {} modules, {} in cycles", modules.len(), cyclic.len());
        assert!(
            cyclic.len() <= limit,
            "{name} has {} modules in cycles, the limit is {limit}:\n{}",
            cyclic.len(),
            cyclic.join("\n")
        );
    }
}

/// The control: a cycle through three modules is found. A parent that uses its child is not a cycle.
#[test]
fn cycle_is_found_in_a_fixture() {
    let module = |path: &str, text: &str| (path.split("::").map(str::to_owned).collect::<Module>(), text.to_owned());
    let fixture = BTreeMap::from([
        module("a", "pub mod own;\npub use own::Own;\nuse crate::{b::B, d};\n"),
        module("a::own", "use super::A;\n"),
        module("b", "fn f() { crate::c::g() }\n"),
        module("c", "pub(crate) use super::a::{A, Other};\n"),
        module("d", "//! use crate::a;\n#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}\n"),
    ]);
    assert_eq!(cycles(&fixture), ["a -> b", "b -> c", "c -> a"]);
}
