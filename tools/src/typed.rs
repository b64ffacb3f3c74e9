//! Typed tools, whose schemas are derived from argument structs.

#[cfg(test)]
mod tests;

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use subtend_session::authority::Access;
use subtend_session::call::ToolEffect;
use subtend_session::ids::Text;
use subtend_session::message::ToolSpec;

use crate::arguments;
use crate::display::Display;
use crate::option::ToolOption;
use crate::registry::{RegistryBuilder, RegistryError};
use crate::schema;
use crate::tool::{Tool, ToolError, ToolInvocation, ToolOutput};

/// A tool implemented by the struct of its arguments.
///
/// The derives of `Deserialize` and `JsonSchema` define the arguments. Doc comments of the struct and its fields are the descriptions for
/// models. A tool that needs other state, such as a client, can be a closure: [`FnTool::typed`](crate::closure::FnTool::typed).
///
/// ```
/// use schemars::JsonSchema;
/// use serde::Deserialize;
/// use subtend_session::call::ToolEffect;
/// use subtend_tools::registry::Registry;
/// use subtend_tools::tool::{ToolInvocation, ToolError};
/// use subtend_tools::typed::TypedTool;
///
/// /// Returns the distance between two cities, in kilometres by road.
/// #[derive(Deserialize, JsonSchema)]
/// struct RoadDistance {
///     from: String,
///     to: String,
/// }
///
/// impl TypedTool for RoadDistance {
///     type Output = f64;
///     const EFFECT: ToolEffect = ToolEffect::ReadOnly;
///
///     async fn run(self, _call: ToolInvocation) -> Result<f64, ToolError> {
///         match (&*self.from, &*self.to) {
///             ("Bern", "Basel") => Ok(97.4),
///             (from, to) => Err(ToolError::not_found(format!("no road is known from {from} to {to}"))),
///         }
///     }
/// }
///
/// let tools = Registry::builder().typed::<RoadDistance>()?.build();
/// let spec = tools.get("road_distance").map(|tool| tool.spec().description.clone());
/// assert_eq!(spec.as_deref(), Some("Returns the distance between two cities, in kilometres by road."));
/// # Ok::<(), subtend_tools::registry::RegistryError>(())
/// ```
pub trait TypedTool: DeserializeOwned + JsonSchema + Send + 'static {
    type Output: IntoOutput;

    const EFFECT: ToolEffect;

    /// Returns the struct's name in snake case: `RoadDistance` becomes `road_distance`.
    fn name() -> Text {
        snake_case(&Self::schema_name()).into()
    }

    /// Returns the struct's doc comment.
    fn description() -> Text {
        schema_and_description::<Self>().1
    }

    /// Returns whether a call leaves the process; see [`Tool::leaves_process`].
    fn leaves_process() -> bool {
        true
    }

    /// Returns the accesses of a call, or for `None` the accesses that every call needs; see [`Tool::access`].
    ///
    /// The default is `tool:<name>`, which the host's policy must allow. Every authority allows an empty list.
    fn access(_args: Option<&Self>) -> Vec<Access> {
        own_access(&Self::name())
    }

    /// Returns the options that users can set; see [`Tool::options`].
    fn options() -> Vec<ToolOption> {
        Vec::new()
    }

    fn display() -> Display {
        Display::default()
    }

    /// Runs one call. The arguments are in `self`, not in `call`.
    ///
    /// # Cancel safety
    /// See [`Tool`].
    fn run(self, call: ToolInvocation) -> impl Future<Output = Result<Self::Output, ToolError>> + Send;
}

/// The result of a tool: a [`ToolOutput`], a text, or any value that serializes to JSON.
pub trait IntoOutput: Send + 'static {
    /// Converts the value to the result for the model.
    ///
    /// # Errors
    /// If the value does not serialize.
    fn into_output(self) -> Result<ToolOutput, ToolError>;
}

impl IntoOutput for ToolOutput {
    fn into_output(self) -> Result<ToolOutput, ToolError> {
        Ok(self)
    }
}

