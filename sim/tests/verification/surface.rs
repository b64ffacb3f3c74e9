//! docs/public-api.txt must list the exports of `src/lib.rs`, so that a change of the public surface shows in a diff.
#![expect(clippy::wildcard_enum_match_arm, reason = "syntax has many kinds, and syn adds to them")]

use std::collections::{BTreeMap, BTreeSet};

use quote::ToTokens;
use syn::punctuated::Punctuated;
use syn::{Attribute, Fields, ImplItem, Item, Token, TraitItem, Type, UseTree, Visibility};

use super::source;

const LISTING: &str = "docs/public-api.txt";
const MEMBERS: [&str; 8] = ["actors", "agents", "invariants", "journal", "models", "session", "supervision", "tools"];
/// Features that exist only for tests of the project.
const INTERNAL: [&str; 4] = ["test", "fault-points", "sabotage", "fuzzing"];

/// A module: the name of its member, empty for the facade, and its path.
type Module = (String, Vec<String>);

struct Surface(BTreeMap<Module, Vec<Item>>);

impl Surface {
    /// Parses modules. `files` are their paths, relative to the root of the workspace, with their text.
    fn of(files: impl Iterator<Item = (String, String)>) -> Self {
        let mut surface = Self(BTreeMap::new());
        for (path, text) in files {
            let member = MEMBERS.iter().find(|member| path.starts_with(&format!("{member}/src/"))).copied();
            let below = member.map_or_else(|| "src/".to_owned(), |member| format!("{member}/src/"));
            let Some(path) = path.strip_prefix(&below).and_then(|path| path.strip_suffix(".rs")) else { continue };
            let mut names: Vec<String> = path.split('/').map(str::to_owned).collect();
            if ["tests", "bin", "cli", "main"].iter().any(|name| names.iter().any(|part| part == name)) {
                continue;
            }
            if names.last().is_some_and(|name| name == "lib") {
                names.pop();
            }
            let file = syn::parse_file(&text).unwrap_or_else(|error| panic!("{path}: {error}"));
            surface.add((member.unwrap_or_default().to_owned(), names), file.items);
        }
        surface
    }

    /// Adds a module and its inline modules.
    fn add(&mut self, module: Module, items: Vec<Item>) {
        for item in items {
            if let Item::Mod(syn::ItemMod { ident, attrs, content: Some((_, inside)), vis, .. }) = item {
                if !is_internal(&attrs) {
                    let inner = below(&module, &ident.to_string());
                    let declaration = syn::ItemMod {
                        attrs,
                        vis,
                        unsafety: None,
                        mod_token: Default::default(),
                        ident,
                        content: None,
                        semi: None,
                    };
                    self.0.entry(module.clone()).or_default().push(Item::Mod(declaration));
                    self.add(inner, inside);
                }
            } else {
                self.0.entry(module.clone()).or_default().push(item);
            }
        }
        self.0.entry(module).or_default();
    }

    /// Returns the module that defines `name` of `module`, and its name there. `None` for an item of another project.
    fn resolve(&self, module: &Module, name: &str, seen: &mut BTreeSet<(Module, String)>) -> Option<(Module, String)> {
        if !seen.insert((module.clone(), name.to_owned())) {
            return None;
        }
        let items = self.0.get(module)?;
        if items.iter().any(|item| named(item).is_some_and(|own| own == name))
            || self.0.contains_key(&below(module, name))
        {
            return Some((module.clone(), name.to_owned()));
        }
        let uses = items.iter().filter_map(|item| if let Item::Use(used) = item { Some(&used.tree) } else { None });
        for (path, binding) in uses.flat_map(|tree| bindings(Vec::new(), tree)) {
            let path = match &*binding {
                "*" => [path, vec![name.to_owned()]].concat(),
                bound if bound == name => path,
                _ => continue,
            };
            if let Some(found) = self.follow(module, &path, seen) {
                return Some(found);
            }
        }
        None
    }

