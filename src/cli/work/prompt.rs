//! The prompt: from the command line or from stdin.

use std::io::Read;

use super::super::fail::Fail;

/// Bytes of a prompt at most: what the journal takes as one input.
const MOST: usize = 1 << 20;

/// Returns the prompt `word`; `-` reads it from `stdin`.
pub(crate) fn read(word: &str, stdin: impl Read) -> Result<String, Fail> {
    checked(if word == "-" { all(stdin)? } else { word.to_owned() })
}

/// Refuses a prompt that is empty or too large.
pub(crate) fn checked(text: String) -> Result<String, Fail> {
    if text.trim().is_empty() {
        return Err(Fail::Usage("the prompt is empty: say what to do, or `-` to read it from stdin".into()));
    }
    if text.len() > MOST {
        return Err(Fail::Usage(format!(
            "the prompt is larger than {MOST} bytes, the most that one input may have: put the rest in a file of the workspace"
        )));
    }
    Ok(text)
}

fn all(stdin: impl Read) -> Result<String, Fail> {
    let mut bytes = Vec::new();
    // One byte more than allowed reveals a prompt that is too large, without reading all of it.
    let bound = u64::try_from(MOST).unwrap_or(u64::MAX).saturating_add(1);
    stdin.take(bound).read_to_end(&mut bytes).map_err(|error| Fail::Other(format!("stdin cannot be read: {error}")))?;
    if bytes.len() > MOST {
        // The cut may have split a character; the size is what is wrong.
        return Ok(String::from_utf8_lossy(&bytes).into_owned());
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Fail::Usage(format!("the prompt on stdin is no UTF-8 text, from byte {at} on"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(word: &str, stdin: &[u8]) -> String {
        match read(word, stdin) {
            Err(fail @ Fail::Usage(_)) => fail.to_string(),
            other => panic!("not a usage error: {other:?}"),
        }
    }

    #[test]
    fn prompt_is_the_argument_or_all_of_stdin() {
        assert_eq!(read("search here", &b"unread"[..]).expect("a prompt"), "search here");
        assert_eq!(read("-", &b"from\nstdin\n"[..]).expect("a prompt"), "from\nstdin\n");
        assert_eq!(read("-", &vec![b'a'; MOST][..]).expect("the most").len(), MOST);
    }

    #[test]
    fn empty_huge_and_broken_prompts_are_usage_errors() {
        assert!(refused("", b"").starts_with("the prompt is empty"));
        assert!(refused("-", b" \n\t").starts_with("the prompt is empty"));
        assert!(refused(&"a".repeat(MOST + 1), b"").starts_with("the prompt is larger than 1048576 bytes"));
        // Two-byte characters: the bound cuts one in half.
        assert!(refused("-", "é".repeat(MOST).as_bytes()).starts_with("the prompt is larger"));
        assert_eq!(refused("-", b"ab\xff"), "the prompt on stdin is no UTF-8 text, from byte 2 on");
    }
}
