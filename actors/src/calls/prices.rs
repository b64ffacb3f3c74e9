//! Prices of model calls by model, for budgets and records.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use subtend_models::model::Model;
use subtend_models::models::{Models, Route};
use subtend_session::ids::Text;
use subtend_session::record::Reserved;
use subtend_session::usage::Usage;

/// The price of a model in US dollars per million tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// Input that was not read from a cache or written to one.
    pub input: f64,
    pub output: f64,
    /// Input read from a cache. Without this price it counts as input, and the cost is unreliable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_read: Option<f64>,
    /// Input written to a cache. Without this price it counts as input, and the cost is unreliable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_new: Option<f64>,
    /// Reasoning tokens; the default is the price of output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<f64>,
}

impl Price {
    /// Returns a price for input and output, in US dollars per million tokens.
    pub fn new(input: f64, output: f64) -> Self {
        Self { input, output, ..Self::default() }
    }
}

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{price} US dollars per million tokens is not a valid price: give a number from 0 to {MAX_PRICE}")]
pub struct BadPrice {
    pub price: f64,
}

/// Maximum price in US dollars per million tokens. A higher one is a mistake, probably of units.
const MAX_PRICE: f64 = 1e6;

/// Prices by model.
///
/// A key is a name that sessions use, or `PROVIDER/MODEL`; a trailing `*` matches any suffix. Exact keys take
/// precedence over prefixes, and longer prefixes over shorter ones.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Prices(BTreeMap<Text, Price>);

impl Prices {
    pub fn new() -> Self {
        Self::default()
    }

    #[must_use]
    pub fn with(mut self, name: impl Into<Text>, price: Price) -> Self {
        self.0.insert(name.into(), price);
        self
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Checks the prices.
    /// # Errors
    /// The name of the first invalid price, and the reason.
    pub fn check(&self) -> Result<(), (Text, BadPrice)> {
        let wrong = self.0.iter().find_map(|(name, price)| {
            let Price { input, output, cache_read, cache_new, reasoning } = *price;
            let all = [Some(input), Some(output), cache_read, cache_new, reasoning];
            let bad = all.into_iter().flatten().find(|usd| !(0.0..=MAX_PRICE).contains(usd));
            bad.map(|price| (Text::clone(name), BadPrice { price }))
        });
        wrong.map_or(Ok(()), Err)
    }

    /// Returns the price of a model with these names; earlier names take precedence.
    pub fn of<'a>(&self, names: impl IntoIterator<Item = &'a str> + Clone) -> Option<&Price> {
        let exact = names.clone().into_iter().find_map(|name| self.0.get(name));
        exact.or_else(|| names.into_iter().find_map(|name| self.of_prefix(name)))
    }

    fn of_prefix(&self, name: &str) -> Option<&Price> {
        let prefixes = self.0.iter().filter_map(|(key, price)| Some((key.strip_suffix('*')?, price)));
        let fits = prefixes.filter(|(prefix, _)| name.starts_with(prefix));
        fits.max_by_key(|(prefix, _)| prefix.len()).map(|(_, price)| price)
    }

    pub(crate) fn of_model(&self, name: &str, model: &dyn Model) -> Option<&Price> {
        if self.is_empty() {
            return None;
        }
        let quota = model.quotas().first().map_or(name, |quota| quota);
        self.of([name, quota, model.name()])
    }

    /// Returns the maximum cost of `reserved` at the highest of all prices, for a model without a known price.
    pub(crate) fn highest_cost(&self, reserved: &Reserved) -> Option<u64> {
        self.0.values().map(|price| price.max_cost(reserved)).max()
    }

    /// Returns a model behind `name` without a price, although its calls may cost something.
    pub(crate) fn unpriced_model(&self, models: &Models, name: &Text) -> Option<Text> {
        let lacks = |name: &str, model: &dyn Model| model.leaves_process() && self.of_model(name, model).is_none();
        match models.route(name) {
            Route::One(member) => lacks(&member.name, &*member.model).then_some(member.name),
            Route::Pool(members) => {
                members.iter().find(|member| lacks(&member.name, &*member.model)).map(|member| member.name.clone())
            }
        }
    }
}

impl Price {
    /// Returns the maximum cost of `reserved` in millionths of a dollar: all input may be written to a cache, and all output may be reasoning.
    pub(crate) fn max_cost(&self, reserved: &Reserved) -> u64 {
        let input = self.input.max(self.cache_new.unwrap_or(0.0));
        let output = self.output.max(self.reasoning.unwrap_or(0.0));
        cost([(reserved.input, input), (reserved.output, output)])
    }

    /// Returns the cost of `usage` in millionths of a dollar, and whether every part has a price.
    pub(crate) fn cost(&self, usage: &Usage) -> (u64, bool) {
        let cached = usage.cache_read.saturating_add(usage.cache_new);
        let known =
            (usage.cache_read == 0 || self.cache_read.is_some()) && (usage.cache_new == 0 || self.cache_new.is_some());
        let micro = cost([
            (usage.input.saturating_sub(cached), self.input),
            (usage.cache_read, self.cache_read.unwrap_or(self.input)),
            (usage.cache_new, self.cache_new.unwrap_or(self.input)),
            (usage.output.saturating_sub(usage.reasoning), self.output),
            (usage.reasoning, self.reasoning.unwrap_or(self.output)),
        ]);
        (micro, known)
    }
}

/// Returns the cost in millionths of a dollar, rounded up: a dollar per million tokens is a millionth of a dollar per token.
fn cost<const N: usize>(parts: [(u64, f64); N]) -> u64 {
    let millionths = |(tokens, usd): (u64, f64)| u128::from(tokens).saturating_mul(u128::from(millionths(usd)));
    let sum = parts.into_iter().map(millionths).fold(0, u128::saturating_add);
    u64::try_from(sum.div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// Returns a price as a whole number of millionths, so that sums are exact.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to 0..=10^12")]
fn millionths(usd: f64) -> u64 {
    (usd.clamp(0.0, MAX_PRICE) * 1e6).round() as u64
}

#[cfg(test)]
mod tests;