    /// Resolves a path that is written in `module`.
    fn follow(
        &self,
        module: &Module,
        path: &[String],
        seen: &mut BTreeSet<(Module, String)>,
    ) -> Option<(Module, String)> {
        let (first, rest) = path.split_first()?;
        let member = first.strip_prefix("subtend_").filter(|member| MEMBERS.contains(member));
        let mut at: Module = match &**first {
            "crate" => (module.0.clone(), Vec::new()),
            "self" => module.clone(),
            "super" => (module.0.clone(), module.1.split_last().map(|(_, above)| above.to_vec()).unwrap_or_default()),
            _ => match member {
                Some(member) => (member.to_owned(), Vec::new()),
                None if rest.is_empty() => return self.resolve(module, first, seen),
                None => self.module(module, first, seen)?,
            },
        };
        let Some((last, middle)) = rest.split_last() else { return Some((at, String::new())) };
        for name in middle {
            at = match &**name {
                "super" => (at.0.clone(), at.1.split_last().map(|(_, above)| above.to_vec()).unwrap_or_default()),
                name => self.module(&at, name, seen)?,
            };
        }
        self.resolve(&at, last, seen)
    }

    fn module(&self, module: &Module, name: &str, seen: &mut BTreeSet<(Module, String)>) -> Option<Module> {
        let (at, name) = self.resolve(module, name, seen)?;
        Some(below(&at, &name)).filter(|module| self.0.contains_key(module))
    }

    /// Lists the exports of `module` under `path`, each item with its public parts.
    fn list(&self, path: &str, module: &Module, lines: &mut Vec<String>) {
        let items = self.0.get(module).into_iter().flatten();
        let mut exports: BTreeMap<String, (Module, String)> = BTreeMap::new();
        for item in items.filter(|item| is_public(item) && !is_internal(attributes(item))) {
            let Item::Use(used) = item else {
                exports.extend(named(item).map(|name| (name.clone(), (module.clone(), name))));
                continue;
            };
            for (target, binding) in bindings(Vec::new(), &used.tree) {
                assert!(binding != "*", "{path} exports everything of {target:?}");
                let found = self.follow(module, &target, &mut BTreeSet::new());
                let ours = target.first().is_some_and(|first| first.starts_with("subtend_"));
                let whole = format!("{path}::{binding}");
                match found {
                    Some(found) => _ = exports.insert(binding, found),
                    None if ours => lines.push(format!("{whole} (defined by a macro)")),
                    None => lines.push(format!("{whole} (of another project)")),
                }
            }
        }
        let mut modules = Vec::new();
        for (name, (at, own)) in exports {
            let whole = format!("{path}::{name}");
            if self.0.contains_key(&below(&at, &own)) && self.item(&at, &own).is_none() {
                modules.push((whole, below(&at, &own)));
            } else {
                self.describe(&whole, &at, &own, lines);
            }
        }
        for (path, module) in modules {
            lines.push(format!("\nmod {path}"));
            self.list(&path, &module, lines);
        }
    }

    /// Returns the definition of `name` in `module`, unless it is a module.
    fn item(&self, module: &Module, name: &str) -> Option<&Item> {
        let mut items = self.0.get(module)?.iter().filter(|item| !matches!(item, Item::Mod(_)));
        items.find(|item| named(item).is_some_and(|own| own == name))
    }

    fn describe(&self, path: &str, at: &Module, name: &str, lines: &mut Vec<String>) {
        let Some(item) = self.item(at, name) else { panic!("{path}: {at:?} has no item `{name}`") };
        let derived = derives(attributes(item));
        match item {
            Item::Struct(item) => {
                lines.push(format!("struct {path}{}{derived}", text(&item.generics)));
                lines.extend(fields(&item.fields, true).map(|field| format!("    {field}")));
            }
            Item::Enum(item) => {
                lines.push(format!("enum {path}{}{derived}", text(&item.generics)));
                for variant in &item.variants {
                    let fields: Vec<_> = fields(&variant.fields, false).collect();
                    let fields =
                        if fields.is_empty() { String::new() } else { format!(" {{ {} }}", fields.join(", ")) };
                    lines.push(format!("    {}{fields}", variant.ident));
                }
            }
            Item::Trait(item) => {
                let above =
                    if item.supertraits.is_empty() { String::new() } else { format!(": {}", text(&item.supertraits)) };
                lines.push(format!("trait {path}{}{above}", text(&item.generics)));
                lines.extend(item.items.iter().filter_map(|item| match item {
                    TraitItem::Fn(item) if item.default.is_some() => {
                        Some(format!("    {} (provided)", text(&item.sig)))
                    }
                    TraitItem::Fn(item) => Some(format!("    {}", text(&item.sig))),
                    TraitItem::Type(item) => Some(format!("    type {}", item.ident)),
                    TraitItem::Const(item) => Some(format!("    const {}: {}", item.ident, text(&item.ty))),
                    _ => None,
                }));
            }
            Item::Fn(item) => lines.push(format!("{path}: {}", text(&item.sig))),
            Item::Const(item) => lines.push(format!("const {path}: {}", text(&item.ty))),
            Item::Type(item) => lines.push(format!("type {path}{} = {}", text(&item.generics), text(&item.ty))),
            other => panic!("{path}: the listing does not support this item: {}", text(other)),
        }
        lines.extend(self.impls(at, name).into_iter().map(|line| format!("    {line}")));
    }

