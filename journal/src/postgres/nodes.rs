//! Nodes of a database: their leases, the shards that they share, and the shards of sessions.
//!
//! A lease is a row that its node renews, timed by the server's clock. It decides which node may claim a shard. The consistency of a
//! shard's log does not depend on clocks, but on the epoch of its claim.

use std::sync::Arc;
use std::time::Duration;

use subtend_session::ids::SessionId;
use tokio::sync::Mutex;
use tokio::time::timeout;
use tokio_postgres::Row;

use super::failure::{ServerFailure, describe};
use super::link::{Link, Param, ServerConnection};
pub use super::node_lease::NodeLease;
use super::owner::{LOCK, end_lock, lock_holders};
use super::schema;
use super::server_text::server_text;
use super::settings::{ServerSettings, settings};
use super::target::ShardAddress;
use crate::error::OpenError;
use crate::rows;
use crate::tables::FORMAT;

const JOIN: &str = "\
    INSERT INTO subtend.node (name, lease, address, version, labels, expires) \
    VALUES ($1, gen_random_uuid(), $2, $3, $4, clock_timestamp() + $5::bigint * interval '1 ms') \
    ON CONFLICT (name) DO UPDATE SET lease = excluded.lease, address = excluded.address, version = excluded.version, \
        labels = excluded.labels, joined = now(), expires = excluded.expires WHERE node.expires <= clock_timestamp() \
    RETURNING lease::text";
const RENEW: &str = "\
    UPDATE subtend.node SET expires = clock_timestamp() + $2::bigint * interval '1 ms' \
    WHERE lease = $1::text::uuid AND expires > clock_timestamp()";
const LEAVE: &str = "DELETE FROM subtend.node WHERE lease = $1::text::uuid";
/// Removes rows of nodes that ended long ago.
const FORGET: &str = "DELETE FROM subtend.node WHERE expires < now() - interval '1 hour'";
const SHARE: &str = "\
    INSERT INTO subtend.shard (name, format, shared, label) \
    SELECT coalesce($3 || '-', '') || 'shard-' || n, $2, true, $3 FROM generate_series(1, $1::int) AS n \
    WHERE NOT EXISTS (SELECT FROM subtend.shard WHERE shared AND label IS NOT DISTINCT FROM $3::text) ON CONFLICT (name) DO NOTHING";
const NODES: &str = "\
    SELECT name, lease::text, address, version, labels, expires > clock_timestamp(), \
    (extract(epoch FROM expires - clock_timestamp()) * 1000)::bigint FROM subtend.node ORDER BY name";
const SHARDS: &str = "SELECT id, name, lease::text, last_lsn, label FROM subtend.shard WHERE shared ORDER BY id";
const VERSION: &str =
    "SELECT coalesce(max(version), 0), (extract(epoch FROM clock_timestamp()) * 1000)::bigint FROM subtend.migration";
/// Ends a claim: the next epoch fences its later writes, and without an owner it cannot be reclaimed.
const GIVE_UP: &str = "\
    UPDATE subtend.shard SET lease = NULL, owner = NULL, epoch = epoch + 1 WHERE name = $1 AND lease = $2::text::uuid RETURNING id";
const END_LOCK: &str = end_lock!();
const SECRET: &str = "SELECT value FROM subtend.secret";
const LOCATE: &str = "SELECT shard.name FROM subtend.head JOIN subtend.shard ON shard.id = head.shard WHERE head.key = $1 AND shard.shared ORDER BY shard.id";
/// Each use of a key changes `made`, so that a choice that another command relies on is not removed.
const PLACE: &str = "\
    INSERT INTO subtend.placement AS held (key, shard, made) SELECT $1, id, clock_timestamp() FROM subtend.shard WHERE name = $2 \
    ON CONFLICT (key) DO UPDATE SET made = greatest(clock_timestamp(), held.made + interval '1 microsecond') \
    RETURNING (SELECT name FROM subtend.shard WHERE id = held.shard), held.xmax = 0, held.made::text";
const UNPLACE: &str = "DELETE FROM subtend.placement WHERE key = $1 AND made = $2::text::timestamptz";
const READ_SETTINGS: &str = concat!("SELECT ", settings!());

/// Time limit for an answer about nodes. A slower renewal counts as lost.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRow {
    pub name: String,
    /// The lease of its last start.
    pub lease: NodeLease,
    /// The address for requests of other nodes.
    pub address: String,
    /// Version of its binary.
    pub version: String,
    /// Labels set by its operator.
    pub labels: Vec<String>,
    /// True if its lease runs, by the server's clock.
    pub alive: bool,
    /// Milliseconds until its lease ends; negative if it ended.
    pub left_ms: i64,
}

