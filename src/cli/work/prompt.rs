use std::io::Read;

use super::super::fail::Fail;

/// Maximum size of a prompt in bytes, equal to the limit of one input.
const MAX_BYTES: usize = 1 << 20;

/// Returns the prompt `word`; `-` reads it from `stdin`.
pub(crate) fn read(word: &str, stdin: impl Read) -> Result<String, Fail> {
    check(if word == "-" { read_stdin(stdin)? } else { word.to_owned() })
}

/// Refuses a prompt that is empty or too large.
pub(crate) fn check(text: String) -> Result<String, Fail> {
    if text.trim().is_empty() {
        return Err(Fail::Usage("the prompt is empty: write a task, or `-` to read it from stdin".into()));
    }
    if text.len() > MAX_BYTES {
        return Err(Fail::Usage(format!(
            "the prompt is larger than {MAX_BYTES} bytes, the limit of one input: put the rest in a file of the workspace"
        )));
    }
    Ok(text)
}

fn read_stdin(stdin: impl Read) -> Result<String, Fail> {
    let mut bytes = Vec::new();
    // Read one byte more than allowed, which detects a prompt that is too large without reading all of it.
    let bound = u64::try_from(MAX_BYTES).unwrap_or(u64::MAX).saturating_add(1);
    stdin.take(bound).read_to_end(&mut bytes).map_err(|error| Fail::Other(format!("stdin cannot be read: {error}")))?;
    if bytes.len() > MAX_BYTES {
        // The truncation may have split a character. The caller then reports the size.
        return Ok(String::from_utf8_lossy(&bytes).into_owned());
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Fail::Usage(format!("the prompt on stdin is not UTF-8 text, from byte {at} on"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn invalid_prompt_error(word: &str, stdin: &[u8]) -> String {
        match read(word, stdin) {
            Err(fail @ Fail::Usage(_)) => fail.to_string(),
            other => panic!("not a usage error: {other:?}"),
        }
    }

    #[test]
    fn prompt_is_the_argument_or_all_of_stdin() {
        assert_eq!(read("search here", &b"unread"[..]).expect("a prompt"), "search here");
        assert_eq!(read("-", &b"from\nstdin\n"[..]).expect("a prompt"), "from\nstdin\n");
        assert_eq!(read("-", &vec![b'a'; MAX_BYTES][..]).expect("the most").len(), MAX_BYTES);
    }

    #[test]
    fn empty_huge_and_broken_prompts_are_usage_errors() {
        assert!(invalid_prompt_error("", b"").starts_with("the prompt is empty"));
        assert!(invalid_prompt_error("-", b" \n\t").starts_with("the prompt is empty"));
        assert!(
            invalid_prompt_error(&"a".repeat(MAX_BYTES + 1), b"")
                .starts_with("the prompt is larger than 1048576 bytes")
        );
        // Two-byte characters: the limit splits one.
        assert!(invalid_prompt_error("-", "é".repeat(MAX_BYTES).as_bytes()).starts_with("the prompt is larger"));
        assert_eq!(invalid_prompt_error("-", b"ab\xff"), "the prompt on stdin is not UTF-8 text, from byte 2 on");
    }
}
