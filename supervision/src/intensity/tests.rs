use proptest::prelude::*;

use super::*;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn decisions(intensity: Intensity, at_ms: &[u64]) -> Vec<RestartDecision> {
    let start = Instant::now();
    let mut budget = RestartBudget::new(intensity);
    at_ms.iter().map(|at| budget.admit(start + ms(*at), 1.0)).collect()
}

#[test]
fn restart_is_refused_when_the_window_holds_max() {
    let expected = [
        RestartDecision::After(ms(100)),
        RestartDecision::After(ms(200)),
        RestartDecision::After(ms(400)),
        RestartDecision::Exhausted,
    ];
    assert_eq!(decisions(Intensity::default(), &[0, 1, 2, 59_999]), expected);
}

#[test]
fn restart_window_slides() {
    let at = [0, 30_000, 59_999, 60_000, 60_001, 90_000];
    let expected = [
        RestartDecision::After(ms(100)),
        RestartDecision::After(ms(200)),
        RestartDecision::After(ms(400)),
        RestartDecision::After(ms(800)),
        RestartDecision::Exhausted,
        RestartDecision::After(ms(1_600)),
    ];
    assert_eq!(decisions(Intensity::default(), &at), expected);
}

#[test]
fn healthy_window_resets_the_delay() {
    let expected = [RestartDecision::After(ms(100)), RestartDecision::After(ms(200)), RestartDecision::After(ms(100))];
    assert_eq!(decisions(Intensity::default(), &[0, 10, 60_010]), expected);
}

#[test]
fn delay_doubles_up_to_the_cap() {
    let patient = Intensity { max: 100, ..Intensity::default() };
    let expected: Vec<_> =
        [100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000].map(ms).map(RestartDecision::After).into();
    assert_eq!(decisions(patient, &[0; 9]), expected);
    assert_eq!(decisions(patient, &[0; 100]).last(), Some(&RestartDecision::After(ms(10_000))));
}

#[test]
fn jitter_scales_the_delay_and_invalid_jitter_does_not() {
    let delay = |jitter| RestartBudget::new(Intensity::default()).admit(Instant::now(), jitter);
    let delays = [0.0, 0.25, 1.0, -3.0, 7.0, f64::NAN, f64::INFINITY].map(delay);
    assert_eq!(delays, [0, 25, 100, 0, 100, 100, 100].map(ms).map(RestartDecision::After));
}

#[test]
fn clock_stepping_back_does_not_admit_restarts() {
    let late = Instant::now() + ms(100_000);
    let mut budget = RestartBudget::new(Intensity::default());
    for _ in 0..3 {
        budget.admit(late, 0.0);
    }
    assert_eq!((budget.admit(late - ms(90_000), 0.0), budget.remaining(late)), (RestartDecision::Exhausted, 0));
}

#[test]
fn zero_restart_budget_is_exhausted_at_once() {
    assert_eq!(decisions(Intensity { max: 0, ..Intensity::default() }, &[0]), [RestartDecision::Exhausted]);
}

#[test]
fn storm_is_more_failures_than_the_limit_in_the_window() {
    let start = Instant::now();
    let mut storm = Storm::default();
    let within = (0..100).map(|n| storm.record_failure(start + ms(n))).filter(|storm| *storm).count();
    assert_eq!((within, storm.record_failure(start + ms(9_999))), (0, true));
    assert!(storm.record_failure(start + ms(10_000)), "the window has the failures from 1 ms on");
    assert_eq!(storm.failures.len(), 100, "a storm never stores more failures than the limit");
    assert!(!storm.record_failure(start + ms(30_000)), "a calm window ends the storm");
}

#[test]
fn zero_storm_limit_makes_every_failure_a_storm() {
    assert!(Storm::new(StormLimit { max: 0, within: ms(1) }).record_failure(Instant::now()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    #[test]
    fn window_never_exceeds_max_and_admits_all_others(
        max in 0_u32..5,
        within in 1_u64..200,
        gaps in prop::collection::vec(0_u64..100, 1..60),
    ) {
        let intensity = Intensity { max, within: ms(within), ..Intensity::default() };
        let mut at = 0;
        let times: Vec<u64> = gaps.iter().map(|gap| { at += gap; at }).collect();
        let mut admitted: Vec<u64> = Vec::new();
        for (time, verdict) in times.iter().zip(decisions(intensity, &times)) {
            let in_window = admitted.iter().filter(|before| time - **before < within).count();
            prop_assert_eq!(verdict != RestartDecision::Exhausted, in_window < max as usize);
            if verdict != RestartDecision::Exhausted {
                admitted.push(*time);
            }
        }
    }
}