impl<T: Serialize + Send + 'static> IntoOutput for T {
    fn into_output(self) -> Result<ToolOutput, ToolError> {
        // Serialize directly, because the key order of a `Value` depends on features of other crates.
        match serde_json::to_string(&self) {
            // A string is returned without quotes.
            Ok(json) if json.starts_with('"') => {
                Ok(ToolOutput::text(serde_json::from_str::<String>(&json).unwrap_or(json)))
            }
            Ok(json) => Ok(ToolOutput::text(json)),
            Err(error) => Err(ToolError::failed(format!("cannot serialize the result as JSON: {error}"))),
        }
    }
}

impl RegistryBuilder {
    /// Adds a [`TypedTool`].
    ///
    /// # Errors
    /// The errors of [`RegistryBuilder::tool`], and an error if the tool has no description.
    pub fn typed<T: TypedTool>(self) -> Result<Self, RegistryError> {
        let (schema, _) = schema_and_description::<T>();
        let spec = ToolSpec { name: T::name(), description: T::description(), schema };
        if spec.description.trim().is_empty() {
            return Err(RegistryError::NoDescription { name: spec.name });
        }
        self.tool(Arc::new(Typed::<T> { spec, options: T::options(), tool: PhantomData }))
    }
}

struct Typed<T> {
    spec: ToolSpec,
    options: Vec<ToolOption>,
    tool: PhantomData<fn() -> T>,
}

impl<T> fmt::Debug for Typed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Typed").field("spec", &self.spec).finish()
    }
}

impl<T: TypedTool> Tool for Typed<T> {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn effect(&self) -> ToolEffect {
        T::EFFECT
    }

    fn leaves_process(&self) -> bool {
        T::leaves_process()
    }

    fn access(&self, args: Option<&Value>) -> Vec<Access> {
        // Invalid arguments do not need access, because the call fails before it has any effect.
        let args: Option<T> = args.and_then(|args| serde_json::from_value(args.clone()).ok());
        T::access(args.as_ref())
    }

    fn options(&self) -> &[ToolOption] {
        &self.options
    }

    fn display(&self) -> Display {
        T::display()
    }

    fn run(&self, call: ToolInvocation) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
        run(Text::clone(&self.spec.name), call, T::run)
    }
}

pub(crate) fn run<A, O, R>(
    tool: Text,
    mut call: ToolInvocation,
    work: impl FnOnce(A, ToolInvocation) -> R,
) -> BoxFuture<'static, Result<ToolOutput, ToolError>>
where
    A: DeserializeOwned,
    O: IntoOutput,
    R: Future<Output = Result<O, ToolError>> + Send + 'static,
{
    // The arguments are schema-valid, but the type may require more.
    match arguments::convert(&tool, std::mem::take(&mut call.args)) {
        Ok(args) => work(args, call).map(|result| result.and_then(IntoOutput::into_output)).boxed(),
        Err(message) => std::future::ready(Err(ToolError::bad_args(message))).boxed(),
    }
}

pub(crate) fn schema_and_description<A: JsonSchema>() -> (Arc<Value>, Text) {
    let mut schema = Arc::unwrap_or_clone(schema::of::<A>());
    let description = match schema.as_object_mut().and_then(|schema| schema.remove("description")) {
        Some(Value::String(text)) => text.into(),
        Some(_) | None => Text::default(),
    };
    (Arc::new(schema), description)
}

/// Returns the default access of a tool: its own action.
pub(crate) fn own_access(name: &str) -> Vec<Access> {
    vec![Access { action: format!("tool:{name}").into(), resource: "*".into() }]
}

/// Converts `HTTPGet2Things` to `http_get2_things`.
fn snake_case(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut before = None;
    let mut letters = name.chars().peekable();
    while let Some(letter) = letters.next() {
        let starts_word = letter.is_uppercase()
            && before.is_some_and(|before: char| {
                let ends_acronym = before.is_uppercase() && letters.peek().is_some_and(|next| next.is_lowercase());
                before.is_lowercase() || before.is_ascii_digit() || ends_acronym
            });
        if starts_word {
            out.push('_');
        }
        out.extend(letter.to_lowercase());
        before = Some(letter);
    }
    out
}
