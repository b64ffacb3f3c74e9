//! The memory of the arguments of running calls. A tree of values takes up to a hundred times the bytes of its text, and the library keeps
//! the tree until the server answers. So large arguments share one budget of the process, and wait for it as text.

use serde_json::Value;
use subtend_session::values::parse_recorded;
use tokio_util::sync::CancellationToken;

use crate::memory_budget::{MemoryBudget, ReservedMemory};
use crate::tool::ToolError;

/// Memory of the large arguments of all running calls.
static ARGUMENTS: MemoryBudget = MemoryBudget::of_mib(128);
/// Bytes of arguments up to which a call waits for no others.
const SMALL: usize = 1 << 20;
/// The trees of a call: that of the library, and its copy while the call is posted.
const COPIES: usize = 2;
/// Bytes of an object without its entries, and those of an entry in an object and in a list.
const OBJECT: usize = 300;
const FIELD: usize = 200;
const ITEM: usize = 100;

/// Arguments of a call that has not begun.
pub(super) enum QueuedArguments {
    Small(Value),
    Large { text: String, bytes: usize },
}

impl QueuedArguments {
    pub(super) fn of(args: Value) -> Self {
        let bytes = bytes_of(&args).saturating_mul(COPIES);
        if bytes <= SMALL { Self::Small(args) } else { Self::Large { text: args.to_string(), bytes } }
    }

    /// Waits until there is memory for the arguments.
    ///
    /// # Errors
    /// If the call is cancelled meanwhile.
    pub(super) async fn parse(self, cancel: &CancellationToken) -> Result<(Value, Option<ReservedMemory>), ToolError> {
        match self {
            Self::Small(args) => Ok((args, None)),
            Self::Large { text, bytes } => {
                let free = ARGUMENTS.reserve(bytes);
                let reserved = cancel.run_until_cancelled(free).await.ok_or_else(ToolError::cancelled)?;
                let args = parse_recorded(&text).map_err(|error| ToolError::bad_args(error.to_string()))?;
                Ok((args, reserved))
            }
        }
    }
}

/// Returns about as many bytes as a tree takes, or more.
fn bytes_of(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(|item| bytes_of(item).saturating_add(ITEM)).sum(),
        Value::Object(fields) => {
            let field =
                |(key, value): (&String, &Value)| bytes_of(value).saturating_add(key.len()).saturating_add(FIELD);
            fields.iter().map(field).sum::<usize>().saturating_add(OBJECT)
        }
    }
}
