//! Limits from the command line: `--limit NAME=VALUE`.

use serde_json::{Map, Value};
use subtend_session::limits::Limits;

use super::super::fail::Fail;

/// The limits of `base`, with what `words` change of them.
pub(super) fn read(words: &[String], base: &Limits) -> Result<Limits, Fail> {
    let known = |limits: &Limits| match serde_json::to_value(limits) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) | Err(_) => Err(Fail::Other("the limits have no names".into())),
    };
    let mut fields = known(base)?;
    for word in words {
        let (name, value) = split(word, &fields)?;
        fields.insert(name.clone(), value);
        serde_json::from_value::<Limits>(Value::Object(fields.clone()))
            .map_err(|error| refused(&name, &fields, &error))?;
    }
    let limits: Limits =
        serde_json::from_value(Value::Object(fields)).map_err(|error| Fail::Usage(format!("{error} (--limit)")))?;
    limits.check().map_err(|error| Fail::Usage(format!("{error} (--limit)")))?;
    Ok(limits)
}

/// Why a value that is a number, or `none`, is not taken for the limit.
fn refused(name: &str, fields: &Map<String, Value>, error: &serde_json::Error) -> Fail {
    Fail::Usage(match fields.get(name) {
        Some(Value::Null) => format!("the limit `{name}` cannot be `none`: give a whole number (--limit)"),
        Some(value) => format!("`{value}` is too large for the limit `{name}` (--limit)"),
        None => format!("{error} (--limit)"),
    })
}

fn split(word: &str, fields: &Map<String, Value>) -> Result<(String, Value), Fail> {
    let names = || fields.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
    let Some((name, value)) = word.split_once('=') else {
        return Err(Fail::Usage(format!("`{word}` is no limit: write NAME=VALUE (--limit); there are: {}", names())));
    };
    let name = name.trim().replace('-', "_");
    if !fields.contains_key(&name) {
        return Err(Fail::Usage(format!("there is no limit `{name}` (--limit); there are: {}", names())));
    }
    let value = value.trim();
    if value == "none" {
        return Ok((name, Value::Null));
    }
    let number: u64 = value.parse().map_err(|_| {
        Fail::Usage(format!("`{value}` is no value for the limit `{name}`: give a whole number, or `none` (--limit)"))
    })?;
    Ok((name, number.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(words: &[&str]) -> Result<Limits, String> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        read(&words, &Limits::default()).map_err(|error| error.to_string())
    }

    #[test]
    fn limits_are_set_by_their_names() {
        let set = Limits { turns: 5, run_ms: None, first_byte_ms: 2_000, ..Limits::default() };
        assert_eq!(said(&["turns=5", "run-ms = none", "first_byte_ms=2000"]), Ok(set));
        assert_eq!(said(&[]), Ok(Limits::default()));
    }

    #[test]
    fn what_is_not_named_stays_as_the_configuration_has_it() {
        let base = Limits { spawns: 7, turns: 3, ..Limits::default() };
        let set = read(&["turns=5".to_owned()], &base).map_err(|error| error.to_string());
        assert_eq!(set, Ok(Limits { turns: 5, ..base }));
    }

    #[test]
    fn a_bad_limit_says_what_there_is() {
        let starts = |words: &[&str], begin: &str| {
            let says = said(words).unwrap_err();
            assert!(says.starts_with(begin), "{says}");
        };
        starts(&["turns"], "`turns` is no limit: write NAME=VALUE (--limit); there are: max_depth, ");
        starts(&["truns=5"], "there is no limit `truns` (--limit); there are: max_depth, ");
        starts(&["turns=many"], "`many` is no value for the limit `turns`: give a whole number, or `none` (--limit)");
        starts(&["turns=none"], "the limit `turns` cannot be `none`: give a whole number (--limit)");
        starts(&["turns=99999999999"], "`99999999999` is too large for the limit `turns` (--limit)");
        starts(&["live_runs=0"], "with the limit `live_runs` of 0 nothing could be done: give 1 or more (--limit)");
    }
}
