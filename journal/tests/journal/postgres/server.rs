//! A PostgreSQL server for tests, with syncs, in a temporary directory and on a port of the loopback. It ends with its process.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU16, Ordering};

use subtend_journal::StoreSpec;
use subtend_journal::postgres::ShardAddress;

/// Names the address to child processes of tests.
pub(crate) const ADDRESS: &str = "SUBTEND_TEST_POSTGRES";
pub(crate) const PASSWORD: &str = "s3cret%40word";

pub(crate) struct Server {
    dir: PathBuf,
    port: u16,
    /// Stops the server and removes its files when this process ends for any reason.
    watcher: Child,
}

/// Returns the directory of PostgreSQL's programs. Panics with a hint on what to install.
pub(crate) fn programs() -> PathBuf {
    let named = std::env::var_os("SUBTEND_POSTGRES_BIN").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut found: Vec<PathBuf> = named.into_iter().chain(std::env::split_paths(&path)).collect();
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut versions: Vec<PathBuf> = versions.map(|version| version.path().join("bin")).collect();
    versions.sort();
    found.extend(versions.into_iter().rev());
    let found = found
        .into_iter()
        .find(|dir| ["initdb", "pg_ctl", "postgres", "psql"].iter().all(|name| dir.join(name).is_file()));
    found.unwrap_or_else(|| {
        panic!(
            "PostgreSQL is not installed: these tests start a server of their own. `.ci/tools postgres` installs it, or name the \
             directory of its programs in SUBTEND_POSTGRES_BIN"
        )
    })
}

/// Returns the user of the server, which refuses to run as root.
fn user() -> Option<(u32, u32)> {
    if std::fs::metadata("/proc/self").unwrap().uid() != 0 {
        return None;
    }
    let users = std::fs::read_to_string("/etc/passwd").unwrap();
    let named = |name: &str| {
        let line = users.lines().find(|line| line.starts_with(&format!("{name}:")))?;
        let mut fields = line.split(':').skip(2).map(|field| field.parse().ok());
        Some((fields.next()??, fields.next()??))
    };
    Some(
        named("postgres")
            .or_else(|| named("nobody"))
            .unwrap_or_else(|| panic!("root can start the server only as another user: make one named `postgres`")),
    )
}

/// Returns a command that runs as the server's user.
pub(crate) fn as_user(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    if let Some((uid, gid)) = user() {
        command.uid(uid).gid(gid);
    }
    command.current_dir("/").stdin(Stdio::null());
    command
}

/// Returns a free port below the range of outgoing connections, so that a restarted server finds it free again.
pub(crate) fn port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = std::process::id().wrapping_mul(64);
    let port = || {
        let next = first.wrapping_add(u32::from(NEXT.fetch_add(1, Ordering::Relaxed)));
        10_000 + u16::try_from(next % 20_000).unwrap()
    };
    std::iter::repeat_with(port).find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).unwrap()
}

/// Creates a directory of the server's user.
fn own_dir() -> PathBuf {
    let dir = tempfile::Builder::new().prefix("subtend-postgres-").tempdir().unwrap().keep();
    if let Some((uid, gid)) = user() {
        chown(&dir, Some(uid), Some(gid)).unwrap();
    }
    dir
}

fn run_command(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {text}");
    text
}

impl Server {
    pub(crate) fn start(settings: &[&str]) -> Self {
        let (dir, bin) = (own_dir(), programs());
        let password = dir.join("password");
        std::fs::write(&password, "s3cret@word").unwrap();
        let data = dir.join("data");
        let mut initdb = as_user(bin.join("initdb"));
        initdb.args(["--username=subtend", "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync"]);
        run_command(initdb.arg("--pwfile").arg(&password).arg("-D").arg(&data));
        let port = port();
        let mut conf = std::fs::OpenOptions::new().append(true).open(data.join("postgresql.conf")).unwrap();
        let own = format!(
            "listen_addresses = '127.0.0.1'\nport = {port}\nunix_socket_directories = '{}'\nmax_connections = 300\n\
             shared_buffers = 32MB\nlog_min_messages = fatal\nautovacuum_naptime = 5s\n{}\n",
            dir.display(),
            settings.join("\n")
        );
        conf.write_all(own.as_bytes()).unwrap();
        let server = Self::start_watched(dir, port);
        server.up();
        server.sql("CREATE DATABASE agents");
        server
    }

