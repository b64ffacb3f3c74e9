//! `subtend switch`: another alternative of an answer is seen.

use hyper::Method;
use serde_json::json;
use subtend_session::command::SwitchTo;

use super::answers::Switched;
use super::control;
use super::data::StoreArgs;
use super::fail::{Code, Fail};
use super::hosted;
use super::names;
use super::paint::clip;

/// Chooses the alternative of an answer that the session continues with.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Answer: SESSION:RECORD as `subtend show` names it, or SESSION for its last one that has alternatives
    message: String,

    /// Alternative: 0 is the original, then 1, 2, …; or `next`, `previous`
    to: String,

    #[command(flatten)]
    store: StoreArgs,
}

pub(crate) fn verb(args: &Args) -> Result<Code, Fail> {
    let (session, of) = names::message(&args.message)?;
    let to = match read(&args.to)? {
        SwitchTo::Next => json!("next"),
        SwitchTo::Previous => json!("previous"),
        SwitchTo::Index(index) => json!(index),
    };
    hosted::with(&args.store, session, |hosted| {
        let done: Switched =
            hosted.control(Method::POST, "/switch", Some(&json!({"of": of.map(|of| of.0), "to": to})))?;
        control::say(&format!("{}:{} shows alternative {}", hosted.id.short().0, done.of, done.to))?;
        Ok(Code::Done)
    })
}

fn read(word: &str) -> Result<SwitchTo, Fail> {
    match word {
        "next" => Ok(SwitchTo::Next),
        "previous" | "prev" => Ok(SwitchTo::Previous),
        _ => word.parse().map(SwitchTo::Index).map_err(|_| {
            Fail::Usage(format!(
                "`{}` is not an alternative: give a number from 0 on, `next` or `previous`",
                clip(word, 40)
            ))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alternative_is_a_number_or_a_neighbour() {
        assert_eq!(read("2").expect("a number"), SwitchTo::Index(2));
        assert_eq!(read("next").expect("a neighbour"), SwitchTo::Next);
        assert!(read("-1").expect_err("none").to_string().contains("-1"));
    }
}
