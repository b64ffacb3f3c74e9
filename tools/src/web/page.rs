//! Reads the answer to a request as text of limited size, decoded by its charset.

use std::error::Error as _;

use encoding_rs::{Encoding, UTF_8};
use reqwest::{Response, Url};

use super::address::harmless_url;
use crate::tool::ToolError;

/// Maximum bytes of one page, after decompression.
pub(super) const MAX_PAGE: usize = 4 << 20;
/// Maximum bytes of a displayed content type.
const MAX_TYPE: usize = 80;
/// Number of bytes at the start of a page that are searched for a charset declaration.
const DECLARATION_BYTES: usize = 1024;

pub(super) struct Page {
    bytes: Vec<u8>,
    encoding: &'static Encoding,
    pub(super) kind: PageKind,
    /// The content type for display.
    pub(super) media: String,
    /// True if the page was longer than the limit.
    pub(super) is_cut: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageKind {
    Html,
    Text,
}

impl Page {
    /// Decodes the page. The text may have three times the bytes of the page, so a page that waits is not decoded yet.
    pub(super) fn into_text(self) -> String {
        // A byte order mark takes precedence over the charset.
        self.encoding.decode(&self.bytes).0.into_owned()
    }
}

/// Reads an answer.
///
/// # Errors
/// If the content is not text, or the server stops answering.
pub(super) async fn read(url: &Url, mut response: Response) -> Result<Page, ToolError> {
    let header = response.headers().get(reqwest::header::CONTENT_TYPE);
    let header = header.and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let media = header.split(';').next().unwrap_or_default().trim().to_lowercase();
    let (kind, shown) = (kind(&media), plain_content_type(&media));
    if kind.is_none() && !media.is_empty() {
        return Err(ToolError::failed(format!(
            "`{}` is {}, which is not text: only pages and texts are supported",
            harmless_url(url.as_str()),
            shown.map_or_else(|| "of an invalid type".to_owned(), |media| format!("`{media}`"))
        )));
    }
    // Allocated once: a buffer that grows leaves its former memory with this thread.
    let known = response.content_length().and_then(|length| usize::try_from(length).ok());
    let mut bytes = Vec::with_capacity(known.map_or(MAX_PAGE, |length| length.min(MAX_PAGE)));
    let mut is_cut = false;
    while let Some(piece) = response.chunk().await.map_err(|error| no_answer_error(url, &error))? {
        let budget = MAX_PAGE.saturating_sub(bytes.len());
        bytes.extend_from_slice(piece.get(..budget.min(piece.len())).unwrap_or_default());
        if piece.len() > budget {
            is_cut = true;
            break;
        }
    }
    if kind.is_none() && bytes.contains(&0) {
        return Err(ToolError::failed(format!(
            "`{}` is not text: only pages and texts are supported",
            harmless_url(url.as_str())
        )));
    }
    let kind = kind.unwrap_or_else(|| guess_kind(&bytes));
    let encoding = encoding(&bytes, charset(&header), kind);
    Ok(Page {
        bytes,
        encoding,
        kind,
        media: match shown {
            _ if media.is_empty() => "a page without a content type".to_owned(),
            Some(media) => media.to_owned(),
            None => "text".to_owned(),
        },
        is_cut,
    })
}

pub(super) fn no_answer_error(url: &Url, error: &reqwest::Error) -> ToolError {
    let (mut why, mut cause) = (String::new(), error.source());
    while let Some(at) = cause {
        why = at.to_string();
        cause = at.source();
    }
    let what = match error {
        error if error.is_timeout() => "did not answer in time",
        error if error.is_connect() => "cannot be reached",
        _ => "sent an invalid answer",
    };
    let why = if why.is_empty() { String::new() } else { format!(": {}", harmless_url(&why)) };
    ToolError { retryable: true, ..ToolError::failed(format!("`{}` {what}{why}", harmless_url(url.as_str()))) }
}

/// Returns a content type for display, if it consists of two short words: it is shown outside of the frame around untrusted text.
fn plain_content_type(media: &str) -> Option<&str> {
    let is_word = |word: &str| {
        !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '+' | '.' | '_'))
    };
    let (kind, name) = media.split_once('/')?;
    (media.len() <= MAX_TYPE && is_word(kind) && is_word(name)).then_some(media)
}

