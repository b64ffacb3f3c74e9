//! Typed tools: a struct of arguments whose derives are the schema, and what a call of it does.

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

/// A tool that is the struct of its arguments.
///
/// The derives of `Deserialize` and `JsonSchema` say what the arguments are; doc comments of the struct and of its fields are
/// what the model is told of them. A tool that needs more than its arguments (a connection, a client) is a closure that holds
/// it: [`FnTool::typed`](crate::closure::FnTool::typed).
///
/// ```
/// use schemars::JsonSchema;
/// use serde::Deserialize;
/// use subtend_session::call::ToolEffect;
/// use subtend_tools::registry::Registry;
/// use subtend_tools::tool::{ToolInvocation, ToolError};
/// use subtend_tools::typed::TypedTool;
///
/// /// Tells how far apart two places are, in kilometres along the road.
/// #[derive(Deserialize, JsonSchema)]
/// struct RoadDistance {
///     /// Where the way begins.
///     from: String,
///     /// Where it ends.
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
/// assert_eq!(spec.as_deref(), Some("Tells how far apart two places are, in kilometres along the road."));
/// # Ok::<(), subtend_tools::registry::RegistryError>(())
/// ```
pub trait TypedTool: DeserializeOwned + JsonSchema + Send + 'static {
    /// What a call gives back.
    type Output: IntoOutput;

    /// What it does to the world.
    const EFFECT: ToolEffect;

    /// Its name: the struct's in snake case, so that `RoadDistance` is `road_distance`.
    fn name() -> Text {
        snake_case(&Self::schema_name()).into()
    }

    /// What the model is told of it: the struct's doc comment.
    fn description() -> Text {
        described::<Self>().1
    }

    /// Whether a call leaves the process; see [`Tool::leaves_process`].
    fn leaves_process() -> bool {
        true
    }

    /// What a call with these arguments is about to do, and with `None` the least that any call needs; see [`Tool::access`].
    ///
    /// Left out, it is `tool:<name>`, which the host's policy has to allow. An empty list is allowed by every authority: for
    /// tools that touch nothing that anybody could want to protect.
    fn access(_args: Option<&Self>) -> Vec<Access> {
        own(&Self::name())
    }

    /// Options that a person sets; see [`Tool::options`].
    fn options() -> Vec<ToolOption> {
        Vec::new()
    }

    /// How it is shown to people.
    fn display() -> Display {
        Display::default()
    }

    /// Runs one call. The arguments are `self`; those of `call` are taken out of it.
    ///
    /// # Cancel safety
    /// As for [`Tool`].
    fn run(self, call: ToolInvocation) -> impl Future<Output = Result<Self::Output, ToolError>> + Send;
}

/// What a tool may give back: a [`ToolOutput`], or anything that can be written as JSON. A text is given as it stands.
pub trait IntoOutput: Send + 'static {
    /// The result as the model gets it.
    ///
    /// # Errors
    /// When it has no JSON form.
    fn into_output(self) -> Result<ToolOutput, ToolError>;
}

impl IntoOutput for ToolOutput {
    fn into_output(self) -> Result<ToolOutput, ToolError> {
        Ok(self)
    }
}

impl<T: Serialize + Send + 'static> IntoOutput for T {
    fn into_output(self) -> Result<ToolOutput, ToolError> {
        // Written at once, not by way of a `Value`: its order of keys depends on features of other crates in the build.
        match serde_json::to_string(&self) {
            // A text is given as it is.
            Ok(json) if json.starts_with('"') => {
                Ok(ToolOutput::text(serde_json::from_str::<String>(&json).unwrap_or(json)))
            }
            Ok(json) => Ok(ToolOutput::text(json)),
            Err(error) => Err(ToolError::failed(format!("the result cannot be written as JSON: {error}"))),
        }
    }
}

impl RegistryBuilder {
    /// Adds a [`TypedTool`].
    ///
    /// # Errors
    /// As [`RegistryBuilder::tool`], and when it has no description.
    pub fn typed<T: TypedTool>(self) -> Result<Self, RegistryError> {
        let (schema, _) = described::<T>();
        let spec = ToolSpec { name: T::name(), description: T::description(), schema };
        if spec.description.trim().is_empty() {
            return Err(RegistryError::NoDescription { name: spec.name });
        }
        self.tool(Arc::new(Typed::<T> { spec, options: T::options(), tool: PhantomData }))
    }
}

/// A [`TypedTool`] as a tool.
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
        // Arguments that are none have no access to speak of: their call fails before it does anything.
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

/// Runs a call whose arguments are an `A`.
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
    // They fit the schema already; what is left is what a type demands and a schema does not say.
    match arguments::fit(&tool, std::mem::take(&mut call.args)) {
        Ok(args) => work(args, call).map(|result| result.and_then(IntoOutput::into_output)).boxed(),
        Err(message) => std::future::ready(Err(ToolError::bad_args(message))).boxed(),
    }
}

/// The schema of `A`, and its own description apart from it: that of a tool is in the tool's.
pub(crate) fn described<A: JsonSchema>() -> (Arc<Value>, Text) {
    let mut schema = Arc::unwrap_or_clone(schema::of::<A>());
    let description = match schema.as_object_mut().and_then(|schema| schema.remove("description")) {
        Some(Value::String(text)) => text.into(),
        Some(_) | None => Text::default(),
    };
    (Arc::new(schema), description)
}

/// What a tool needs that says nothing else.
pub(crate) fn own(name: &str) -> Vec<Access> {
    vec![Access { action: format!("tool:{name}").into(), resource: "*".into() }]
}

/// `HTTPGet2Things` as `http_get2_things`.
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
