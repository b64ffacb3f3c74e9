//! Connections to the server. A separate thread drives them, so that callers can block on any thread, also within another runtime.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::BuilderVerifierExt as _;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, IsolationLevel, NoTls, Row, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::failure::{ServerFailure, describe};
use super::schema;
use super::target::{LOST_PEER_TIMEOUT, ShardAddress};
use crate::error::{EngineError, OpenError, io};

/// Maximum number of connections for reads, in addition to those of scans.
const READERS: usize = 4;
/// Pause between two attempts to connect.
pub(super) const RETRY: Duration = Duration::from_millis(100);
/// Time limit of a migration, which may be slow, and waits for a migration of another process.
const MIGRATION: Duration = Duration::from_secs(600);
/// Time for connections to close.
const CLOSING: Duration = Duration::from_secs(1);

pub(super) type Param = Box<dyn ToSql + Sync + Send>;
pub(super) type KeyValue = (Vec<u8>, Vec<u8>);
/// A row of a scan; without a value if the value is large.
type ScannedRow = (Vec<u8>, Option<Vec<u8>>);

pub(super) struct Driver {
    handle: tokio::runtime::Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Driver {
    pub(super) fn start() -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name("subtend-postgres".into()).spawn(move || {
            // Dropping the sender also stops the thread.
            drop(runtime.block_on(stopped));
            runtime.shutdown_timeout(CLOSING);
        })?;
        Ok(Self { handle, stop: Some(stop), thread: Some(thread) })
    }

    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.handle.spawn(work);
    }

    /// Runs `work` on the thread, and blocks until it has finished.
    pub(super) fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, ServerFailure>> + Send + 'static,
    ) -> Result<T, ServerFailure> {
        let (done, outcome) = mpsc::sync_channel(1);
        // Fails if the caller has ended.
        self.spawn(async move { drop(done.send(work.await)) });
        outcome.recv().map_err(|_| ServerFailure::Lost("the thread of the connections has ended".to_owned()))?
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.stop.take();
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread of the connections panicked");
        }
    }
}

/// A connection with its prepared statements.
pub(super) struct ServerConnection {
    pub(super) client: Client,
    statements: HashMap<&'static str, Statement>,
}

impl ServerConnection {
    pub(super) async fn query(
        &mut self,
        sql: &'static str,
        params: &[Param],
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        let statement = self.prepare_cached(sql).await?;
        self.client.query(&statement, &refs(params)).await
    }

    /// Returns the number of changed rows.
    pub(super) async fn execute(&mut self, sql: &'static str, params: &[Param]) -> Result<u64, tokio_postgres::Error> {
        let statement = self.prepare_cached(sql).await?;
        self.client.execute(&statement, &refs(params)).await
    }

    async fn prepare_cached(&mut self, sql: &'static str) -> Result<Statement, tokio_postgres::Error> {
        if let Some(statement) = self.statements.get(sql) {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare(sql).await?;
        self.statements.insert(sql, statement.clone());
        Ok(statement)
    }
}

fn refs(params: &[Param]) -> Vec<&(dyn ToSql + Sync)> {
    params.iter().map(|param| &**param as &(dyn ToSql + Sync)).collect()
}

/// Connects to one database, and keeps connections for reads.
pub(super) struct Link {
    pub(super) target: ShardAddress,
    tls: Option<MakeRustlsConnect>,
    idle: Mutex<Vec<ServerConnection>>,
    permits: Semaphore,
}

impl Link {
    pub(super) fn to(target: &ShardAddress) -> Result<Self, OpenError> {
        let tls = if target.tls { Some(MakeRustlsConnect::new(tls(target)?)) } else { None };
        Ok(Self { target: target.clone(), tls, idle: Mutex::default(), permits: Semaphore::new(READERS) })
    }

    /// Connects within the reply timeout, because `connect_timeout` does not cover the server's first answer.
    pub(super) async fn connect(&self) -> Result<ServerConnection, ServerFailure> {
        timeout(self.target.reply, self.connect_with_retry()).await.map_err(|_| self.timeout_failure())?
    }

