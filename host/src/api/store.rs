//! Access to the store for commands that its owner runs.

use std::io::BufReader;
use std::path::PathBuf;

use axum::Extension;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use subtend_journal::remote::Read;
use subtend_journal::{ImportBounds, Tally};
use subtend_session::authority::Authority;
use subtend_session::limits::Limits;
use subtend_tools::memory_threads::spawn_for;
use utoipa::ToSchema;

use super::{Body, FINGERPRINT, NoKey};
use crate::auth::Sender;
use crate::host::Host;
use crate::imports::{ImportInProgress, open_regular};
use crate::json::Json;
use crate::problem::Problem;

/// The process that serves the API.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ServingProcess {
    /// Process id.
    pid: u32,
    /// Version of subtend. Commands of another version do not use this host.
    version: &'static str,
    /// Hash of the API. Commands with another API do not use this host.
    api: &'static str,
    /// The workspace whose sessions use the command-line options of the host.
    home: Option<String>,
    /// True if it serves until it is stopped; false if it ends with its runs.
    stays: bool,
}

/// Returns the process that serves the API.
#[utoipa::path(get, path = "/v1/host", tag = "host", operation_id = "get_host", responses((status = 200, body = ServingProcess)))]
pub(super) async fn serving(State(host): State<Host>) -> Json<ServingProcess> {
    let (home, stays) = (host.options().home.clone(), host.options().stays);
    let version = env!("CARGO_PKG_VERSION");
    Json(ServingProcess { pid: std::process::id(), version, api: FINGERPRINT, home, stays })
}

/// Reads rows of the store, in the on-disk format of this version. Only over the Unix socket.
#[utoipa::path(post, path = "/v1/store/reads", tag = "host", operation_id = "read_store", request_body = Object,
    responses((status = 200, body = Object), (status = 403, body = Problem)))]
pub(super) async fn read(
    State(host): State<Host>,
    sender: Option<Extension<Sender>>,
    Body(read): Body<Read>,
) -> Result<Json<Value>, Problem> {
    through_the_socket(sender, "rows of the store are read")?;
    let journal = host.runtime().journal().clone();
    // On a blocking thread, because a scan of a large store takes long.
    let answer = spawn_for(0, move || journal.read(&read)).await;
    Ok(Json(answer.map_err(|error| Problem::internal("internal", error.to_string()))??))
}

/// Refuses a request over the network.
fn through_the_socket(sender: Option<Extension<Sender>>, what: &str) -> Result<(), Problem> {
    match sender {
        None => Ok(()),
        Some(_) => Err(Problem::forbidden(format!("{what} through the Unix socket only: use the other resources"))),
    }
}

/// A request to import a file of `subtend export`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ImportRequest {
    /// Absolute path of the file.
    #[schema(value_type = String)]
    file: PathBuf,
    /// Maximum permissions of the sessions, in the on-disk format.
    #[schema(value_type = Object)]
    within: Authority,
    /// Maximum limits of the sessions, in the on-disk format. Default: the limits of the export.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    limits: Option<Limits>,
    /// Maximum MiB of memory for what the import keeps of all lines. Default: 176.
    #[serde(default)]
    max_memory_mib: Option<u32>,
}

/// What was imported.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ImportReply {
    sessions: u64,
    frames: u64,
    records: u64,
    defs: u64,
    /// Number of deleted sessions that the imported ones name.
    deleted: u64,
}

/// Imports all sessions of a file, or none, into the store of the running host. Runs that were in flight in the export
/// end as lost. Only over the Unix socket.
#[utoipa::path(post, path = "/v1/store/imports", tag = "host", operation_id = "import_sessions", request_body = ImportRequest,
    responses((status = 200, body = ImportReply), (status = 403, body = Problem), (status = 422, body = Problem)))]
pub(super) async fn import(
    State(host): State<Host>,
    _: NoKey,
    sender: Option<Extension<Sender>>,
    Body(request): Body<ImportRequest>,
) -> Result<Json<ImportReply>, Problem> {
    through_the_socket(sender, "a file of this machine is imported")?;
    let here = tokio::runtime::Handle::current();
    // Runs as a task of its own, so that the import completes even if the client disconnects.
    let done = tokio::task::spawn_blocking(move || {
        let ImportRequest { file, within: rights, limits, max_memory_mib } = request;
        let memory = max_memory_mib.map_or(ImportBounds::MEMORY, |mib| (mib as usize) << 20);
        let within = ImportBounds { rights, limits, memory };
        let cannot = |error| Problem::invalid("invalid_input", format!("{} cannot be read: {error}", file.display()));
        let Some(opened) = open_regular(&file).map_err(cannot)? else {
            return Err(cannot(std::io::Error::other("it is not a regular file")));
        };
        let mut read = BufReader::with_capacity(1 << 18, opened);
        let listed = host.imports().begin(file);
        Ok(here.block_on(host.runtime().import(&mut read, &within, &mut |at| listed.report(at)))?)
    });
    let Tally { sessions, frames, records, defs, deleted } =
        done.await.map_err(|error| Problem::internal("internal", error.to_string()))??;
    Ok(Json(ImportReply { sessions, frames, records, defs, deleted }))
}

/// Lists the imports in progress. Only over the Unix socket.
#[utoipa::path(get, path = "/v1/store/imports", tag = "host", operation_id = "list_imports",
    responses((status = 200, body = Vec<ImportInProgress>), (status = 403, body = Problem)))]
pub(super) async fn imports(
    State(host): State<Host>,
    sender: Option<Extension<Sender>>,
) -> Result<Json<Vec<ImportInProgress>>, Problem> {
    through_the_socket(sender, "imports are listed")?;
    Ok(Json(host.imports().list()))
}
