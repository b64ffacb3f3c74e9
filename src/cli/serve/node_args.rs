//! Options of a host that shares a database with others.

use std::path::PathBuf;

/// Options of a node.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Nodes")]
pub(super) struct NodeArgs {
    /// Share the shards of a database with other nodes, under this name; the store is `postgres://…` without `shard=`
    #[arg(long, value_name = "NAME", value_parser = node_name, conflicts_with = "until_idle")]
    pub(super) node: Option<String>,

    /// Number of shards to create in a new database; it cannot change later [default: 16]
    #[arg(long, value_name = "COUNT", requires = "node", value_parser = clap::value_parser!(u16).range(1..=1024))]
    shards: Option<u16>,

    /// Address at which other nodes reach this one [default: the address of --listen]
    #[arg(long, value_name = "HOST:PORT", requires = "node", value_parser = parse_advertised_url)]
    advertise: Option<String>,

    /// Also claim the shards with this label, for example those of sessions that need a directory of this machine; repeatable
    #[arg(long, value_name = "LABEL", requires = "node", value_parser = node_name)]
    label: Vec<String>,

    /// Seconds without a renewal after which other nodes take over [default: 15]
    #[arg(long, value_name = "SECONDS", requires = "node", value_parser = clap::value_parser!(u64).range(2..=600))]
    lease: Option<u64>,

    /// Seconds that a shutdown waits for runs that would not resume [default: 30]
    #[arg(long, value_name = "SECONDS", requires = "node")]
    drain: Option<u64>,

    /// File of the tokens, such as one that all nodes share [default: in the host's directory]
    #[arg(long, value_name = "FILE")]
    pub(super) tokens: Option<PathBuf>,
}

fn node_name(name: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if name.is_empty() || name.len() > 40 || name.starts_with('.') || !name.chars().all(plain) {
        return Err("use 1 to 40 letters, digits, `.`, `_` and `-`, without `.` at the start".to_owned());
    }
    Ok(name.to_owned())
}

fn parse_advertised_url(address: &str) -> Result<String, String> {
    let named = address
        .rsplit_once(':')
        .filter(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0));
    named.map(|_| address.to_owned()).ok_or_else(|| "write HOST:PORT, such as 10.0.0.5:7475".to_owned())
}

#[cfg(feature = "postgres")]
impl NodeArgs {
    /// Returns the options of the node. `address` applies if no other address is advertised.
    pub(super) fn options(
        &self,
        name: &str,
        address: std::net::SocketAddr,
        slots: usize,
    ) -> Result<subtend_nodes::NodeOptions, crate::cli::fail::Fail> {
        use std::time::Duration;

        if self.advertise.is_none() && address.ip().is_unspecified() {
            return Err(crate::cli::fail::Fail::Usage(format!(
                "`--listen {address}`: other nodes cannot connect to this address; name one of this machine with --advertise HOST:PORT"
            )));
        }

        Ok(subtend_nodes::NodeOptions {
            name: name.to_owned(),
            address: self.advertise.clone().unwrap_or_else(|| address.to_string()),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            labels: self.label.clone(),
            shards: self.shards.unwrap_or(16),
            slots,
            times: self
                .lease
                .map_or_else(Default::default, |seconds| subtend_nodes::LeaseTimes::of(Duration::from_secs(seconds))),
            grace: super::GRACE,
            drain: Duration::from_secs(self.drain.unwrap_or(30)),
        })
    }
}