    /// Connects, and checks the schema again: another role may have replaced it since the last connection.
    pub(super) async fn connect_to_schema(&self) -> Result<ServerConnection, ServerFailure> {
        let connection = self.connect().await?;
        self.within_reply_time(schema::check(&connection.client)).await?;
        Ok(connection)
    }

    /// Connects, and brings the schema to the newest version.
    pub(super) async fn connect_and_migrate(&self) -> Result<ServerConnection, ServerFailure> {
        let mut connection = self.connect().await?;
        if self.within_reply_time(schema::version(&connection.client)).await? != schema::LATEST_VERSION {
            let silent = || ServerFailure::Lost(format!("no migration within {} s", MIGRATION.as_secs()));
            timeout(MIGRATION, schema::migrate(&mut connection.client)).await.map_err(|_| silent())??;
        }
        Ok(connection)
    }

    async fn connect_with_retry(&self) -> Result<ServerConnection, ServerFailure> {
        let mut config = self.target.with_password();
        config.application_name("subtend");
        let client = match &self.tls {
            Some(tls) => {
                let (client, connection) = config.connect(tls.clone()).await?;
                tokio::spawn(async move { log_end(connection.await) });
                client
            }
            None => {
                let (client, connection) = config.connect(NoTls).await?;
                tokio::spawn(async move { log_end(connection.await) });
                client
            }
        };
        // Keepalives make the server detect a vanished node, which may hold locks.
        let vanished = LOST_PEER_TIMEOUT.as_millis();
        let seconds = LOST_PEER_TIMEOUT.as_secs() / 4;
        // Without a search path of its own, a function or operator that another role made in `public` could be called.
        let settings = format!(
            "SET search_path = pg_catalog, pg_temp; SET statement_timeout = 0; SET lock_timeout = 0; SET idle_in_transaction_session_timeout = 0; \
             SET tcp_user_timeout = {vanished}; SET tcp_keepalives_idle = {seconds}; SET tcp_keepalives_interval = {seconds}; \
             SET tcp_keepalives_count = 3; SET client_connection_check_interval = {vanished}"
        );
        client.batch_execute(&settings).await?;
        Ok(ServerConnection { client, statements: HashMap::new() })
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<ServerConnection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn take(&self) -> Result<ServerConnection, ServerFailure> {
        let kept = self.idle().pop();
        match kept.filter(|connection| !connection.client.is_closed()) {
            Some(connection) => Ok(connection),
            None => self.connect_to_schema().await,
        }
    }

    fn keep(&self, connection: ServerConnection) {
        let mut idle = self.idle();
        if idle.len() < READERS {
            idle.push(connection);
        }
    }

    /// Reads rows. If the connection is lost, retries on another one.
    pub(super) async fn rows(
        self: Arc<Self>,
        sql: &'static str,
        params: Vec<Param>,
    ) -> Result<Vec<Row>, ServerFailure> {
        let give_up = Instant::now() + self.target.reply;
        // The semaphore is never closed.
        let _permit = self.permits.acquire().await;
        loop {
            let read = async {
                let mut connection = self.take().await?;
                let rows = connection.query(sql, &params).await?;
                self.keep(connection);
                Ok(rows)
            };
            match timeout_at(give_up, read).await {
                Ok(Err(ServerFailure::Lost(_))) if Instant::now() + RETRY < give_up => {
                    self.idle().clear();
                    sleep(RETRY).await;
                }
                Ok(outcome) => return outcome,
                Err(_) => return Err(self.timeout_failure()),
            }
        }
    }

    /// Sends the rows of one snapshot in parts, one for each credit, and an empty part at the end. `sql` leaves out large
    /// values: each is read by `value_sql` and is a part of its own, so that a part needs little memory.
    pub(super) async fn scan(
        self: Arc<Self>,
        (sql, value_sql): (&'static str, &'static str),
        params: Vec<Param>,
        most: i32,
        mut credits: tokio::sync::mpsc::Receiver<()>,
        parts: mpsc::Sender<Result<Vec<KeyValue>, ServerFailure>>,
    ) {
        let scan = async {
            let mut connection = self.within_reply_time(self.take()).await?;
            let snapshot = connection.client.build_transaction().isolation_level(IsolationLevel::RepeatableRead);
            let transaction = self.within_reply_time(snapshot.start()).await?;
            let portal = self.within_reply_time(transaction.bind(sql, &refs(&params))).await?;
            let (mut rows, mut by_key) = (VecDeque::new(), None);
            while credits.recv().await.is_some() {
                if rows.is_empty() {
                    rows = scanned(self.within_reply_time(transaction.query_portal(&portal, most)).await?)?;
                }
                let mut part = small_rows(&mut rows);
                if part.is_empty()
                    && let Some((key, _)) = rows.pop_front()
                {
                    let statement = match by_key.take() {
                        Some(statement) => statement,
                        None => self.within_reply_time(transaction.prepare(value_sql)).await?,
                    };
                    let shard = params.iter().take(1).map(|shard| &**shard as &(dyn ToSql + Sync));
                    let of_row: Vec<_> = shard.chain([&key as &(dyn ToSql + Sync)]).collect();
                    let row = self.within_reply_time(transaction.query_one(&statement, &of_row)).await?;
                    part.push((key, row.try_get(0)?));
                    by_key = Some(statement);
                }
                let end = part.is_empty();
                if parts.send(Ok(part)).is_err() || end {
                    break;
                }
            }
            self.within_reply_time(transaction.rollback()).await?;
            self.keep(connection);
            Ok::<(), ServerFailure>(())
        };
        if let Err(failure) = scan.await {
            // Fails if the reader has ended.
            drop(parts.send(Err(failure)));
        }
    }

    /// Waits for a reply at most for the reply timeout, because the reader of a scan blocks a thread meanwhile.
    pub(super) async fn within_reply_time<T, E>(
        &self,
        reply: impl Future<Output = Result<T, E>>,
    ) -> Result<T, ServerFailure>
    where
        ServerFailure: From<E>,
    {
        Ok(timeout(self.target.reply, reply).await.map_err(|_| self.timeout_failure())??)
    }

    pub(super) fn timeout_failure(&self) -> ServerFailure {
        ServerFailure::Lost(format!("no answer within {} s", self.target.reply.as_secs()))
    }

    pub(super) fn close(&self) {
        self.idle().clear();
    }
}

fn scanned(rows: Vec<Row>) -> Result<VecDeque<ScannedRow>, ServerFailure> {
    rows.into_iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
}

/// Removes and returns the rows before the next one whose value is large.
fn small_rows(rows: &mut VecDeque<ScannedRow>) -> Vec<KeyValue> {
    let small = rows.iter().take_while(|(_, value)| value.is_some()).count();
    rows.drain(..small).filter_map(|(key, value)| Some((key, value?))).collect()
}

fn log_end(connection: Result<(), tokio_postgres::Error>) {
    if let Err(error) = connection {
        tracing::warn!(error = %describe(&error), "a connection to the database was lost");
    }
}

/// Returns a TLS configuration with the `ring` provider for these connections. The process's default provider is not changed.
fn tls(target: &ShardAddress) -> Result<ClientConfig, OpenError> {
    let failed = |why: String| OpenError::Engine(EngineError::Store { what: "prepare TLS", why });
    let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| failed(error.to_string()))?;
    let Some(file) = &target.roots else {
        let verified = builder.with_platform_verifier().map_err(|error| failed(error.to_string()))?;
        return Ok(verified.with_no_client_auth());
    };
    let mut roots = RootCertStore::empty();
    let bytes = std::fs::read(file).map_err(io("read", file))?;
    for certificate in CertificateDer::pem_slice_iter(&bytes) {
        let certificate = certificate.map_err(|error| failed(format!("{}: {error}", file.display())))?;
        roots.add(certificate).map_err(|error| failed(format!("{}: {error}", file.display())))?;
    }
    if roots.is_empty() {
        return Err(failed(format!("{} contains no certificate", file.display())));
    }
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}
