//! Address of a shard: the URL of a database with additional parameters. Its password is never shown.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use subtend_session::ids::Hash;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

use super::node_lease::NodeLease;
use super::settings::Setting;

const SCHEMES: [&str; 2] = ["postgres://", "postgresql://"];
const SHARD: &str = "main";
const CONNECT: Duration = Duration::from_secs(10);
const REPLY: Duration = Duration::from_secs(30);
/// A peer that vanished without closing its connection is noticed after about this long.
pub(super) const LOST_PEER_TIMEOUT: Duration = Duration::from_secs(20);

/// Address of a shard, by `postgres://USER@HOST/DATABASE?shard=NAME`.
#[derive(Clone, PartialEq, Eq)]
pub struct ShardAddress {
    pub(super) config: Config,
    /// The name of the shard, `main` by default. A database can hold many shards.
    pub(super) shard: String,
    pub(super) tls: bool,
    /// File with trusted certificates, instead of the system's.
    pub(super) roots: Option<PathBuf>,
    /// Weak settings of the server that are accepted.
    pub(super) accepted: Vec<Setting>,
    /// Time limit for an answer, after which the connection counts as lost.
    pub(super) reply: Duration,
    /// The lease of the node that claims the shard; `None` for other processes.
    pub(super) lease: Option<String>,
    /// The address without its password.
    shown: String,
}

impl fmt::Debug for ShardAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ShardAddress").field(&self.shown).finish()
    }
}

impl fmt::Display for ShardAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl ShardAddress {
    /// Returns whether `spec` is an address of this engine.
    pub(crate) fn is_postgres_address(spec: &str) -> bool {
        SCHEMES.iter().any(|scheme| spec.starts_with(scheme))
    }

    /// Parses an address.
    /// # Errors
    /// The reason, without parts of the address.
    pub(crate) fn parse(url: &str) -> Result<Self, &'static str> {
        let scheme = SCHEMES.into_iter().find(|scheme| url.starts_with(scheme)).ok_or("its engine is not known")?;
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let shown = without_password(scheme, base)?;
        let mut own = Parameters::default();
        let mut rest = Vec::new();
        for (key, value) in query.split('&').filter(|pair| !pair.is_empty()).map(|pair| split(pair, '=')) {
            if !own.apply(key, value)? {
                rest.push((key, value));
            }
        }
        let query: Vec<String> = rest.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let mut config: Config = format!("{base}?{}", query.join("&"))
            .parse()
            .map_err(|_| "its address or a parameter is malformed; write @ within a name or password as %40")?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err("the host is missing");
        }
        let tls = own.tls.unwrap_or_else(|| !is_local(&config));
        config.ssl_mode(if tls { SslMode::Require } else { SslMode::Disable });
        // A standby answers reads with an older state.
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT);
        }
        config.keepalives_idle(LOST_PEER_TIMEOUT / 2).keepalives_interval(LOST_PEER_TIMEOUT / 4).keepalives_retries(2);
        config.tcp_user_timeout(LOST_PEER_TIMEOUT);
        let Parameters { shard, roots, accepted, reply, shown: kept, .. } = own;
        let shown = if kept.is_empty() { shown } else { format!("{shown}?{}", kept.join("&")) };
        let shard = shard.unwrap_or_else(|| SHARD.to_owned());
        Ok(Self { config, shard, tls, roots, accepted, reply: reply.unwrap_or(REPLY), lease: None, shown })
    }

    /// Returns a name of the shard for files on this machine, which is the same for all notations of the address.
    pub fn place(&self) -> String {
        let (user, hosts) = (self.config.get_user(), self.config.get_hosts());
        let database = self.config.get_dbname().or(user).unwrap_or_default();
        let all = format!(
            "{hosts:?} {:?} {:?} {database} {}",
            self.config.get_hostaddrs(),
            self.config.get_ports(),
            self.shard
        );
        format!("{}-{}", self.shard, Hash::of(all.as_bytes()))
    }

    /// Returns the address of another shard of the database, claimed by the node with this lease.
    #[must_use]
    pub fn with_shard(&self, shard: &str, lease: &NodeLease) -> Self {
        let (shard, lease) = (shard.to_owned(), Some(lease.id().to_owned()));
        let base = self.shown.split_once('?').map_or(&*self.shown, |(base, _)| base);
        Self { shown: format!("{base}?shard={shard}"), shard, lease, ..self.clone() }
    }

    pub fn shard(&self) -> &str {
        &self.shard
    }

    /// Returns whether the address has the parameter `shard`. Without it, the shard is `main`.
    pub fn names_shard(&self) -> bool {
        self.shown.split(['?', '&']).any(|part| part.starts_with("shard="))
    }

    /// The password of the address, or of the variable `PGPASSWORD`.
    pub(super) fn with_password(&self) -> Config {
        let mut config = self.config.clone();
        if config.get_password().is_none()
            && let Ok(password) = std::env::var("PGPASSWORD")
        {
            config.password(password);
        }
        config
    }
}

/// Parameters that the client library does not know.
#[derive(Default)]
struct Parameters {
    shard: Option<String>,
    tls: Option<bool>,
    roots: Option<PathBuf>,
    accepted: Vec<Setting>,
    reply: Option<Duration>,
    /// All parameters without secrets, as they were given.
    shown: Vec<String>,
}

