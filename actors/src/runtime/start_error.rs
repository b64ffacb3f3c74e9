use subtend_journal::OpenError;
use subtend_models::models::BadPool;
use subtend_models::throttle::BadRates;
use subtend_session::ids::Text;
use subtend_session::limits::BadLimit;
use subtend_tools::policy::ProtectError;
use subtend_tools::workspace::WorkspaceError;

use crate::calls::prices::BadPrice;
use crate::recovery::boot::BootError;
use crate::runtime::limit_changes::AboveSlots;
use crate::spawn::tool_options::BadToolOptions;

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("the runtime has no model. Set one with `model`, or name one with `default_model`")]
    NoModel,
    #[error(transparent)]
    Limits(#[from] BadLimit),
    #[error(transparent)]
    AboveSlots(#[from] AboveSlots),
    #[error(transparent)]
    Pool(#[from] BadPool),
    #[error("unknown default model or pool {0:?}")]
    NoSuchDefault(Text),
    #[error("the rates of {0:?} cannot be used: {1}")]
    Rates(Text, #[source] BadRates),
    #[error("the price of {0:?} cannot be used: {1}")]
    Price(Text, #[source] BadPrice),
    /// Money is limited, but the cost of the default model is unknown.
    #[error("money is limited (cost_micro), and the model `{0}` has no price. Set its price, or limit tokens instead")]
    NoPrice(Text),
    #[error(
        "compact_at needs a context window, and that of the model `{0}` is unknown. Set it in `llm.context_windows`, or remove the limit"
    )]
    NoWindow(Text),
    #[error(transparent)]
    ToolOptions(#[from] BadToolOptions),
    #[error(transparent)]
    Journal(#[from] OpenError),
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
    #[error(transparent)]
    TemporaryFiles(#[from] ProtectError),
    #[error("limits or policy cannot be recorded: {0}")]
    Unrecordable(#[from] serde_json::Error),
    #[error(transparent)]
    Boot(#[from] BootError),
}
