use clap::ValueEnum;
use tracing::Level;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer, Registry, fmt};

use crate::cli::fail::Fail;
use crate::cli::notices::use_log;

/// Format of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// One JSON object per line
    Json,
}

/// Writes warnings of this process to stderr as text from now on, with `quiet` only errors.
///
/// # Errors
/// When a log was already started.
#[cfg(feature = "postgres")]
pub(super) fn begin_warnings(quiet: bool) -> Result<(), Fail> {
    let most = if quiet { Level::ERROR } else { Level::WARN };
    begin(fmt::layer().with_target(false).with_ansi(false).with_writer(std::io::stderr).with_filter(written(most)))
}

impl LogFormat {
    /// Writes the log of this process to stderr from now on.
    ///
    /// # Errors
    /// When a log was already started.
    pub(crate) fn begin(self) -> Result<(), Fail> {
        let Self::Json = self;
        let log = fmt::layer().json().with_current_span(false).with_writer(std::io::stderr);
        begin(log.with_filter(written(Level::INFO)))?;
        use_log();
        std::panic::set_hook(Box::new(|panic| tracing::error!("{panic}")));
        Ok(())
    }
}

fn begin(log: impl Layer<Registry> + Send + Sync) -> Result<(), Fail> {
    let started = tracing_subscriber::registry().with(log).try_init();
    started.map_err(|error| Fail::Other(format!("the log cannot be written: {error}")))
}

/// Returns what the log contains, of this program up to the level `most`. The MCP library logs all that a server says of
/// itself, and each of its notifications.
fn written(most: Level) -> Targets {
    let others = most.min(Level::WARN);
    Targets::new().with_default(others).with_target("subtend", most).with_target("rmcp", LevelFilter::OFF)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The control: messages of this program are written.
    #[test]
    fn log_has_no_messages_of_the_mcp_library() {
        let levels = [Level::INFO, Level::WARN, Level::ERROR];
        let of = |target: &str| levels.map(|level| written(Level::INFO).would_enable(target, &level));
        for own in ["subtend::cli::work::screen", "subtend_host::trace", "subtend_tools::mcp::server"] {
            assert_eq!(of(own), [true; 3], "{own}");
        }
        assert_eq!(of("rmcp::service"), [false; 3]);
        assert_eq!(of("hyper::client"), [false, true, true]);
        let warnings = |target: &str| levels.map(|level| written(Level::WARN).would_enable(target, &level));
        assert_eq!([warnings("subtend_nodes::node"), warnings("rmcp::service")], [[false, true, true], [false; 3]]);
    }
}