    /// Returns the public functions and constants of a type, and its traits that are not derived, sorted.
    fn impls(&self, at: &Module, name: &str) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        for (module, items) in self.0.iter().filter(|(module, _)| module.0 == at.0) {
            for item in items {
                let Item::Impl(item) = item else { continue };
                let Type::Path(of) = &*item.self_ty else { continue };
                let written: Vec<String> = of.path.segments.iter().map(|segment| segment.ident.to_string()).collect();
                let is_its = written.last().is_some_and(|last| last == name)
                    && self.follow(module, &written, &mut BTreeSet::new()) == Some((at.clone(), name.to_owned()));
                if !is_its || is_internal(&item.attrs) {
                    continue;
                }
                if let Some((of, _)) = &item.trait_ {
                    found.insert(format!("impl {}", text(of)));
                    continue;
                }
                found.extend(item.items.iter().filter_map(|item| {
                    match item {
                        ImplItem::Fn(item) => {
                            (is_open(&item.vis) && !is_internal(&item.attrs)).then(|| text(&item.sig))
                        }
                        ImplItem::Const(item) => (is_open(&item.vis) && !is_internal(&item.attrs))
                            .then(|| format!("const {}: {}", item.ident, text(&item.ty))),
                        _ => None,
                    }
                }));
            }
        }
        found
    }
}

fn below(module: &Module, name: &str) -> Module {
    (module.0.clone(), [module.1.clone(), vec![name.to_owned()]].concat())
}

/// Returns each path that a `use` tree names, with the name that it binds, which is `*` for a glob import.
fn bindings(mut before: Vec<String>, tree: &UseTree) -> Vec<(Vec<String>, String)> {
    match tree {
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            bindings(before, &path.tree)
        }
        UseTree::Group(group) => group.items.iter().flat_map(|tree| bindings(before.clone(), tree)).collect(),
        UseTree::Name(name) if name.ident == "self" => {
            let bound = before.last().cloned().unwrap_or_default();
            vec![(before, bound)]
        }
        UseTree::Name(name) => vec![([before, vec![name.ident.to_string()]].concat(), name.ident.to_string())],
        UseTree::Rename(name) => vec![([before, vec![name.ident.to_string()]].concat(), name.rename.to_string())],
        UseTree::Glob(_) => vec![(before, "*".to_owned())],
    }
}

