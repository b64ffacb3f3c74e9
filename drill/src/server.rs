//! The PostgreSQL server of a drill: its own directory, a loopback port, synced writes. It ends with the drill.

use std::hash::{BuildHasher as _, Hasher as _};
use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::error::DrillError;

/// The environment variable with the directory of the server's programs.
const PROGRAMS: &str = "SUBTEND_POSTGRES_BIN";
/// A script that waits until the drill ends for any reason, then stops the server.
const WATCH: &str = "read -r line; exec \"$1\"/pg_ctl -D \"$2\"/data -m immediate -w stop";
/// A query for all values of a shard, one per line, with non-ASCII bytes escaped.
const VALUES: &str = "SELECT encode(value, 'escape') FROM (SELECT shard, value FROM subtend.log UNION ALL SELECT shard, value FROM \
                      subtend.head UNION ALL SELECT shard, value FROM subtend.inflight UNION ALL SELECT shard, value FROM \
                      subtend.outbox UNION ALL SELECT shard, value FROM subtend.def) AS rows JOIN subtend.shard ON id = shard \
                      WHERE name = :'shard'";

#[derive(Debug)]
pub(crate) struct DrillServer {
    programs: PathBuf,
    port: u16,
    password: String,
    watcher: Child,
}

impl DrillServer {
    /// Creates and starts a server in `dir`.
    pub(crate) fn start(dir: &Path) -> Result<Self, DrillError> {
        let (programs, data) = (programs()?, dir.join("data"));
        std::fs::create_dir_all(dir).map_err(server_error)?;
        if let Some((user, group)) = user()? {
            chown(dir, Some(user), Some(group)).map_err(server_error)?;
            if let Some(of_drill) = dir.parent() {
                // Only root can enter the drill's directory, and the server runs as another user.
                chown(of_drill, None, Some(group)).map_err(server_error)?;
                std::fs::set_permissions(of_drill, std::fs::Permissions::from_mode(0o710)).map_err(server_error)?;
            }
        }
        let password = format!("{:016x}{:016x}", random(), random());
        let file = dir.join("password");
        std::fs::write(&file, &password).map_err(server_error)?;
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).map_err(server_error)?;
        if let Some((user, group)) = user()? {
            chown(&file, Some(user), Some(group)).map_err(server_error)?;
        }
        let mut initdb = as_user(&programs.join("initdb"))?;
        initdb.args(["--username=subtend", "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync"]);
        run_to_end(initdb.arg("--pwfile").arg(&file).arg("-D").arg(&data))?;
        let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).map_err(server_error)?.port();
        let settings = format!(
            "listen_addresses = '127.0.0.1'\nport = {port}\nunix_socket_directories = ''\nlog_min_messages = fatal\n"
        );
        let conf = std::fs::OpenOptions::new().append(true).open(data.join("postgresql.conf"));
        conf.and_then(|mut conf| conf.write_all(settings.as_bytes())).map_err(server_error)?;
        let mut watcher = as_user(Path::new("sh"))?;
        watcher.args(["-c", WATCH, "watcher"]).arg(&programs).arg(dir).stdin(Stdio::piped()).process_group(0);
        let watcher = watcher.stdout(Stdio::null()).stderr(Stdio::null()).spawn().map_err(server_error)?;
        let server = Self { programs, port, password, watcher };
        let mut start = as_user(&server.programs.join("pg_ctl"))?;
        start.arg("-D").arg(&data).args(["-w", "-s", "-l"]).arg(dir.join("log")).arg("start");
        let started = start.stdout(Stdio::null()).stderr(Stdio::null()).status().map_err(server_error)?;
        if !started.success() {
            let log = std::fs::read_to_string(dir.join("log")).unwrap_or_default();
            return Err(DrillError::Other(format!("the drill's PostgreSQL server does not start: {}", log.trim())));
        }
        Ok(server)
    }

    /// Returns the address of the database, with the password.
    pub(crate) fn address(&self) -> String {
        format!("postgres://subtend:{}@127.0.0.1:{}/postgres", self.password, self.port)
    }

    pub(crate) fn values(&self, shard: &str) -> Result<String, DrillError> {
        let mut psql = as_user(&self.programs.join("psql"))?;
        psql.args([
            "-X",
            "-q",
            "-t",
            "-A",
            "-v",
            "ON_ERROR_STOP=1",
            "-U",
            "subtend",
            "-d",
            "postgres",
            "-h",
            "127.0.0.1",
        ]);
        psql.arg("-v").arg(format!("shard={shard}")).arg("-p").arg(self.port.to_string()).arg("-f").arg("-");
        psql.env("PGPASSWORD", &self.password).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut psql = psql.stderr(Stdio::inherit()).spawn().map_err(server_error)?;
        if let Some(mut input) = psql.stdin.take() {
            input.write_all(VALUES.as_bytes()).map_err(server_error)?;
        }
        let output = psql.wait_with_output().map_err(server_error)?;
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        } else {
            Err(DrillError::Other(format!("the rows of shard {shard} cannot be read: psql ended, {}", output.status)))
        }
    }

    /// Stops the server. Its files remain.
    pub(crate) fn stop(&mut self) {
        drop(self.watcher.stdin.take());
        // Ignores the error: the wait fails only if the watcher has already ended.
        drop(self.watcher.wait());
    }
}

