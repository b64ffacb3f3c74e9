use hyper::Method;
use serde_json::{Map, Value};
use subtend_actors::history::History;
use subtend_session::values::JsonText;

use super::control;
use super::data::StoreArgs;
use super::fail::{Code, Fail};
use super::hosted;
use super::json;
use super::store_reader::StoreReader;

/// Prints the metadata of a session as JSON; with changes, merges them first.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Session or branch: an id, the start of one, a short name, or a path such as `root/a3f9c1`
    session: String,

    /// Key to set. VALUE is JSON if it parses as JSON, else text; KEY=null removes the key
    #[arg(value_name = "KEY=VALUE", value_parser = parse_change)]
    changes: Vec<(String, Value)>,

    #[command(flatten)]
    store: StoreArgs,
}

pub(crate) fn run(args: &Args) -> Result<Code, Fail> {
    if args.changes.is_empty() {
        let reader = StoreReader::open_existing(&args.store)?;
        let history = History::of(&reader.records(reader.find(&args.session)?)?);
        reader.release();
        control::say(&json::text(&JsonText::of_metadata(history.metadata.as_ref()))?)?;
        return Ok(Code::Done);
    }
    let changes: Map<String, Value> = args.changes.iter().cloned().collect();
    hosted::with(&args.store, &args.session, |hosted| {
        let _: Value = hosted.call(Method::PATCH, "", Some(&serde_json::json!({"metadata": changes})))?;
        let history = History::of(&hosted.journal.records(hosted.id)?);
        control::say(&json::text(&JsonText::of_metadata(history.metadata.as_ref()))?)?;
        Ok(Code::Done)
    })
}

fn parse_change(word: &str) -> Result<(String, Value), String> {
    match word.split_once('=') {
        Some((key, value)) if !key.is_empty() => {
            Ok((key.to_owned(), serde_json::from_str(value).unwrap_or_else(|_| Value::from(value))))
        }
        _ => Err("write KEY=VALUE, such as `ticket=7`; KEY=null removes a key".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn b3_value_is_json_if_it_parses_as_json() {
        for (word, key, value) in [
            ("ticket=7", "ticket", json!(7)),
            ("owner=kim", "owner", json!("kim")),
            ("tags=[\"a\"]", "tags", json!(["a"])),
            ("gone=null", "gone", Value::Null),
            ("sum=1=1", "sum", json!("1=1")),
            ("empty=", "empty", json!("")),
        ] {
            assert_eq!(parse_change(word), Ok((key.to_owned(), value)), "{word}");
        }
        for wrong in ["ticket", "=7", ""] {
            assert!(parse_change(wrong).is_err(), "{wrong}");
        }
    }
}
