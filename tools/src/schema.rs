//! Generates the JSON schemas of argument structs for models.

use std::sync::Arc;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, Transform};
use serde_json::Value;

/// Returns the schema of `A` as one plain object, without references, titles and formats. Some providers refuse schemas with these.
pub(crate) fn of<A: JsonSchema>() -> Arc<Value> {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.meta_schema = None;
        settings.inline_subschemas = true;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<A>();
    RecursiveTransform(|schema: &mut schemars::Schema| {
        schema.remove("title");
        schema.remove("format");
    })
    .transform(&mut schema);
    Arc::new(schema.into())
}