/// A shard that nodes share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardRow {
    pub id: i32,
    pub name: String,
    /// The lease under which it is claimed; the lease may have ended.
    pub lease: Option<NodeLease>,
    pub last_lsn: u64,
    /// The label that a node must have to claim it.
    pub label: Option<String>,
}

/// Nodes and shards at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// All nodes by name, also those whose lease ended.
    pub nodes: Vec<NodeRow>,
    pub shards: Vec<ShardRow>,
    /// Unix time in ms, by the server's clock.
    pub time_ms: u64,
}

impl Members {
    /// Returns the node that owns a shard, if its lease runs.
    pub fn owner(&self, shard: &str) -> Option<&NodeRow> {
        let lease = self.shards.iter().find(|row| row.name == shard)?.lease.as_ref()?;
        self.nodes.iter().find(|node| node.alive && node.lease == *lease)
    }

    /// Returns the members `ms` milliseconds after they were read. A lease whose time is over by then counts as ended.
    #[must_use]
    pub fn after(&self, ms: u64) -> Self {
        let mut later = self.clone();
        for node in &mut later.nodes {
            node.left_ms = node.left_ms.saturating_sub(i64::try_from(ms).unwrap_or(i64::MAX));
            node.alive &= node.left_ms > 0;
        }
        later
    }
}

/// The shard that was chosen for an idempotency key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    pub shard: String,
    /// True if this use of the key made the choice.
    pub is_new: bool,
    /// Time of this use by the server's clock, which no other use of the key has.
    made: String,
}

#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The server did not answer, so it is unknown whether the operation took effect.
    #[error("the database did not answer about its nodes: {0}")]
    Unreachable(String),
    #[error(
        "a node named `{name}` is alive at {address}, and its lease ends in {left_ms} ms unless it is renewed. Stop it, or choose another name"
    )]
    NameTaken {
        name: String,
        address: String,
        /// Milliseconds until its lease ends.
        left_ms: i64,
    },
    /// The lease has ended, so its shards may belong to others.
    #[error("the lease of this node has ended")]
    Ended,
    /// The database does not support nodes of this build, or its schema was dropped or replaced by another role.
    #[error(transparent)]
    Store(#[from] OpenError),
}

/// Reads and changes the nodes of a database. Each statement of an operation takes at most 3 s. Dropping an
/// operation leaves its outcome unknown. Each operation checks the schema if it has to connect again, and may return
/// [`NodeError::Store`].
pub struct Registry {
    link: Arc<Link>,
    connection: Mutex<Option<ServerConnection>>,
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registry").field("target", &self.link.target).finish_non_exhaustive()
    }
}

impl Registry {
    /// Connects to the database, and migrates its schema. Must be called within tokio, which drives the connection.
    /// # Errors
    /// [`NodeError::Store`] for a database that cannot be reached, a newer schema and a weak setting that was not accepted.
    pub async fn connect(target: &ShardAddress) -> Result<Self, NodeError> {
        let link = Arc::new(Link::to(target)?);
        let prepared = async {
            let mut connection = link.connect_and_migrate().await?;
            let rows = link.within_reply_time(connection.query(READ_SETTINGS, &[])).await?;
            let row = rows.first().ok_or_else(|| ServerFailure::Lost("the server gave no settings".to_owned()))?;
            ServerSettings::of(row, 0)?.check_accepted(&link.target.accepted)?;
            Ok(connection)
        };
        let connection = prepared.await.map_err(|failure: ServerFailure| failure.open(target))?;
        Ok(Self { link, connection: Mutex::new(Some(connection)) })
    }

    /// Creates shared shards, which only nodes with `label` may claim if one is given. Does nothing if shared shards with this label exist.
    /// # Errors
    /// [`NodeError::Unreachable`].
    pub async fn create_shared(&self, shards: u16, label: Option<&str>) -> Result<(), NodeError> {
        let format = i64::try_from(FORMAT).unwrap_or(i64::MAX);
        let label: Param = Box::new(label.map(str::to_owned));
        self.query(SHARE, vec![Box::new(i32::from(shards)), Box::new(format), label]).await.map(drop)
    }

    /// Begins the lease of a node.
    /// # Errors
    /// [`NodeError::NameTaken`] while the lease of a node with that name runs, even if it is an earlier process of this node.
    pub async fn join(
        &self,
        name: &str,
        address: &str,
        version: &str,
        labels: &[String],
        lease: Duration,
    ) -> Result<NodeLease, NodeError> {
        self.query(FORGET, Vec::new()).await?;
        let mut params: Vec<Param> = [name, address, version].map(|part| Box::new(part.to_owned()) as Param).into();
        params.extend([Box::new(labels.to_vec()) as Param, ms(lease)]);
        let joined = self.query(JOIN, params).await?;
        match joined.first() {
            Some(row) => Ok(NodeLease::with_id(read::<String>(row, 0)?)),
            None => {
                let taken = self.members().await?.nodes.into_iter().find(|node| node.name == name);
                let taken = taken.ok_or_else(|| NodeError::Unreachable("the node changed meanwhile".to_owned()))?;
                // The lease may have ended since the attempt.
                let left_ms = taken.left_ms.max(0);
                Err(NodeError::NameTaken { name: taken.name, address: server_text(&taken.address), left_ms })
            }
        }
    }

