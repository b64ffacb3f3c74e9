//! Tools built from closures.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;
use subtend_session::authority::Access;
use subtend_session::call::ToolEffect;
use subtend_session::ids::Text;
use subtend_session::message::ToolSpec;

use crate::display::Display;
use crate::option::ToolOption;
use crate::tool::{Tool, ToolError, ToolInvocation, ToolOutput};
use crate::typed::{self, IntoOutput};

/// Creates a tool that calls `run`.
///
/// Its calls need the permission `tool:<name>` and count as leaving the process. [`FnTool`] can change both.
pub fn fn_tool<F, R>(spec: ToolSpec, effect: ToolEffect, run: F) -> Arc<dyn Tool>
where
    F: Fn(ToolInvocation) -> R + Send + Sync + 'static,
    R: Future<Output = Result<ToolOutput, ToolError>> + Send + 'static,
{
    Arc::new(FnTool::new(spec, effect, run))
}

type BoxedRun = dyn Fn(ToolInvocation) -> BoxFuture<'static, Result<ToolOutput, ToolError>> + Send + Sync;
type Input = dyn Fn(&Value) -> Option<Text> + Send + Sync;
type Output = dyn Fn(&str) -> Option<Text> + Send + Sync;
type AccessOf = dyn Fn(Option<&Value>) -> Vec<Access> + Send + Sync;

pub struct FnTool {
    spec: ToolSpec,
    effect: ToolEffect,
    leaves_process: bool,
    access: Box<AccessOf>,
    options: Vec<ToolOption>,
    display: Display,
    input: Option<Box<Input>>,
    output: Option<Box<Output>>,
    run: Box<BoxedRun>,
}

impl FnTool {
    /// Creates a tool whose calls leave the process and need the permission `tool:<name>`.
    pub fn new<F, R>(spec: ToolSpec, effect: ToolEffect, run: F) -> Self
    where
        F: Fn(ToolInvocation) -> R + Send + Sync + 'static,
        R: Future<Output = Result<ToolOutput, ToolError>> + Send + 'static,
    {
        let name = Text::clone(&spec.name);
        Self {
            spec,
            effect,
            leaves_process: true,
            access: Box::new(move |_| typed::own_access(&name)),
            options: Vec::new(),
            display: Display::default(),
            input: None,
            output: None,
            run: Box::new(move |call| run(call).boxed()),
        }
    }

    /// Creates a tool with arguments of type `A`. The schema is derived from `A`. `run` returns a [`ToolOutput`], a text, or a value that
    /// serializes to JSON.
    ///
    /// As with [`FnTool::new`], its calls leave the process and need the permission `tool:<name>`. See also
    /// [`TypedTool`](crate::typed::TypedTool).
    ///
    /// ```
    /// use schemars::JsonSchema;
    /// use serde::Deserialize;
    /// use subtend_session::call::ToolEffect;
    /// use subtend_tools::closure::FnTool;
    /// use subtend_tools::tool::ToolInvocation;
    ///
    /// #[derive(Deserialize, JsonSchema)]
    /// struct Args {
    ///     /// The article, as in `A-17`.
    ///     article: String,
    /// }
    ///
    /// let stock = std::sync::Arc::new(std::collections::BTreeMap::from([("A-17".to_owned(), 3)]));
    /// let tool = FnTool::typed(
    ///     "in_stock",
    ///     "Returns the number of articles in stock.",
    ///     ToolEffect::ReadOnly,
    ///     move |args: Args, _call: ToolInvocation| {
    ///         let stock = std::sync::Arc::clone(&stock);
    ///         async move { Ok(stock.get(&args.article).copied().unwrap_or(0)) }
    ///     },
    /// );
    /// # let _ = tool;
    /// ```
    pub fn typed<A, O, F, R>(name: impl Into<Text>, description: impl Into<Text>, effect: ToolEffect, run: F) -> Self
    where
        A: DeserializeOwned + JsonSchema + 'static,
        O: IntoOutput,
        F: Fn(A, ToolInvocation) -> R + Send + Sync + 'static,
        R: Future<Output = Result<O, ToolError>> + Send + 'static,
    {
        let name: Text = name.into();
        let (schema, _) = typed::schema_and_description::<A>();
        let spec = ToolSpec { name: Text::clone(&name), description: description.into(), schema };
        Self {
            access: Box::new(move |_| typed::own_access(&name)),
            run: {
                let name = Text::clone(&spec.name);
                Box::new(move |call| typed::run(Text::clone(&name), call, &run))
            },
            options: Vec::new(),
            display: Display::default(),
            input: None,
            output: None,
            spec,
            effect,
            leaves_process: true,
        }
    }

    /// Declares that calls stay in the process, so that read-only calls do not wait for the journal.
    #[must_use]
    pub fn in_process(mut self) -> Self {
        self.leaves_process = false;
        self
    }

    /// Sets the accesses of a call; see [`Tool::access`]. Every authority allows an empty list.
    #[must_use]
    pub fn access(mut self, access: impl Fn(Option<&Value>) -> Vec<Access> + Send + Sync + 'static) -> Self {
        self.access = Box::new(access);
        self
    }

    #[must_use]
    pub fn option(mut self, option: ToolOption) -> Self {
        self.options.push(option);
        self
    }

    #[must_use]
    pub fn display(mut self, display: Display) -> Self {
        self.display = display;
        self
    }

    /// Sets the description of a call for users; see [`Tool::render_input`].
    #[must_use]
    pub fn render_input(mut self, render: impl Fn(&Value) -> Option<Text> + Send + Sync + 'static) -> Self {
        self.input = Some(Box::new(render));
        self
    }

    /// Sets the description of a result for users; see [`Tool::render_output`].
    #[must_use]
    pub fn render_output(mut self, render: impl Fn(&str) -> Option<Text> + Send + Sync + 'static) -> Self {
        self.output = Some(Box::new(render));
        self
    }
}

impl fmt::Debug for FnTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FnTool").field("spec", &self.spec).field("effect", &self.effect).finish_non_exhaustive()
    }
}

impl Tool for FnTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn effect(&self) -> ToolEffect {
        self.effect
    }

    fn leaves_process(&self) -> bool {
        self.leaves_process
    }

    fn access(&self, args: Option<&Value>) -> Vec<Access> {
        (self.access)(args)
    }

    fn options(&self) -> &[ToolOption] {
        &self.options
    }

    fn display(&self) -> Display {
        self.display.clone()
    }

    fn render_input(&self, args: &Value) -> Option<Text> {
        self.input.as_ref().and_then(|render| render(args))
    }

    fn render_output(&self, result: &str) -> Option<Text> {
        self.output.as_ref().and_then(|render| render(result))
    }

    fn run(&self, call: ToolInvocation) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
        (self.run)(call)
    }
}