impl Drop for DrillServer {
    fn drop(&mut self) {
        self.stop();
    }
}

fn server_error(error: std::io::Error) -> DrillError {
    DrillError::Other(format!("cannot create the drill's PostgreSQL server: {error}"))
}

fn random() -> u64 {
    std::hash::RandomState::new().build_hasher().finish()
}

fn programs() -> Result<PathBuf, DrillError> {
    let named = std::env::var_os(PROGRAMS).map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut found: Vec<PathBuf> = named.into_iter().chain(std::env::split_paths(&path)).collect();
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut versions: Vec<PathBuf> = versions.map(|version| version.path().join("bin")).collect();
    versions.sort();
    found.extend(versions.into_iter().rev());
    let has_all = |dir: &PathBuf| ["initdb", "pg_ctl", "postgres", "psql"].iter().all(|name| dir.join(name).is_file());
    found.into_iter().find(has_all).ok_or_else(|| {
        DrillError::Usage(format!(
            "`--store postgres` starts a PostgreSQL server, and none is installed: install one, or name the directory of initdb, pg_ctl \
             and psql in {PROGRAMS}"
        ))
    })
}

/// Returns the user to run the server as, or `None` for the current user. The server refuses to run as root.
fn user() -> Result<Option<(u32, u32)>, DrillError> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let users = std::fs::read_to_string("/etc/passwd").map_err(server_error)?;
    let named = |name: &str| {
        let line = users.lines().find(|line| line.starts_with(&format!("{name}:")))?;
        let mut fields = line.split(':').skip(2).map(|field| field.parse().ok());
        Some((fields.next()??, fields.next()??))
    };
    let found = named("postgres").or_else(|| named("nobody"));
    let missing =
        || DrillError::Usage("root can start a PostgreSQL server only as the user `postgres`. Create that user".into());
    found.map(Some).ok_or_else(missing)
}

fn as_user(program: &Path) -> Result<Command, DrillError> {
    let mut command = Command::new(program);
    if let Some((user, group)) = user()? {
        command.uid(user).gid(group);
    }
    command.current_dir("/").stdin(Stdio::null());
    Ok(command)
}

fn run_to_end(command: &mut Command) -> Result<(), DrillError> {
    let output = command.output().map_err(server_error)?;
    let errors = String::from_utf8_lossy(&output.stderr);
    let why = || DrillError::Other(format!("cannot create the drill's PostgreSQL server: {}", errors.trim()));
    if output.status.success() { Ok(()) } else { Err(why()) }
}
