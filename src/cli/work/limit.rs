//! Limits from the command line: `--limit NAME=VALUE` and `--host NAME=VALUE`.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use subtend::config::{HostConfig, Key, Loaded, Origin};
use subtend_session::limits::Limits;
use subtend_session::near::near;

use super::super::fail::Fail;
use super::found_session::FoundSession;

/// Returns the limits of sessions and the bounds of the host from configuration and options.
pub(super) fn read_limits(limits: &[String], host: &[String], loaded: &Loaded) -> Result<(Limits, HostConfig), Fail> {
    let host = read(host, &loaded.config.host, "--host")?;
    let zero = [
        ("slots", host.slots == 0),
        ("inbox", host.inbox == 0),
        ("events", host.events == 0),
        ("idle_ms", host.idle_ms == 0),
    ];
    if let Some((name, _)) = zero.iter().find(|(_, zero)| *zero) {
        return Err(Fail::Usage(format!("`{name}` is 0, so nothing could run: give 1 or more (--host)")));
    }
    let mut set: Limits = read(limits, &loaded.config.limits, "--limit")?;
    set.check().map_err(|error| Fail::Usage(format!("{error} (--limit)")))?;
    check_bounds(&set, limits, loaded, &host)?;
    set.live_runs = set.live_runs.min(host.slots);
    set.live_person_runs = set.live_person_runs.min(host.slots);
    Ok((set, host))
}

/// Checks that limits set by an option or in a file do not exceed bounds of the host. The caller lowers default limits.
pub(super) fn check_bounds(set: &Limits, options: &[String], loaded: &Loaded, host: &HostConfig) -> Result<(), Fail> {
    for (name, value) in host.exceeded_by(set) {
        let by_option =
            options.iter().any(|word| word.split('=').next().is_some_and(|of| of.trim().replace('-', "_") == name));
        if by_option || loaded.origin(&Key::from(["limits", name])) != Origin::Default {
            return Err(Fail::Usage(format!(
                "the limit `{name}` of {value} is above `slots` of the host, {}: raise that too, with `--host slots={value}` or \
                 `host.slots` in subtend.yaml",
                host.slots
            )));
        }
    }
    Ok(())
}

pub(super) fn changes(limits: &[String]) -> Result<Map<String, Value>, Fail> {
    let Ok(Value::Object(fields)) = serde_json::to_value(Limits::default()) else { return Ok(Map::new()) };
    limits.iter().map(|word| split(word, &fields, "--limit")).collect()
}

pub(super) fn describe_lowered(found: &FoundSession, host: &HostConfig) -> Result<Vec<String>, Fail> {
    let describe = |(name, value)| {
        let slots = host.slots;
        format!(
            "the session's limit `{name}` of {value} is lowered to the host's `slots`, {slots}: raise it with `--host slots={value}`"
        )
    };
    Ok(host.exceeded_by(&found.limits()?).into_iter().map(describe).collect())
}

fn read<T: Serialize + DeserializeOwned>(options: &[String], base: &T, option: &str) -> Result<T, Fail> {
    let usage = |error: &serde_json::Error| Fail::Usage(format!("{error} ({option})"));
    let Ok(Value::Object(mut fields)) = serde_json::to_value(base) else {
        return Err(Fail::Other(format!("{option} has no names")));
    };
    for word in options {
        let (name, value) = split(word, &fields, option)?;
        fields.insert(name.clone(), value);
        serde_json::from_value::<T>(Value::Object(fields.clone()))
            .map_err(|error| limit_error(&name, &fields, &error, option))?;
    }
    serde_json::from_value(Value::Object(fields)).map_err(|error| usage(&error))
}

fn limit_error(name: &str, fields: &Map<String, Value>, error: &serde_json::Error, option: &str) -> Fail {
    Fail::Usage(match fields.get(name) {
        Some(Value::Null) => format!("the limit `{name}` cannot be `none`: give a whole number ({option})"),
        Some(Value::String(value)) => {
            format!("invalid value `{value}` for the limit `{name}`: give `on` or `off` ({option})")
        }
        Some(value) => format!("`{value}` is too large for the limit `{name}` ({option})"),
        None => format!("{error} ({option})"),
    })
}