impl Parameters {
    fn apply(&mut self, key: &str, value: &str) -> Result<bool, &'static str> {
        if key == "password" {
            return Err("the password is a parameter; write USER:PASSWORD@HOST, or set PGPASSWORD");
        }
        self.shown.push(format!("{key}={value}"));
        match key {
            "shard" => {
                let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
                if value.is_empty() || value.len() > 63 || !value.chars().all(plain) {
                    return Err("`shard` takes up to 63 letters, digits, `.`, `_` and `-`");
                }
                self.shard = Some(value.to_owned());
            }
            "sslmode" => {
                self.tls = Some(match value {
                    "disable" => false,
                    // A certificate is always checked, with its name.
                    "require" | "verify-full" => true,
                    _ => {
                        return Err(
                            "`sslmode` is `verify-full` or `disable`: others fall back to a connection that anyone can read",
                        );
                    }
                });
            }
            "sslrootcert" => self.roots = Some(value.into()),
            "accept_weak" => {
                for name in value.split(',') {
                    self.accepted.push(Setting::of(name).ok_or(
                        "`accept_weak` takes `fsync`, `synchronous_commit` and `full_page_writes`, separated by commas",
                    )?);
                }
            }
            "reply_timeout" => {
                let seconds = value.parse().ok().filter(|seconds| (1..=3600).contains(seconds));
                self.reply = Some(Duration::from_secs(seconds.ok_or("`reply_timeout` takes 1 to 3600 seconds")?));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

fn split(text: &str, at: char) -> (&str, &str) {
    text.split_once(at).unwrap_or((text, ""))
}

/// Returns the address without its password.
fn without_password(scheme: &str, base: &str) -> Result<String, &'static str> {
    let rest = base.get(scheme.len()..).unwrap_or_default();
    let (place, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    // A password with such a sign would become a part of the host, and be shown.
    if place.matches('@').count() > 1 || path.contains('@') {
        return Err("write @ and / within a name or password as %40 and %2F");
    }
    let Some((user, host)) = place.split_once('@') else { return Ok(base.to_owned()) };
    Ok(format!("{scheme}{}@{host}{path}", split(user, ':').0))
}

/// Returns whether all hosts are this machine.
fn is_local(config: &Config) -> bool {
    let local = |host: &Host| match host {
        Host::Tcp(name) => name == "localhost" || name.parse().is_ok_and(|ip: IpAddr| ip.is_loopback()),
        #[cfg(unix)]
        Host::Unix(_) => true,
    };
    config.get_hosts().iter().all(local) && config.get_hostaddrs().iter().all(IpAddr::is_loopback)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_shown_without_its_password() {
        for (url, shown) in [
            ("postgres://ann:s3cret@db.example/agents", "postgres://ann@db.example/agents"),
            (
                "postgresql://ann:s3cret@db/agents?shard=a&sslmode=disable",
                "postgresql://ann@db/agents?shard=a&sslmode=disable",
            ),
            (
                "postgres://ann:s3%40cret@[::1]:5433/agents?connect_timeout=3",
                "postgres://ann@[::1]:5433/agents?connect_timeout=3",
            ),
            ("postgres:///agents?host=/run/postgresql", "postgres:///agents?host=/run/postgresql"),
        ] {
            let target = ShardAddress::parse(url).unwrap();
            assert_eq!(target.to_string(), shown);
            assert!(!format!("{target:?}").contains("cret"), "{target:?}");
            // The shown address finds the shard again; the password comes from elsewhere.
            assert_eq!(ShardAddress::parse(shown).unwrap().to_string(), shown);
        }
    }

    #[test]
    fn refused_address_is_not_shown() {
        for (url, why) in [
            ("postgres://ann:s3@cret@db/agents", "write @ and /"),
            ("postgres://ann:s3/cret@db/agents", "write @ and /"),
            ("postgres://db/agents?password=s3cret", "write USER:PASSWORD@HOST"),
            ("postgres://db/agents?passfile=s3cret", "malformed"),
            ("postgres://db/agents?shard=a/b", "`shard` takes"),
            ("postgres://db/agents?sslmode=prefer", "fall back"),
            ("postgres://db/agents?accept_weak=everything", "`accept_weak` takes"),
            ("postgres://db/agents?reply_timeout=0", "1 to 3600"),
            ("postgres:///agents", "the host is missing"),
        ] {
            let refused = ShardAddress::parse(url).unwrap_err();
            assert!(refused.contains(why) && !refused.contains("cret"), "{url}: {refused}");
        }
    }

    #[test]
    fn address_names_a_shard_only_by_its_parameter() {
        for (url, names) in [
            ("postgres://db/agents", false),
            ("postgres://db/shard=x?reply_timeout=9", false),
            ("postgres://db/agents?reply_timeout=9&shard=main", true),
        ] {
            assert_eq!(ShardAddress::parse(url).unwrap().names_shard(), names, "{url}");
        }
    }

    #[test]
    fn place_depends_on_the_shard_alone() {
        let place = |url: &str| ShardAddress::parse(url).unwrap().place();
        let one = place("postgres://ann:s3cret@db/agents?shard=a");
        assert_eq!(place("postgresql://bob@db/agents?reply_timeout=9&shard=a"), one);
        for other in
            ["postgres://db/agents?shard=b", "postgres://db/others?shard=a", "postgres://db:5433/agents?shard=a"]
        {
            assert_ne!(place(other), one, "{other}");
        }
    }

    #[test]
    fn tls_is_on_unless_the_server_is_local() {
        let tls = |url: &str| ShardAddress::parse(url).unwrap().tls;
        for here in ["localhost", "127.0.0.1:5432", "[::1]"] {
            assert!(!tls(&format!("postgres://{here}/agents")), "{here}");
        }
        assert!(!tls("postgres:///agents?host=/run/postgresql"));
        for away in ["db", "10.0.0.7", "localhost,db"] {
            assert!(tls(&format!("postgres://{away}/agents")), "{away}");
        }
        assert!(tls("postgres://localhost/agents?hostaddr=10.0.0.7"));
        assert!(tls("postgres://localhost/agents?sslmode=verify-full"));
        assert!(!tls("postgres://db/agents?sslmode=disable"));
    }
}
