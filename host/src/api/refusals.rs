//! Describes refusals in the OpenAPI document: one shared response per status, with the codes of its problems.

use axum::http::StatusCode;
use utoipa::openapi::path::Operation;
use utoipa::openapi::{Components, ContentBuilder, OpenApi, Ref, RefOr, Response, ResponseBuilder};

const MEDIA: &str = "application/problem+json";
/// Name of the shared response for all statuses that an operation does not list.
const OTHER: &str = "OtherProblem";

/// The response of a status, which operations refer to by `name`.
struct SharedResponse {
    status: StatusCode,
    name: &'static str,
    codes: &'static str,
}

const fn shared_response(status: StatusCode, name: &'static str, codes: &'static str) -> SharedResponse {
    SharedResponse { status, name, codes }
}

/// All problems, by status.
const SHARED: [SharedResponse; 16] = [
    shared_response(StatusCode::BAD_REQUEST, "Malformed", "malformed"),
    shared_response(StatusCode::UNAUTHORIZED, "Unauthorized", "unauthorized login_refused"),
    shared_response(StatusCode::FORBIDDEN, "Forbidden", "scope_too_small cross_origin"),
    shared_response(
        StatusCode::NOT_FOUND,
        "NotFound",
        "session_not_found run_not_found input_not_found record_not_found task_not_found agent_not_found \
         approval_not_found not_found no_such_resource",
    ),
    shared_response(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", "method_not_allowed"),
    shared_response(
        StatusCode::CONFLICT,
        "Conflict",
        "refused session_working ambiguous_session run_ended input_removed import_conflict approval_closed \
         approval_changed lease_lost call_not_begun completed_otherwise",
    ),
    shared_response(StatusCode::GONE, "Gone", "session_deleted"),
    shared_response(StatusCode::PAYLOAD_TOO_LARGE, "TooLarge", "too_large"),
    shared_response(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", "unsupported_media_type"),
    shared_response(StatusCode::MISDIRECTED_REQUEST, "Misdirected", "host_not_allowed"),
    shared_response(
        StatusCode::UNPROCESSABLE_ENTITY,
        "Invalid",
        "idempotency_key_reused invalid_agent invalid_body invalid_digest invalid_export invalid_input invalid_limit \
         invalid_restore invalid_rule invalid_servers invalid_title invalid_worker no_price no_window unknown_agent \
         unknown_command unknown_label unknown_model unknown_remote_tool unknown_shard unknown_status \
         workspace_unusable",
    ),
    shared_response(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", "busy"),
    shared_response(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "HeadTooLarge", "head_too_large"),
    shared_response(StatusCode::INTERNAL_SERVER_ERROR, "Internal", "internal session_damaged"),
    shared_response(StatusCode::BAD_GATEWAY, "UnknownOutcome", "outcome_unknown"),
    shared_response(
        StatusCode::SERVICE_UNAVAILABLE,
        "Unavailable",
        "busy stopping store_failed session_unavailable no_owner",
    ),
];

/// Adds the shared responses to the document, and references to them to each operation that can return them.
pub(super) fn describe(document: &mut OpenApi) {
    for (path, item) in &mut document.paths.paths {
        for operation in [&mut item.get, &mut item.post, &mut item.put, &mut item.patch, &mut item.delete] {
            let Some(operation) = operation else { continue };
            refer(operation, &common(path, operation));
        }
    }
    let components = document.components.get_or_insert_with(Components::new);
    for SharedResponse { status, name, codes } in SHARED {
        let codes: Vec<_> = codes.split_whitespace().map(|code| format!("`{code}`")).collect();
        let reason = status.canonical_reason().unwrap_or("Refused");
        let response = problem(&format!("{reason}: {}", codes.join(", ")));
        components.responses.insert(name.to_owned(), RefOr::T(response));
    }
    let other = problem("Any other refusal, also of a proxy or of a later version");
    components.responses.insert(OTHER.to_owned(), RefOr::T(other));
}

/// Returns the statuses of refusals by extractors and by checks before `operation`.
fn common(path: &str, operation: &Operation) -> Vec<StatusCode> {
    // The checks of requests over TCP return these before a resource is reached.
    let mut common = vec![
        StatusCode::BAD_REQUEST,
        StatusCode::FORBIDDEN,
        StatusCode::MISDIRECTED_REQUEST,
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
    ];
    if matches!(path, "/healthz" | "/readyz") {
        return common;
    }
    common.extend([
        StatusCode::UNAUTHORIZED,
        StatusCode::TOO_MANY_REQUESTS,
        StatusCode::INTERNAL_SERVER_ERROR,
        StatusCode::SERVICE_UNAVAILABLE,
    ]);
    if operation.request_body.is_some() {
        common.extend([
            StatusCode::PAYLOAD_TOO_LARGE,
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            StatusCode::UNPROCESSABLE_ENTITY,
        ]);
    }
    let is_of_session = ["/v1/sessions/{", "/v1/trees/{", "/v1/tasks/get/", "/v1/tasks/cancel/", "/v1/approvals/{"]
        .iter()
        .any(|start| path.starts_with(start));
    if is_of_session {
        // A name may match no session, a deleted one, or several.
        common.extend([StatusCode::NOT_FOUND, StatusCode::GONE, StatusCode::CONFLICT]);
    }
    common
}

/// Makes the refusals of `operation` refer to the shared responses. A refusal with a description of its own keeps it.
fn refer(operation: &mut Operation, common: &[StatusCode]) {
    let responses = &mut operation.responses.responses;
    for SharedResponse { status, name, .. } in SHARED {
        let key = status.as_u16().to_string();
        match responses.get_mut(&key) {
            Some(RefOr::T(own)) if !own.description.is_empty() => own.content = problem("").content,
            Some(_) => _ = responses.insert(key, reference(name)),
            None if common.contains(&status) => _ = responses.insert(key, reference(name)),
            None => {}
        }
    }
    responses.insert("default".to_owned(), reference(OTHER));
}

fn reference(name: &str) -> RefOr<Response> {
    RefOr::Ref(Ref::from_response_name(name))
}

fn problem(description: &str) -> Response {
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
    ResponseBuilder::new().description(description).content(MEDIA, content).build()
}
