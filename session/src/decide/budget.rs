use super::draft::Draft;
use crate::context;
use crate::record::Reserved;

impl Draft<'_> {
    /// Returns the reservation of the next model call, if the tree has a budget.
    pub(super) fn reserved(&self) -> Option<Box<Reserved>> {
        let limits = &self.state.limits;
        let bounded = limits.tokens.is_some() || limits.cost_micro.is_some();
        bounded.then(|| Box::new(context::estimate(self.state)))
    }
}