    /// Starts a standby, for which commits of this server wait from now on.
    pub(crate) fn standby(&self) -> Self {
        let (dir, port) = (own_dir(), port());
        let primary = format!("host={} port={} user=subtend application_name=standby", self.dir.display(), self.port);
        let mut backup = as_user(programs().join("pg_basebackup"));
        backup.args(["--write-recovery-conf", "--checkpoint=fast", "--no-sync", "-d", &primary, "-D"]);
        run_command(backup.arg(dir.join("data")).env("PGPASSWORD", "s3cret@word"));
        let mut conf = std::fs::OpenOptions::new().append(true).open(dir.join("data/postgresql.conf")).unwrap();
        let own = format!("port = {port}\nunix_socket_directories = '{}'\n", dir.display());
        conf.write_all(own.as_bytes()).unwrap();
        let standby = Self::start_watched(dir, port);
        standby.up();
        self.sql("ALTER SYSTEM SET synchronous_standby_names = 'standby'");
        self.reload();
        standby
    }

    pub(crate) fn promote(&self) {
        run_command(&mut self.ctl(&["promote"]));
    }

    fn start_watched(dir: PathBuf, port: u16) -> Self {
        let bin = programs();
        let ends = "read -r line; \"$1\"/pg_ctl -D \"$2\"/data -m immediate -w stop >/dev/null 2>&1; rm -rf \"$2\"";
        let mut watcher = as_user("sh");
        watcher.args(["-c", ends, "watcher"]).arg(&bin).arg(&dir).stdin(Stdio::piped()).process_group(0);
        Self { watcher: watcher.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap(), dir, port }
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    fn ctl(&self, args: &[&str]) -> Command {
        let mut command = as_user(programs().join("pg_ctl"));
        command.arg("-D").arg(self.dir.join("data")).args(["-w", "-s", "-t", "240"]).args(args);
        command
    }

    /// Starts the server and waits until it answers.
    pub(crate) fn up(&self) {
        let log = self.dir.join("log");
        let started =
            self.ctl(&["-l", &log.display().to_string(), "start"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
        assert!(started.unwrap().success(), "the server did not start: {}", self.log());
    }

    /// Ends the server like a crash: without a checkpoint, and with all connections lost.
    pub(crate) fn crash(&self) {
        run_command(&mut self.ctl(&["-m", "immediate", "stop"]));
    }

    /// Copies files of the server within its directory, in place of earlier copies.
    pub(crate) fn copy(&self, from: &str, to: &str) {
        let (from, to) = (self.dir.join(from), self.dir.join(to));
        drop(std::fs::remove_dir_all(&to));
        run_command(as_user("cp").arg("-a").arg(from).arg(to));
    }

    pub(crate) fn reload(&self) {
        run_command(&mut self.ctl(&["reload"]));
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }

    /// Runs SQL as an operator and returns its rows.
    pub(crate) fn sql(&self, sql: &str) -> String {
        let database = if sql.contains("DATABASE") { "postgres" } else { "agents" };
        let mut psql = as_user(programs().join("psql"));
        psql.args(["-X", "-q", "-t", "-A", "-v", "ON_ERROR_STOP=1", "-U", "subtend", "-d", database, "-c", sql]);
        psql.arg("-h").arg(&self.dir).args(["-p", &self.port.to_string()]).env("PGPASSWORD", "s3cret@word");
        run_command(&mut psql).trim().to_owned()
    }

    /// Returns the address of the database, to which parameters can be appended.
    pub(crate) fn address(&self) -> String {
        address(self.port)
    }

    pub(crate) fn target(&self, params: &str) -> ShardAddress {
        target(&format!("{}&{params}", self.address()))
    }

    /// Ends all connections of the owner of a shard, as a network failure does.
    pub(crate) fn cut(&self) {
        self.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'subtend%'");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Closes the watcher's input, at whose end the watcher stops the server.
        drop(self.watcher.stdin.take());
        self.watcher.wait().unwrap();
    }
}

/// Returns the address of the database on a port of this machine.
pub(crate) fn address(port: u16) -> String {
    format!("postgres://subtend:{PASSWORD}@127.0.0.1:{port}/agents?connect_timeout=5")
}

pub(crate) fn target(address: &str) -> ShardAddress {
    let StoreSpec::Postgres(target) = StoreSpec::parse(address).unwrap() else { panic!("another engine") };
    *target
}

/// The server that tests share. Each test has its own shards.
pub(crate) fn shared() -> &'static Server {
    static SERVER: LazyLock<Server> = LazyLock::new(|| Server::start(&[]));
    &SERVER
}

/// Returns the specification of the shard that belongs to a directory, on the server of this process or of the process that started it.
pub(crate) fn shard_of(dir: &Path) -> StoreSpec {
    shard_at(&std::env::var(ADDRESS).unwrap_or_else(|_| shared().address()), dir)
}

/// Like [`shard_of`], on another server.
pub(crate) fn shard_at(address: &str, dir: &Path) -> StoreSpec {
    let mut hasher = DefaultHasher::new();
    dir.hash(&mut hasher);
    StoreSpec::parse(&format!("{address}&shard=t{:016x}", hasher.finish())).unwrap()
}
