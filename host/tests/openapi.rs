//! Checks the OpenAPI document in the repository.

use std::collections::BTreeSet;

/// After a change, run `SUBTEND_WRITE=1 cargo test -p subtend-host openapi`.
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
            let response = match response["$ref"].as_str() {
                Some(shared) => document.pointer(&shared[1..]).unwrap_or_else(|| panic!("{shared} is missing")),
                None => response,
            };
            assert!(response["description"].as_str().is_some_and(|text| !text.is_empty()), "{method} {id} {status}");
        }
    }
}

/// Of two schemas with the same name, the document contains only one, so clients would get the wrong fields.
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

/// Otherwise a generated client could not send the first input when it opens a session.
#[test]
fn opening_has_the_first_input_in_its_schema() {
    let document = subtend_host::api::document().expect("JSON");
    let document: serde_json::Value = serde_json::from_str(&document).expect("JSON");
    let input = &document["components"]["schemas"]["NewSession"]["properties"]["input"];
    assert!(input.to_string().contains("#/components/schemas/NewInput"), "{input}");
}

/// Collects the codes of the problems that the sources below `dir` create, without their tests.
fn codes_made_in(dir: &std::path::Path, codes: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            codes_made_in(&path, codes);
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("text");
        let text = text.split("#[cfg(test)]").next().expect("text");
        for call in ["Problem::new(", "Self::new(", "::invalid(", "::conflict(", "::unavailable(", "::internal("] {
            for argument in text.split(call).skip(1) {
                // The code is the first string argument; only the status may precede it.
                let Some((status, rest)) = argument.split_once('"') else { continue };
                let is_status = ["", "status,"].contains(&status.trim()) || status.trim().starts_with("StatusCode::");
                let code = rest.split('"').next().filter(|_| is_status).unwrap_or_default();
                if !code.is_empty() && code.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_') {
                    codes.insert(code.to_owned());
                }
            }
        }
    }
}

/// Clients depend on these codes, so the document must list each of them.
#[test]
fn document_names_the_code_of_every_problem() {
    let document: serde_json::Value =
        serde_json::from_str(&subtend_host::api::document().expect("JSON")).expect("JSON");
    let responses = document["components"]["responses"].as_object().expect("responses");
    let descriptions = responses.values().map(|response| response["description"].as_str().expect("a description"));
    let named: BTreeSet<String> =
        descriptions.flat_map(|text| text.split('`').skip(1).step_by(2).map(str::to_owned)).collect();
    let mut made = BTreeSet::from(["malformed".to_owned(), "scope_too_small".to_owned()]);
    for member in ["src", "../nodes/src"] {
        codes_made_in(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(member), &mut made);
    }
    assert!(made.len() > 40, "{made:?}");
    assert_eq!(named, made, "host/src/api/refusals.rs must list the problems that the sources create");
    let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/host.md");
    let guide = std::fs::read_to_string(guide).expect("docs/host.md");
    let missing: Vec<_> = made.iter().filter(|code| !guide.contains(&format!("`{code}`"))).collect();
    assert_eq!(missing, [""; 0], "docs/host.md must name these codes");
}

#[test]
fn each_operation_lists_its_refusals() {
    let document: serde_json::Value =
        serde_json::from_str(&subtend_host::api::document().expect("JSON")).expect("JSON");
    let statuses = |path: &str, method: &str| {
        let responses = document["paths"][path][method]["responses"].as_object().expect("responses");
        responses.keys().cloned().collect::<Vec<_>>().join(" ")
    };
    let listed = [
        statuses("/healthz", "get"),
        statuses("/v1/agents", "get"),
        statuses("/v1/sessions/{id}/inputs", "post"),
        statuses("/v1/sessions", "post"),
    ];
    let expected = [
        "204 400 403 421 431 default",
        "200 400 401 403 421 429 431 500 503 default",
        "202 400 401 403 404 409 410 413 415 421 422 429 431 500 503 default",
        "200 201 400 401 403 410 413 415 421 422 429 431 500 503 default",
    ];
    assert_eq!(listed, expected);
    let shared = &document["paths"]["/v1/agents"]["get"]["responses"]["401"]["$ref"];
    assert_eq!(shared, "#/components/responses/Unauthorized");
    let content = &document["components"]["responses"]["Unauthorized"]["content"]["application/problem+json"];
    assert_eq!(content["schema"]["$ref"], "#/components/schemas/Problem");
}
