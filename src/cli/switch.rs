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

    /// Print one JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    store: StoreArgs,
}

pub(crate) fn run(args: &Args) -> Result<Code, Fail> {
    let (session, of) = names::message(&args.message)?;
    let to = match parse_target(&args.to)? {
        SwitchTo::Next => json!("next"),
        SwitchTo::Previous => json!("previous"),
        SwitchTo::Index(index) => json!(index),
    };
    hosted::with(&args.store, session, |hosted| {
        let done: Switched =
            hosted.control(Method::POST, "/switch", Some(&json!({"of": of.map(|of| of.0), "to": to})))?;
        let value = json!({"session": hosted.id, "of": done.of, "to": done.to});
        let text = format!("{}:{} shows alternative {}", hosted.id.short().0, done.of, done.to);
        control::report(args.json, &value, &text)
    })
}

fn parse_target(word: &str) -> Result<SwitchTo, Fail> {
    match word {
        "next" => Ok(SwitchTo::Next),
        "previous" | "prev" => Ok(SwitchTo::Previous),
        _ => word.parse().map(SwitchTo::Index).map_err(|_| {
            Fail::Usage(format!(
                "`{}` is not an alternative: give a number (0 is the original), `next` or `previous`",
                clip(word, 40)
            ))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alternative_is_a_number_or_next_or_previous() {
        assert_eq!(parse_target("2").expect("a number"), SwitchTo::Index(2));
        assert_eq!(parse_target("next").expect("a neighbour"), SwitchTo::Next);
        assert!(parse_target("-1").expect_err("none").to_string().contains("-1"));
    }
}
