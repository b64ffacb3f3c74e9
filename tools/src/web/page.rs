//! The answer to a request, as text: its bytes within a bound, decoded by its charset.

use std::error::Error as _;

use encoding_rs::{Encoding, UTF_8};
use reqwest::{Response, Url};

use super::address::named;
use crate::tool::ToolError;

/// Bytes of one page, decompressed.
pub(super) const LONGEST: usize = 4 << 20;
/// Bytes of a type of content that is shown.
const TYPE: usize = 80;
/// Bytes in which a page declares its charset.
const DECLARED: usize = 1024;

/// A page as it was read.
pub(super) struct Page {
    pub(super) text: String,
    pub(super) kind: PageKind,
    /// The type of its content, as the server says it in two short words.
    pub(super) media: String,
    /// Whether more came than was read.
    pub(super) is_cut: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageKind {
    Html,
    Text,
}

/// Reads an answer.
///
/// # Errors
/// If its content is not text, or the server stops answering.
pub(super) async fn read(url: &Url, mut response: Response) -> Result<Page, ToolError> {
    let header = response.headers().get(reqwest::header::CONTENT_TYPE);
    let header = header.and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let media = header.split(';').next().unwrap_or_default().trim().to_lowercase();
    let (kind, shown) = (kind(&media), plain(&media));
    if kind.is_none() && !media.is_empty() {
        return Err(ToolError::failed(format!(
            "`{}` is {}, which is not text: only pages and texts are read",
            named(url.as_str()),
            shown.map_or_else(|| "of an odd type".to_owned(), |media| format!("`{media}`"))
        )));
    }
    let (mut bytes, mut is_cut) = (Vec::new(), false);
    while let Some(piece) = response.chunk().await.map_err(|error| unanswered(url, &error))? {
        let room = LONGEST.saturating_sub(bytes.len());
        bytes.extend_from_slice(piece.get(..room.min(piece.len())).unwrap_or_default());
        if piece.len() > room {
            is_cut = true;
            break;
        }
    }
    if kind.is_none() && bytes.contains(&0) {
        return Err(ToolError::failed(format!("`{}` is not text: only pages and texts are read", named(url.as_str()))));
    }
    let kind = kind.unwrap_or_else(|| sniffed(&bytes));
    let text = decoded(&bytes, charset(&header), kind);
    Ok(Page {
        text,
        kind,
        media: match shown {
            _ if media.is_empty() => "a page of no stated type".to_owned(),
            Some(media) => media.to_owned(),
            None => "text".to_owned(),
        },
        is_cut,
    })
}

/// Returns the error for a request that got no whole answer.
pub(super) fn unanswered(url: &Url, error: &reqwest::Error) -> ToolError {
    let (mut why, mut cause) = (String::new(), error.source());
    while let Some(at) = cause {
        why = at.to_string();
        cause = at.source();
    }
    let what = match error {
        error if error.is_timeout() => "did not answer in time",
        error if error.is_connect() => "cannot be reached",
        _ => "gave no answer that can be read",
    };
    let why = if why.is_empty() { String::new() } else { format!(": {}", named(&why)) };
    ToolError { retryable: true, ..ToolError::failed(format!("`{}` {what}{why}", named(url.as_str()))) }
}

/// Returns a type of content as it is shown, outside of the frame around the text of others: two short words.
fn plain(media: &str) -> Option<&str> {
    let is_word = |word: &str| {
        !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '+' | '.' | '_'))
    };
    let (kind, name) = media.split_once('/')?;
    (media.len() <= TYPE && is_word(kind) && is_word(name)).then_some(media)
}

/// Returns what a type of content is; `None` where it is not text.
fn kind(media: &str) -> Option<PageKind> {
    const TEXTS: [&str; 10] = [
        "application/json",
        "application/ld+json",
        "application/xml",
        "application/javascript",
        "application/ecmascript",
        "application/x-javascript",
        "application/yaml",
        "application/x-yaml",
        "application/toml",
        "application/x-sh",
    ];
    match media {
        "text/html" | "application/xhtml+xml" => Some(PageKind::Html),
        _ if media.starts_with("text/") || TEXTS.contains(&media) => Some(PageKind::Text),
        _ if media.starts_with("application/") && (media.ends_with("+json") || media.ends_with("+xml")) => {
            Some(PageKind::Text)
        }
        _ => None,
    }
}

/// Judges a page of no stated type by its start.
fn sniffed(bytes: &[u8]) -> PageKind {
    let start = bytes.trim_ascii_start().get(..14).unwrap_or(bytes).to_ascii_lowercase();
    match start.starts_with(b"<!doctype html") || start.starts_with(b"<html") {
        true => PageKind::Html,
        false => PageKind::Text,
    }
}

fn charset(header: &str) -> Option<&'static Encoding> {
    let of = |part: &str| {
        let (name, value) = part.split_once('=')?;
        let is_charset = name.trim().eq_ignore_ascii_case("charset");
        is_charset.then(|| value.trim().trim_matches('"').to_owned())
    };
    Encoding::for_label(header.split(';').find_map(of)?.as_bytes())
}

fn decoded(bytes: &[u8], stated: Option<&'static Encoding>, kind: PageKind) -> String {
    let encoding = stated.or_else(|| declared(bytes).filter(|_| kind == PageKind::Html)).unwrap_or(UTF_8);
    // A byte order mark goes before both.
    encoding.decode(bytes).0.into_owned()
}

/// Returns the charset that a page declares in its head.
fn declared(bytes: &[u8]) -> Option<&'static Encoding> {
    let start = String::from_utf8_lossy(bytes.get(..DECLARED).unwrap_or(bytes)).to_ascii_lowercase();
    let (_, after) = start.split_once("charset=")?;
    let label = after.trim_start_matches(['"', '\'']).split(['"', '\'', ' ', '>', ';', '/']).next()?;
    let found = Encoding::for_label(label.as_bytes())?;
    // The declaration was read as ASCII, so the page does not have two bytes a character.
    Some(if found.is_ascii_compatible() { found } else { UTF_8 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_decoded_by_its_stated_charset() {
        let latin = b"<meta charset=iso-8859-1>caf\xe9";
        assert_eq!(decoded(latin, None, PageKind::Html), "<meta charset=iso-8859-1>caf\u{e9}");
        assert_eq!(decoded(latin, None, PageKind::Text), "<meta charset=iso-8859-1>caf\u{fffd}");
        let header = "text/html; Charset=\"Shift_JIS\"";
        assert_eq!(decoded(b"\x93\xfa", charset(header), PageKind::Html), "\u{65e5}");
        assert_eq!(decoded(b"\xef\xbb\xbfa", charset(header), PageKind::Text), "a");
        assert_eq!(
            decoded(b"<meta content='text/html; charset=utf-16'>\xc3\xa9", None, PageKind::Html).pop(),
            Some('\u{e9}')
        );
    }

    #[test]
    fn only_texts_are_read() {
        let kinds = [
            "text/html",
            "text/plain",
            "application/problem+json",
            "image/png",
            "application/pdf",
            "",
            "image/svg+xml",
        ];
        let expected = [Some(PageKind::Html), Some(PageKind::Text), Some(PageKind::Text), None, None, None, None];
        assert_eq!(kinds.map(kind), expected);
        assert_eq!((sniffed(b"  <!DOCTYPE HTML><p>"), sniffed(b"hi")), (PageKind::Html, PageKind::Text));
    }
}
