use clap::ValueEnum;
use tracing_subscriber::fmt;

use crate::cli::fail::Fail;

/// Format of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// One JSON object per line
    Json,
}

impl LogFormat {
    /// Writes the log of this process to stderr from now on.
    ///
    /// # Errors
    /// When a log was already started.
    pub(crate) fn begin(self) -> Result<(), Fail> {
        let Self::Json = self;
        let log =
            fmt().json().with_max_level(tracing::Level::INFO).with_current_span(false).with_writer(std::io::stderr);
        log.try_init().map_err(|error| Fail::Other(format!("the log cannot be written: {error}")))?;
        std::panic::set_hook(Box::new(|panic| tracing::error!("{panic}")));
        Ok(())
    }
}
