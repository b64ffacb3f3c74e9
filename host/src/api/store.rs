//! The store, for the command of the user who owns it.

use axum::extract::State;
use axum::{Extension, Json};
use serde::Serialize;
use serde_json::Value;
use subtend_journal::remote::Read;
use utoipa::ToSchema;

use super::Body;
use crate::auth::Sender;
use crate::host::Host;
use crate::problem::Problem;

/// The process that serves.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ServingProcess {
    /// Its number.
    pid: u32,
    /// The version of subtend. A command of another version does not use the store through it.
    version: &'static str,
    /// The directory whose sessions have the options of its command.
    home: Option<String>,
}

/// Says which process serves.
#[utoipa::path(get, path = "/v1/host", tag = "host", operation_id = "get_host", responses((status = 200, body = ServingProcess)))]
pub(super) async fn serving(State(host): State<Host>) -> Json<ServingProcess> {
    let home = host.options().home.clone();
    let version = env!("CARGO_PKG_VERSION");
    Json(ServingProcess { pid: std::process::id(), version, home })
}

/// Reads rows of the store, in the on-disk format of this version. For the Unix socket only.
#[utoipa::path(post, path = "/v1/store/reads", tag = "host", operation_id = "read_store", request_body = Object,
    responses((status = 200, body = Object), (status = 403, body = Problem)))]
pub(super) async fn read(
    State(host): State<Host>,
    sender: Option<Extension<Sender>>,
    Body(read): Body<Read>,
) -> Result<Json<Value>, Problem> {
    if sender.is_some() {
        return Err(Problem::forbidden(
            "rows of the store are read through the Unix socket only: use the other resources",
        ));
    }
    let journal = host.runtime().journal().clone();
    // A scan of a large store takes a while, and blocks.
    let answer = tokio::task::spawn_blocking(move || journal.read(&read)).await;
    Ok(Json(answer.map_err(|error| Problem::internal("internal", error.to_string()))??))
}
