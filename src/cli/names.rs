use subtend_journal::Journal;
use subtend_session::ids::{Seq, SessionId};

use super::damaged_sessions::DamagedSessions;
use super::fail::Fail;
use super::find;
use super::paint::clip;

/// Finds a session by its typed name.
pub(crate) fn find(journal: &Journal, name: &str) -> Result<SessionId, Fail> {
    let (heads, damaged) = DamagedSessions::split(journal)?;
    find::find(&heads, name).map_err(|none| damaged.with_skipped(name, none))
}

/// Parses the name of a message: `SESSION:RECORD`, or `SESSION` for its last one.
pub(crate) fn message(word: &str) -> Result<(&str, Option<Seq>), Fail> {
    let Some((session, record)) = word.rsplit_once(':') else { return Ok((word, None)) };
    match record.parse::<u64>() {
        Ok(seq) if seq > 0 => Ok((session, Some(Seq(seq)))),
        _ => Err(Fail::Usage(format!(
            "`{}` is not a message: write SESSION:RECORD as `subtend show` does, such as `a3f9c1:12`, or SESSION for its \
             last one",
            clip(word, 80)
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_is_a_session_and_a_record() {
        assert_eq!(message("a3f9c1:12").expect("a message"), ("a3f9c1", Some(Seq(12))));
        assert_eq!(message("root/a3f9c1").expect("the last one"), ("root/a3f9c1", None));
        for wrong in ["a3f9c1:", "a3f9c1:x", "a3f9c1:0"] {
            assert!(message(wrong).expect_err("no message").to_string().contains("SESSION:RECORD"), "{wrong}");
        }
    }
}
