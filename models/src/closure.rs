//! Models made of functions.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use subtend_session::ids::Text;

use crate::model::{Answer, Deltas, Model, ModelError, Request};

/// Returns a model that calls the function `answer` for each request. By default its calls stay in the process.
/// ```
/// use subtend_models::closure::fn_model;
/// use subtend_models::model::{Answer, Model};
/// let echo = fn_model("echo", |request, _deltas| async move { Ok(Answer::of_text(request.system)) });
/// assert_eq!(echo.name(), "echo");
/// ```
pub fn fn_model<F, Fut>(name: impl Into<Arc<str>>, answer: F) -> FnModel<F>
where
    F: Fn(Request, Deltas) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Answer, ModelError>> + Send + 'static,
{
    FnModel { name: name.into(), leaves_process: false, quotas: Vec::new(), answer }
}

#[derive(Clone)]
pub struct FnModel<F> {
    name: Arc<str>,
    leaves_process: bool,
    quotas: Vec<Text>,
    answer: F,
}

impl<F> FnModel<F> {
    /// Sets whether calls leave the process. Such a call waits until its intent record is durable.
    #[must_use]
    pub fn with_leaves_process(self, leaves_process: bool) -> Self {
        Self { leaves_process, ..self }
    }

    /// Sets the quotas of the model's calls; see [`Model::quotas`].
    #[must_use]
    pub fn with_quotas<Q: Into<Text>>(self, quotas: impl IntoIterator<Item = Q>) -> Self {
        Self { quotas: quotas.into_iter().map(Into::into).collect(), ..self }
    }
}

impl<F> fmt::Debug for FnModel<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FnModel").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<F, Fut> Model for FnModel<F>
where
    F: Fn(Request, Deltas) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Answer, ModelError>> + Send + 'static,
{
    fn name(&self) -> &str {
        &self.name
    }

    fn leaves_process(&self) -> bool {
        self.leaves_process
    }

    fn quotas(&self) -> &[Text] {
        &self.quotas
    }

    fn call(&self, request: Request, deltas: Deltas) -> BoxFuture<'static, Result<Answer, ModelError>> {
        (self.answer)(request, deltas).boxed()
    }
}

/// A model whose calls all fail with the same error.
#[derive(Clone, Debug)]
pub struct UnusableModel {
    name: Arc<str>,
    error: ModelError,
}

impl UnusableModel {
    pub fn new(name: impl Into<Arc<str>>, error: ModelError) -> Self {
        Self { name: name.into(), error }
    }
}

impl Model for UnusableModel {
    fn name(&self) -> &str {
        &self.name
    }

    fn leaves_process(&self) -> bool {
        false
    }

    fn unusable(&self) -> Option<&str> {
        Some(&self.error.message)
    }

    fn call(&self, _: Request, _: Deltas) -> BoxFuture<'static, Result<Answer, ModelError>> {
        std::future::ready(Err(self.error.clone())).boxed()
    }
}