    /// Renews a lease.
    /// # Errors
    /// [`NodeError::Ended`] if it has ended, which is final. [`NodeError::Unreachable`] if that is unknown.
    pub async fn renew(&self, lease: &NodeLease, by: Duration) -> Result<(), NodeError> {
        let renewed = self.execute(RENEW, vec![Box::new(lease.id().to_owned()), ms(by)]).await?;
        if renewed == 1 { Ok(()) } else { Err(NodeError::Ended) }
    }

    /// Ends a lease, which frees its shards.
    /// # Errors
    /// [`NodeError::Unreachable`]. The lease then expires by itself.
    pub async fn leave(&self, lease: &NodeLease) -> Result<(), NodeError> {
        self.execute(LEAVE, vec![Box::new(lease.id().to_owned())]).await.map(drop)
    }

    /// Gives up this process's claim of a shard, so that others can claim it.
    /// # Errors
    /// [`NodeError::Unreachable`]. The shard becomes free when the lease ends.
    pub async fn give_up(&self, shard: &str, lease: &NodeLease) -> Result<(), NodeError> {
        let params: Vec<Param> = vec![Box::new(shard.to_owned()), Box::new(lease.id().to_owned())];
        let given = self.query(GIVE_UP, params).await?;
        if let Some(row) = given.first() {
            let id: i32 = read(row, 0)?;
            self.query(END_LOCK, vec![Box::new(i64::from(id)), Box::new(i64::from(LOCK))]).await?;
        }
        Ok(())
    }

    /// Reads nodes and shards.
    /// # Errors
    /// [`NodeError::Unreachable`], and [`NodeError::Store`] for a schema that became newer than this build knows.
    pub async fn members(&self) -> Result<Members, NodeError> {
        let versions = self.query(VERSION, Vec::new()).await?;
        let one = |row: &Row| Ok::<(i32, i64), NodeError>((read(row, 0)?, read(row, 1)?));
        let (found, time_ms) = versions.first().map_or(Ok((0, 0)), one)?;
        let (found, time_ms) = (u64::try_from(found).unwrap_or(0), u64::try_from(time_ms).unwrap_or(0));
        if found > schema::LATEST_VERSION {
            return Err(NodeError::Store(OpenError::Newer { found, known: schema::LATEST_VERSION }));
        }
        let (nodes, shards) = (self.query(NODES, Vec::new()).await?, self.query(SHARDS, Vec::new()).await?);
        let node = |row: &Row| {
            Ok(NodeRow {
                name: read(row, 0)?,
                lease: NodeLease::with_id(read::<String>(row, 1)?),
                address: read(row, 2)?,
                version: read(row, 3)?,
                labels: read(row, 4)?,
                alive: read(row, 5)?,
                left_ms: read(row, 6)?,
            })
        };
        let shard = |row: &Row| {
            let last: i64 = read(row, 3)?;
            let lease: Option<String> = read(row, 2)?;
            let last_lsn = u64::try_from(last).unwrap_or(0);
            let (id, name, label) = (read(row, 0)?, read(row, 1)?, read(row, 4)?);
            Ok(ShardRow { id, name, lease: lease.map(NodeLease::with_id), last_lsn, label })
        };
        let nodes = nodes.iter().map(node).collect::<Result<_, NodeError>>()?;
        let shards = shards.iter().map(shard).collect::<Result<_, NodeError>>()?;
        Ok(Members { nodes, shards, time_ms })
    }

    /// Returns the shared shards with a session: several if it was imported into another one, none if the session does not exist.
    /// # Errors
    /// [`NodeError::Unreachable`].
    pub async fn locate(&self, session: SessionId) -> Result<Vec<String>, NodeError> {
        let found = self.query(LOCATE, vec![Box::new(rows::session_key(session).to_vec())]).await?;
        found.iter().map(|row| read(row, 0)).collect()
    }

    /// Chooses `shard` for the command with the hashed idempotency key `key`, unless a node has chosen another shard
    /// before. Returns the choice.
    /// # Errors
    /// [`NodeError::Unreachable`].
    pub async fn place(&self, key: &[u8], shard: &str) -> Result<Placement, NodeError> {
        let placed = self.query(PLACE, vec![Box::new(key.to_vec()), Box::new(shard.to_owned())]).await?;
        let row = placed.first().ok_or_else(|| NodeError::Unreachable(format!("it has no shard {shard}")))?;
        Ok(Placement { shard: read(row, 0)?, is_new: read(row, 1)?, made: read(row, 2)? })
    }

