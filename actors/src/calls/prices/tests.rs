use super::*;

fn prices() -> Prices {
    Prices::new()
        .with("fast", Price::new(1.0, 2.0))
        .with("lab/*", Price::new(3.0, 4.0))
        .with("lab/big-*", Price::new(5.0, 6.0))
        .with("lab/big-9", Price::new(7.0, 8.0))
}

fn input_price(names: &[&str]) -> Option<f64> {
    prices().of(names.iter().copied()).map(|price| price.input)
}

#[test]
fn exact_price_takes_precedence_over_prefixes() {
    assert_eq!(input_price(&["fast", "lab/big-9"]), Some(1.0));
    assert_eq!(input_price(&["slow", "lab/big-9"]), Some(7.0));
    assert_eq!(input_price(&["lab/big-8"]), Some(5.0));
    assert_eq!(input_price(&["lab/small"]), Some(3.0));
    assert_eq!(input_price(&["other/small", "fa"]), None);
    assert_eq!(
        input_price(&["lab/small", "fast"]),
        Some(1.0),
        "an exact match by a later name takes precedence over a prefix"
    );
    assert_eq!(Prices::new().with("*", Price::new(9.0, 9.0)).of(["anything"]), Some(&Price::new(9.0, 9.0)));
}

#[test]
fn each_part_of_a_usage_has_its_price() {
    let price = Price { cache_read: Some(0.3), cache_new: Some(3.75), reasoning: Some(20.0), ..Price::new(3.0, 15.0) };
    let usage = Usage {
        input: 1_000_000,
        output: 10_000,
        reasoning: 4_000,
        cache_new: 100_000,
        cache_read: 500_000,
        ..Usage::default()
    };
    let parts = 400_000 * 3 + 500_000 * 3 / 10 + 375_000 + 6_000 * 15 + 4_000 * 20;
    assert_eq!(price.cost(&usage), (parts, true));
}

#[test]
fn part_without_a_price_counts_as_input_and_is_marked() {
    let price = Price::new(3.0, 15.0);
    let of = |cache_read, cache_new, reasoning| {
        price.cost(&Usage { input: 100, output: 10, cache_read, cache_new, reasoning, ..Usage::default() })
    };
    assert_eq!([of(0, 0, 10), of(1, 0, 0), of(0, 1, 0)], [(450, true), (450, false), (450, false)]);
}

#[test]
fn fractions_are_rounded_up_once() {
    let price = Price::new(0.1, 0.4);
    let cost = |input, output| price.cost(&Usage { input, output, ..Usage::default() }).0;
    assert_eq!([cost(0, 0), cost(1, 0), cost(10, 0), cost(11, 1), cost(3, 1)], [0, 1, 1, 2, 1]);
}

#[test]
fn reservation_is_the_highest_possible_cost() {
    let reserved = Reserved { input: 1_000, output: 100 };
    let plain = Price::new(3.0, 15.0);
    let dear = Price { cache_new: Some(3.75), reasoning: Some(20.0), ..plain };
    assert_eq!((plain.max_cost(&reserved), dear.max_cost(&reserved)), (4_500, 5_750));
    let prices = Prices::new().with("a", plain).with("b", dear);
    assert_eq!((prices.highest_cost(&reserved), Prices::new().highest_cost(&reserved)), (Some(5_750), None));
}

#[test]
fn invalid_price_is_refused_by_name() {
    assert_eq!(prices().check(), Ok(()));
    for usd in [-1.0, f64::NAN, f64::INFINITY, 2e6] {
        let prices = prices().with("odd", Price { cache_read: Some(usd), ..Price::default() });
        let (name, bad) = prices.check().unwrap_err();
        assert_eq!((&*name, bad.price.to_bits()), ("odd", usd.to_bits()));
    }
}

#[test]
fn price_table_round_trips_through_json() {
    let text = r#"{"lab/*":{"input":3.0,"output":15.0,"cache_read":0.3}}"#;
    let read: Prices = serde_json::from_str(text).unwrap();
    assert_eq!(read, Prices::new().with("lab/*", Price { cache_read: Some(0.3), ..Price::new(3.0, 15.0) }));
    assert_eq!(serde_json::to_string(&read).unwrap(), text);
}