fn named(item: &Item) -> Option<String> {
    let ident = match item {
        Item::Struct(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Const(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Mod(item) => &item.ident,
        _ => return None,
    };
    Some(ident.to_string())
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Struct(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Const(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn is_public(item: &Item) -> bool {
    match item {
        Item::Struct(item) => is_open(&item.vis),
        Item::Enum(item) => is_open(&item.vis),
        Item::Trait(item) => is_open(&item.vis),
        Item::Fn(item) => is_open(&item.vis),
        Item::Const(item) => is_open(&item.vis),
        Item::Type(item) => is_open(&item.vis),
        Item::Mod(item) => is_open(&item.vis),
        Item::Use(item) => is_open(&item.vis),
        _ => false,
    }
}

fn is_open(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

/// Returns whether the item is only for tests of the project, or hidden from the documentation.
fn is_internal(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let wording = text(attribute);
        let only_for =
            |name: &str| wording == format!("#[cfg({name})]") || wording.contains(&format!("feature = \"{name}\""));
        wording.contains("doc(hidden)")
            || wording == "#[cfg(doctest)]"
            || (wording.starts_with("#[cfg(") && !wording.contains("not(") && INTERNAL.into_iter().any(only_for))
    })
}

/// Returns the derived traits, and whether the type is non-exhaustive.
fn derives(attributes: &[Attribute]) -> String {
    let mut words = Vec::new();
    for attribute in attributes {
        if attribute.path().is_ident("derive")
            && let Ok(derived) = attribute.parse_args_with(Punctuated::<syn::Path, Token![,]>::parse_terminated)
        {
            words.extend(derived.iter().map(text));
        } else if attribute.path().is_ident("non_exhaustive") {
            words.push("non_exhaustive".to_owned());
        }
    }
    words.sort();
    if words.is_empty() { String::new() } else { format!(" [{}]", words.join(", ")) }
}

/// Returns the fields that an embedder can access. All fields of a variant are public.
fn fields(fields: &Fields, marked: bool) -> impl Iterator<Item = String> {
    let seen = fields.iter().enumerate().filter(move |(_, field)| !marked || is_open(&field.vis));
    seen.map(|(at, field)| {
        let name = field.ident.as_ref().map_or_else(|| at.to_string(), ToString::to_string);
        format!("{name}: {}", text(&field.ty))
    })
}

/// Returns the source of a piece of syntax on one line.
fn text(tokens: &impl ToTokens) -> String {
    let mut out = tokens.to_token_stream().to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    for (from, to) in [
        (" :: ", "::"),
        (":: ", "::"),
        (" ::", "::"),
        (" ,", ","),
        (" ;", ";"),
        (" : ", ": "),
        ("( ", "("),
        (" )", ")"),
        (" (", "("),
        ("[ ", "["),
        (" ]", "]"),
        ("& ", "&"),
        (" <", "<"),
        ("< ", "<"),
        ("-> ", "\u{1}"),
        (" >", ">"),
        ("\u{1}", "-> "),
        ("# [", "#["),
        (",>", ">"),
        (",)", ")"),
        ("->(", "-> ("),
        ("+(", "+ ("),
        ("(mut self", "(self"),
    ] {
        out = out.replace(from, to);
    }
    out
}

fn listed() -> String {
    let mut lines = vec![
        "What `use subtend::…` gives: names, kinds, fields, signatures and traits, without those of tests.".to_owned(),
        "After a change: SUBTEND_WRITE=1 cargo test -p subtend-sim --test sim verification::surface".to_owned(),
        "\nmod subtend".to_owned(),
    ];
    Surface::of(source::files().into_iter()).list("subtend", &(String::new(), Vec::new()), &mut lines);
    lines.join("\n") + "\n"
}

#[test]
fn c2_public_surface_matches_the_listing() {
    let now = listed();
    if std::env::var_os("SUBTEND_WRITE").is_some() {
        std::fs::write(std::path::Path::new(source::ROOT).join(LISTING), &now).expect("the listing is written");
    }
    let before = source::read(LISTING);
    let (gone, added): (BTreeSet<&str>, BTreeSet<&str>) = (before.lines().collect(), now.lines().collect());
    let changed: Vec<_> = gone.symmetric_difference(&added).take(20).collect();
    assert!(
        now == before,
        "the public surface differs from {LISTING}; rewrite it as its second line says: {changed:#?}"
    );
}

/// The fixture has fields, methods, traits and re-exports, and also private and internal items.
#[test]
fn c2_listing_has_exactly_the_public_items() {
    let facade = "pub use subtend_tools::{Kept, other as aside}; mod hidden { pub struct Hidden; } pub mod inner { pub use subtend_tools::deep::Low; }";
    let lib = "mod kept; pub mod deep; pub use kept::Kept; pub fn other(at: &str) -> Result<(), Vec<u8>> { Ok(()) }";
    let kept = "#[derive(Debug, Clone)] #[non_exhaustive] pub struct Kept { pub a: u8, b: u8 } impl Kept { pub fn new() -> Self { todo!() } \
                fn private(&self) {} #[cfg(test)] pub fn of_tests() {} } impl Drop for Kept { fn drop(&mut self) {} }";
    let deep = "pub enum Low { One, Two(u8), Three { x: u8 } } impl crate::kept::Kept { pub async fn far(&self, n: Option<u8>) {} }";
    let files =
        [("src/lib.rs", facade), ("tools/src/lib.rs", lib), ("tools/src/kept.rs", kept), ("tools/src/deep.rs", deep)];
    let surface = Surface::of(files.into_iter().map(|(path, text)| (path.to_owned(), text.to_owned())));
    let mut lines = Vec::new();
    surface.list("subtend", &(String::new(), Vec::new()), &mut lines);
    let expected = [
        "struct subtend::Kept [Clone, Debug, non_exhaustive]",
        "    a: u8",
        "    async fn far(&self, n: Option<u8>)",
        "    fn new() -> Self",
        "    impl Drop",
        "subtend::aside: fn other(at: &str) -> Result<(), Vec<u8>>",
        "\nmod subtend::inner",
        "enum subtend::inner::Low",
        "    One",
        "    Two { 0: u8 }",
        "    Three { x: u8 }",
    ];
    assert_eq!(lines, expected);
}