    /// Removes a choice after its command had no effect, unless another command used the key meanwhile.
    /// # Errors
    /// [`NodeError::Unreachable`].
    pub async fn remove_placement(&self, key: &[u8], placement: &Placement) -> Result<(), NodeError> {
        self.execute(UNPLACE, vec![Box::new(key.to_vec()), Box::new(placement.made.clone())]).await.map(drop)
    }

    /// Reads the secret with which nodes of this database sign requests to each other.
    /// # Errors
    /// [`NodeError::Unreachable`].
    pub async fn secret(&self) -> Result<Vec<u8>, NodeError> {
        let rows = self.query(SECRET, Vec::new()).await?;
        rows.first().map_or_else(|| Err(NodeError::Unreachable("it has no secret".to_owned())), |row| read(row, 0))
    }

    async fn execute(&self, sql: &'static str, params: Vec<Param>) -> Result<u64, NodeError> {
        let run = async |mut connection: ServerConnection| {
            let count = connection.execute(sql, &params).await?;
            Ok((connection, count))
        };
        self.with_connection(run).await
    }

    async fn query(&self, sql: &'static str, params: Vec<Param>) -> Result<Vec<Row>, NodeError> {
        let run = async |mut connection: ServerConnection| {
            let rows = connection.query(sql, &params).await?;
            Ok((connection, rows))
        };
        self.with_connection(run).await
    }

    /// Runs one statement. A failed connection is dropped, so that the next statement uses another one.
    async fn with_connection<T>(
        &self,
        run: impl AsyncFnOnce(ServerConnection) -> Result<(ServerConnection, T), tokio_postgres::Error>,
    ) -> Result<T, NodeError> {
        let ran = async {
            // If the caller is dropped, the connection is lost, and the next call connects again.
            let mut kept = self.connection.lock().await;
            let connection = match kept.take().filter(|connection| !connection.client.is_closed()) {
                Some(connection) => connection,
                None => self.link.connect_to_schema().await?,
            };
            let (connection, value) = run(connection).await?;
            *kept = Some(connection);
            Ok::<_, ServerFailure>(value)
        };
        match timeout(ANSWER_TIMEOUT, ran).await {
            Ok(Ok(value)) => Ok(value),
            // A schema that may not be used or was dropped is not a failure of the connection, and does not pass.
            Ok(Err(failure @ (ServerFailure::Missing | ServerFailure::Newer { .. } | ServerFailure::Engine(_)))) => {
                Err(NodeError::Store(failure.open(&self.link.target)))
            }
            Ok(Err(failure)) => Err(NodeError::Unreachable(failure.describe())),
            Err(_) => Err(NodeError::Unreachable(format!("no answer within {} s", ANSWER_TIMEOUT.as_secs()))),
        }
    }
}

fn ms(time: Duration) -> Param {
    Box::new(i64::try_from(time.as_millis()).unwrap_or(i64::MAX))
}

fn read<'a, T: tokio_postgres::types::FromSql<'a>>(row: &'a Row, at: usize) -> Result<T, NodeError> {
    row.try_get(at).map_err(|error| NodeError::Unreachable(describe(&error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, left_ms: i64) -> NodeRow {
        NodeRow {
            name: name.to_owned(),
            lease: NodeLease::with_id(format!("lease of {name}")),
            address: String::new(),
            version: String::new(),
            labels: Vec::new(),
            alive: left_ms > 0,
            left_ms,
        }
    }

    #[test]
    fn d2_owner_of_a_shard_has_a_lease_that_runs() {
        let shard = |(id, owner): (i32, Option<&str>)| ShardRow {
            id,
            name: format!("s{id}"),
            lease: owner.map(|owner| NodeLease::with_id(format!("lease of {owner}"))),
            last_lsn: 0,
            label: None,
        };
        let shards = (1..).zip([Some("a"), Some("b"), Some("gone"), None]).map(shard).collect();
        let members = Members { nodes: vec![node("a", 2_000), node("b", -1)], shards, time_ms: 0 };
        let owners = |members: &Members| {
            ["s1", "s2", "s3", "s4", "s5"].map(|shard| members.owner(shard).map(|node| node.name.clone()))
        };
        assert_eq!(owners(&members), [Some("a".to_owned()), None, None, None, None]);
        assert_eq!(owners(&members.after(1_999)), owners(&members));
        assert_eq!(owners(&members.after(2_000)), [None, None, None, None, None], "the time of every lease is over");
        let left = |ms| members.after(ms).nodes.iter().map(|node| (node.left_ms, node.alive)).collect::<Vec<_>>();
        assert_eq!(left(500), [(1_500, true), (-501, false)]);
        assert_eq!(left(u64::MAX), [(2_000 - i64::MAX, false), (i64::MIN, false)]);
    }
}
