//! Translation of other products' agent files into manifests. It does no I/O, because the catalog reads the files.

use subtend_session::authority::Verdict;

use crate::front::{BadManifest, Parsed, drop_large, with_valid_model};
use crate::manifest::Manifest;
use crate::name;
use crate::product::Product;
use fields::Fields;
use file::ForeignFile;
use rights::Rights;

mod claude;
mod codex;
pub(crate) mod fields;
pub(crate) mod file;
pub(crate) mod lenient;
pub(crate) mod mcp_servers;
mod opencode;
mod opencode_rules;
mod paths;
mod rights;
#[cfg(test)]
mod tests;
mod tools;
mod wildcards;

/// Translates a file. Errors do not name the file; the caller adds its name.
pub(crate) fn parse(file: ForeignFile<'_>) -> Result<Parsed, BadManifest> {
    let parsed = match file.product {
        Product::Claude => claude::parse(file),
        Product::OpenCode => opencode::parse(file),
        Product::Codex => codex::parse(file),
    };
    parsed.and_then(with_valid_model)
}

/// If an unknown key seems to restrict the agent, every action requires approval.
fn finished(
    file: ForeignFile<'_>,
    mut fields: Fields,
    mut rights: Rights,
    mut manifest: Manifest,
) -> Result<Parsed, BadManifest> {
    if fields.finish(file.product) {
        rights.bound_all(Verdict::Ask);
    }
    rights.apply_to(&mut manifest, &mut fields.notes)?;
    drop_large(&mut fields.kept);
    manifest.extra = fields.kept;
    manifest.source = file.source();
    Ok(Parsed { manifest, warnings: fields.notes })
}

/// Returns the name of a file's agent, even if the file cannot be translated.
pub(crate) fn name(file: ForeignFile<'_>) -> String {
    let named = match file.product {
        Product::Codex => toml::from_str(file.text).unwrap_or_default(),
        Product::Claude | Product::OpenCode => lenient::read(file.text).map(|read| read.map).unwrap_or_default(),
    };
    let named = named.get("name").and_then(serde_json::Value::as_str);
    name::slug(named.unwrap_or(file.id))
}