/// Returns the kind of a content type, or `None` if it is not text.
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

/// Guesses the kind of a page without a content type by its start.
fn guess_kind(bytes: &[u8]) -> PageKind {
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

fn encoding(bytes: &[u8], stated: Option<&'static Encoding>, kind: PageKind) -> &'static Encoding {
    stated.or_else(|| declared_encoding(bytes).filter(|_| kind == PageKind::Html)).unwrap_or(UTF_8)
}

/// Returns the charset that a page declares in its head.
fn declared_encoding(bytes: &[u8]) -> Option<&'static Encoding> {
    let start = String::from_utf8_lossy(bytes.get(..DECLARATION_BYTES).unwrap_or(bytes)).to_ascii_lowercase();
    let (_, after) = start.split_once("charset=")?;
    let label = after.trim_start_matches(['"', '\'']).split(['"', '\'', ' ', '>', ';', '/']).next()?;
    let found = Encoding::for_label(label.as_bytes())?;
    // The declaration was read as ASCII, so the page cannot be UTF-16.
    Some(if found.is_ascii_compatible() { found } else { UTF_8 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(bytes: &[u8], stated: Option<&'static Encoding>, kind: PageKind) -> String {
        let encoding = encoding(bytes, stated, kind);
        Page { bytes: bytes.to_vec(), encoding, kind, media: String::new(), is_cut: false }.into_text()
    }

    /// The former memory of a buffer that grows would stay with its thread. The control: the whole page is read.
    #[tokio::test]
    async fn memory_of_a_page_is_allocated_once() {
        let url = Url::parse("https://example.org/").unwrap();
        let of = async |body: reqwest::Body| {
            let response = http::Response::builder().header("content-type", "text/plain").body(body).unwrap();
            let page = read(&url, response.into()).await.unwrap();
            (page.bytes.len(), page.bytes.capacity(), page.is_cut)
        };
        let chunks = |count: usize| (0..count).map(|_| Ok::<_, std::io::Error>(vec![b'x'; 70_000]));
        let unknown = |count| of(reqwest::Body::wrap_stream(futures_util::stream::iter(chunks(count))));
        assert_eq!(unknown(20).await, (1_400_000, MAX_PAGE, false));
        assert_eq!(unknown(80).await, (MAX_PAGE, MAX_PAGE, true));
        assert_eq!(of(vec![b'x'; 1_400_000].into()).await, (1_400_000, 1_400_000, false));
        assert_eq!(of(vec![b'x'; MAX_PAGE + 1].into()).await, (MAX_PAGE, MAX_PAGE, true));
    }

    #[test]
    fn page_is_decoded_by_its_charset() {
        let latin = b"<meta charset=iso-8859-1>caf\xe9";
        assert_eq!(decode(latin, None, PageKind::Html), "<meta charset=iso-8859-1>caf\u{e9}");
        assert_eq!(decode(latin, None, PageKind::Text), "<meta charset=iso-8859-1>caf\u{fffd}");
        let header = "text/html; Charset=\"Shift_JIS\"";
        assert_eq!(decode(b"\x93\xfa", charset(header), PageKind::Html), "\u{65e5}");
        assert_eq!(decode(b"\xef\xbb\xbfa", charset(header), PageKind::Text), "a");
        assert_eq!(
            decode(b"<meta content='text/html; charset=utf-16'>\xc3\xa9", None, PageKind::Html).pop(),
            Some('\u{e9}')
        );
    }

    #[test]
    fn kind_accepts_text_types_only() {
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
        assert_eq!((guess_kind(b"  <!DOCTYPE HTML><p>"), guess_kind(b"hi")), (PageKind::Html, PageKind::Text));
    }
}
