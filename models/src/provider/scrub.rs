pub(super) const MASK: &str = "[key]";

const PREFIXES: [&str; 6] = ["sk-", "sk_", "AIza", "gsk_", "xai-", "hf_"];

/// Names before a key, in headers, addresses and JSON.
const NAMES: [&str; 8] =
    ["bearer", "x-goog-api-key", "x-api-key", "api-key", "api_key", "apikey", "authorization", "key"];

/// Removes `key` and everything that resembles a key, because a server may echo its input.
pub(super) fn scrub(text: &str, key: Option<&str>) -> String {
    let text = match key.filter(|key| key.len() >= 4) {
        Some(key) => text.replace(key, MASK).replace(&escape(key), MASK),
        None => text.to_owned(),
    };
    let mut out = String::with_capacity(text.len());
    let mut rest = text.as_str();
    // True after a name such as `api_key`: the next word is its value.
    let mut named = false;
    while !rest.is_empty() {
        let word = rest.find(|c| !is_key(c)).map_or(rest, |end| rest.get(..end).unwrap_or(rest));
        if word.is_empty() {
            let Some(sign) = rest.chars().next() else { break };
            out.push(sign);
            rest = rest.get(sign.len_utf8()..).unwrap_or_default();
            named &= matches!(sign, ' ' | ':' | '=' | '"' | '\'' | '\\');
            continue;
        }
        rest = rest.get(word.len()..).unwrap_or_default();
        let next = rest.chars().next();
        let lower = word.to_ascii_lowercase();
        let is_name = NAMES.contains(&lower.as_str());
        if resembles_key(word) || named && !is_name && word != "key" {
            out.push_str(MASK);
            named = false;
        } else {
            out.push_str(word);
            // Matches `key: x`, `key=x`, `"key": "x"`, `Bearer x`, but not `the key was refused`.
            let assigned = match next {
                Some('=' | ':') => true,
                Some('"' | '\'' | '\\') => rest.trim_start_matches(['"', '\'', '\\', ' ']).starts_with([':', '=']),
                Some(' ') => lower == "bearer",
                _ => false,
            };
            named = is_name && assigned;
        }
    }
    out
}

/// Returns whether `c` may be part of a key. A server may mask some characters with `*` or `…`.
fn is_key(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '*' | '+' | '/' | '%' | '~' | '…')
}

fn resembles_key(word: &str) -> bool {
    PREFIXES.iter().any(|prefix| {
        word.match_indices(prefix).any(|(at, _)| {
            let begins = at == 0 || word.get(..at).is_some_and(|before| before.ends_with(['/', '.', '%', '+']));
            begins && word.len().saturating_sub(at) >= prefix.len().saturating_add(6)
        })
    })
}

fn escape(key: &str) -> String {
    key.bytes()
        .map(|byte| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => char::from(byte).to_string(),
            other => format!("%{other:02X}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn key_and_similar_texts_are_masked() {
        for (text, clean) in [
            ("Incorrect API key provided: sk-proj-abcd1234.", "Incorrect API key provided: [key]"),
            ("you sent sk-ab***********wxyz", "you sent [key]"),
            ("Authorization: Bearer abc.def/ghi+x", "Authorization: Bearer [key]"),
            ("{\"x-api-key\": \"topsecret\"}", "{\"x-api-key\": \"[key]\"}"),
            ("x-goog-api-key=AIzaSyA1234567890 was", "x-goog-api-key=[key] was"),
            ("https://host/v1?key=topsecret&alt=sse", "https://host/v1?key=[key]&alt=sse"),
            ("{\\\"api_key\\\":\\\"topsecret\\\"}", "{\\\"api_key\\\":\\\"[key]\\\"}"),
            ("the key was refused, and the desk-top too", "the key was refused, and the desk-top too"),
            ("bad request: monkey=5", "bad request: monkey=5"),
        ] {
            assert_eq!(scrub(text, None), clean);
        }
    }

    #[test]
    fn key_of_any_form_is_masked_by_value() {
        assert_eq!(scrub("you sent plain!word twice: plain!word", Some("plain!word")), "you sent [key] twice: [key]");
        assert_eq!(scrub("at ?k=plain%21word", Some("plain!word")), "at ?k=[key]");
    }

    proptest! {
        #[test]
        fn key_is_always_masked(before in "\\PC{0,40}", after in "\\PC{0,40}", key in "[!-~]{6,40}") {
            prop_assume!(!MASK.contains(&key));
            let clean = scrub(&format!("{before}{key}{after}"), Some(&key));
            prop_assert!(!clean.contains(&key), "{clean}");
        }
    }
}
