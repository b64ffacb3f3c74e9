use subtend_journal::OpenError;
use subtend_models::models::BadPool;
use subtend_models::throttle::BadRates;
use subtend_session::ids::Text;
use subtend_session::limits::BadLimit;
use subtend_tools::workspace::WorkspaceError;

use crate::calls::prices::BadPrice;
use crate::recovery::boot::BootError;
use crate::spawn::tool_options::BadToolOptions;

/// Why a runtime did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No model was given.
    #[error("a runtime needs a model: give one with `model`, or name one with `default_model`")]
    NoModel,
    /// The limits allow no work.
    #[error(transparent)]
    Limits(#[from] BadLimit),
    /// A pool cannot be used.
    #[error(transparent)]
    Pool(#[from] BadPool),
    /// The default names an unknown model or pool.
    #[error("there is no model or pool {0:?}, which sessions are to use by default")]
    NoSuchDefault(Text),
    /// A quota allows no calls.
    #[error("the rates of {0:?} cannot be used: {1}")]
    Rates(Text, #[source] BadRates),
    /// A price is invalid.
    #[error("the price of {0:?} cannot be used: {1}")]
    Price(Text, #[source] BadPrice),
    /// Money is limited, and the cost of the default model is unknown.
    #[error(
        "money is limited (cost_micro), and the model `{0}` has no price: give it one with `prices`, or limit tokens instead"
    )]
    NoPrice(Text),
    /// A tool option is invalid.
    #[error(transparent)]
    ToolOptions(#[from] BadToolOptions),
    /// The journal could not be opened.
    #[error(transparent)]
    Journal(#[from] OpenError),
    /// The workspace could not be opened.
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
    /// Limits or policy cannot be written as JSON.
    #[error("limits or policy cannot be recorded: {0}")]
    Unrecordable(#[from] serde_json::Error),
    /// The boot sweep failed.
    #[error(transparent)]
    Boot(#[from] BootError),
}
