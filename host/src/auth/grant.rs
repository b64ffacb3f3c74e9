use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::tokens::TokenScope;

/// The rights of a token: a scope, and for [`TokenScope::Work`] the remote tools whose calls the token may answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenGrant {
    scope: TokenScope,
    /// Remote tools whose calls the token may answer; `None` for all.
    tools: Option<Arc<[String]>>,
}

impl TokenGrant {
    /// Creates a grant of `scope`, limited to calls of `tools` unless they are `None`.
    pub(super) fn new(scope: TokenScope, tools: Option<&[String]>) -> Self {
        Self { scope, tools: tools.map(Arc::from) }
    }

    /// Returns the scope.
    pub fn scope(&self) -> TokenScope {
        self.scope
    }

    /// Returns whether the token may answer calls of the remote tool `name`.
    pub(crate) fn answers(&self, name: &str) -> bool {
        self.tools.as_ref().is_none_or(|tools| tools.iter().any(|tool| tool == name))
    }
}

impl From<TokenScope> for TokenGrant {
    fn from(scope: TokenScope) -> Self {
        Self { scope, tools: None }
    }
}

/// Formats as `SCOPE`, or `work:TOOL,TOOL`. Names of remote tools consist of letters, digits, `_` and `-`.
impl fmt::Display for TokenGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.tools {
            None => self.scope.fmt(f),
            Some(tools) => write!(f, "{}:{}", self.scope, tools.join(",")),
        }
    }
}

impl FromStr for TokenGrant {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (scope, tools) = match text.split_once(':') {
            None => (text, None),
            Some((scope, tools)) => (scope, Some(tools.split(',').map(str::to_owned).collect())),
        };
        let scope = [TokenScope::Read, TokenScope::Act, TokenScope::Admin, TokenScope::Work]
            .into_iter()
            .find(|of| of.to_string() == scope)
            .ok_or(())?;
        Ok(Self { scope, tools })
    }
}
