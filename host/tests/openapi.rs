//! The OpenAPI document that is checked in is the one that is served.

/// After a change: `SUBTEND_WRITE=1 cargo test -p subtend-host openapi`.
#[test]
fn served_document_equals_the_checked_in_one() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/openapi.json");
    let document = subtend_host::api::document().expect("JSON");
    if std::env::var_os("SUBTEND_WRITE").is_some() {
        std::fs::write(path, &document).expect("written");
    }
    let hash = &blake3::hash(document.as_bytes()).to_hex()[..16];
    if std::env::var_os("SUBTEND_WRITE").is_some() {
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/assets/api.hash"), hash).expect("written");
        return;
    }
    assert_eq!(subtend_host::api::FINGERPRINT, hash, "host/assets/api.hash is old: see above");
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

/// The standard requires descriptions, and client generators refuse a document without them.
#[test]
fn every_response_has_a_description() {
    let document = subtend_host::api::document().expect("JSON");
    let document: serde_json::Value = serde_json::from_str(&document).expect("JSON");
    let operations = document["paths"].as_object().expect("paths").values().flat_map(|path| path.as_object().unwrap());
    for (method, operation) in operations {
        for (status, response) in operation["responses"].as_object().expect("responses") {
            let id = &operation["operationId"];
            assert!(response["description"].as_str().is_some_and(|text| !text.is_empty()), "{method} {id} {status}");
        }
    }
}

/// Of two schemas with one name the document keeps one, and clients get the wrong fields.
#[test]
fn names_of_schemas_are_unique() {
    let files = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src/api")).expect("a directory");
    let mut names = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(file.expect("a file").path()).expect("text");
        for derived in text.split("ToSchema)]\n").skip(1) {
            let item =
                derived.lines().find(|line| line.contains("struct ") || line.contains("enum ")).expect("an item");
            let name = item.split(["struct ", "enum "].into_iter().find(|word| item.contains(word)).unwrap()).nth(1);
            names.push(name.expect("a name").split([' ', '(', '<', ';']).next().expect("a word").to_owned());
        }
    }
    assert!(names.len() > 20, "{names:?}");
    let all = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), all, "{names:?}");
}

/// A generated client has no other way to send the first input with the opening.
#[test]
fn opening_has_the_first_input_in_its_schema() {
    let document = subtend_host::api::document().expect("JSON");
    let document: serde_json::Value = serde_json::from_str(&document).expect("JSON");
    let input = &document["components"]["schemas"]["NewSession"]["properties"]["input"];
    assert!(input.to_string().contains("#/components/schemas/NewInput"), "{input}");
}
