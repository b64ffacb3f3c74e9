//! The OpenAPI document that is checked in is the one that is served.

/// After a change: `SUBTEND_WRITE=1 cargo test -p subtend-host openapi`.
#[test]
fn document_is_the_one_that_is_checked_in() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/openapi.json");
    let document = subtend_host::api::document().expect("JSON");
    if std::env::var_os("SUBTEND_WRITE").is_some() {
        std::fs::write(path, &document).expect("written");
    }
    let kept = std::fs::read_to_string(path).expect("docs/openapi.json");
    assert!(kept == document, "docs/openapi.json is old: SUBTEND_WRITE=1 cargo test -p subtend-host openapi");
}

#[test]
fn every_operation_has_an_id_and_a_summary() {
    let document = subtend_host::api::document().expect("JSON");
    let document: serde_json::Value = serde_json::from_str(&document).expect("JSON");
    assert_eq!(document["openapi"], "3.1.0");
    let mut ids = Vec::new();
    for (path, methods) in document["paths"].as_object().expect("paths") {
        for (method, operation) in methods.as_object().expect("methods") {
            let id = operation["operationId"].as_str().unwrap_or_else(|| panic!("{method} {path} has no id"));
            assert!(operation["summary"].is_string() || operation["description"].is_string(), "{method} {path}");
            ids.push(id.to_owned());
        }
    }
    let all = ids.len();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), all, "an id names two operations");
}