fn split(word: &str, fields: &Map<String, Value>, option: &str) -> Result<(String, Value), Fail> {
    let names = || fields.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
    let Some((name, value)) = word.split_once('=') else {
        return Err(Fail::Usage(format!(
            "`{word}` is not NAME=VALUE, such as `turns=10` ({option}); the names are {}",
            names()
        )));
    };
    let name = name.trim().replace('-', "_");
    if !fields.contains_key(&name) {
        let near = near(&name, fields.keys().map(String::as_str));
        let near = near.map_or_else(|| format!("the names are {}", names()), |near| format!("did you mean `{near}`?"));
        return Err(Fail::Usage(format!("unknown limit `{name}`; {near} ({option})")));
    }
    let value = value.trim();
    if fields.get(&name).is_some_and(Value::is_string) {
        return Ok((name, value.into()));
    }
    if value == "none" {
        return Ok((name, Value::Null));
    }
    let number: u64 = value.parse().map_err(|_| {
        Fail::Usage(format!(
            "invalid value `{value}` for the limit `{name}`: give a whole number, or `none` ({option})"
        ))
    })?;
    Ok((name, number.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use subtend_session::limits::Parking;

    fn limits_of(options: &[&str]) -> Result<Limits, String> {
        let options: Vec<String> = options.iter().map(|word| (*word).to_owned()).collect();
        let loaded = Loaded::of([]).expect("a configuration");
        read_limits(&options, &[], &loaded).map(|(limits, _)| limits).map_err(|error| error.to_string())
    }

    #[test]
    fn limits_are_set_by_their_names() {
        let set = Limits { turns: 5, run_ms: None, first_byte_ms: 2_000, ..Limits::default() };
        assert_eq!(limits_of(&["turns=5", "run-ms = none", "first_byte_ms=2000"]), Ok(set));
        assert_eq!(limits_of(&[]), Ok(Limits::default()));
        assert_eq!(limits_of(&["park=off"]), Ok(Limits { park: Parking::Off, ..Limits::default() }));
    }

    #[test]
    fn limits_not_named_stay_as_configured() {
        let base = Limits { spawns: 7, turns: 3, ..Limits::default() };
        let set = read(&["turns=5".to_owned()], &base, "--limit").map_err(|error| error.to_string());
        assert_eq!(set, Ok(Limits { turns: 5, ..base }));
    }

    #[test]
    fn unknown_limit_error_lists_the_limits() {
        let starts = |options: &[&str], begin: &str| {
            let message = limits_of(options).unwrap_err();
            assert!(message.starts_with(begin), "{message}");
        };
        starts(&["turns"], "`turns` is not NAME=VALUE, such as `turns=10` (--limit); the names are max_depth, ");
        starts(&["truns=5"], "unknown limit `truns`; did you mean `turns`? (--limit)");
        starts(&["turns=many"], "invalid value `many` for the limit `turns`: give a whole number, or `none` (--limit)");
        starts(&["turns=none"], "the limit `turns` cannot be `none`: give a whole number (--limit)");
        starts(&["turns=99999999999"], "`99999999999` is too large for the limit `turns` (--limit)");
        starts(&["park=maybe"], "invalid value `maybe` for the limit `park`: give `on` or `off` (--limit)");
        starts(&["live_runs=0"], "the limit `live_runs` is 0, so nothing could run: give 1 or more (--limit)");
    }

    #[test]
    fn a11_limit_above_the_hosts_slots_is_refused() {
        let bound = |limits: &[&str], host: &[&str], config: &str| {
            let owned = |options: &[&str]| options.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
            let layer = subtend::config::Layer::file(Origin::User("subtend.yaml".into()), config).expect("a layer");
            let loaded = Loaded::of([layer]).expect("a configuration");
            let both = read_limits(&owned(limits), &owned(host), &loaded);
            both.map(|(limits, host)| (limits.live_runs, limits.live_person_runs, host.slots))
                .map_err(|error| error.to_string())
        };
        let refused = |value: u32, slots: u32| {
            Err(format!(
                "the limit `live_runs` of {value} is above `slots` of the host, {slots}: raise that too, with `--host \
                 slots={value}` or `host.slots` in subtend.yaml"
            ))
        };
        assert_eq!(bound(&["live_runs=1000"], &[], ""), refused(1000, 256));
        assert_eq!(bound(&[], &[], "limits: {live_runs: 300}"), refused(300, 256));
        assert_eq!(bound(&[], &["slots=2"], "limits: {live_runs: 3}"), refused(3, 2));
        assert_eq!(bound(&["live_runs=1000"], &["slots=1000"], ""), Ok((1000, 64, 1000)));
        assert_eq!(bound(&["live_runs=1000"], &[], "host: {slots: 2000}"), Ok((1000, 64, 2000)));
        assert_eq!(bound(&[], &["slots=2"], ""), Ok((2, 2, 2)), "defaults are lowered");
        assert_eq!(
            bound(&[], &["slots=0"], ""),
            Err("`slots` is 0, so nothing could run: give 1 or more (--host)".to_owned())
        );
    }
}
