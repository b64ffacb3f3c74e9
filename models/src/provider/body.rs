//! Bounded bodies of error responses.

use std::time::Duration;

use reqwest::Response;

/// Maximum wait for the body of an error; the part received until then is shown.
const ERROR_TIMEOUT: Duration = Duration::from_secs(10);

/// Reads up to `most` bytes of a body; further and late bytes are dropped.
pub(super) async fn head(mut response: Response, most: usize) -> Vec<u8> {
    let mut body = Vec::new();
    let read = async {
        while let (true, Ok(Some(chunk))) = (body.len() < most, response.chunk().await) {
            body.extend_from_slice(&chunk);
        }
    };
    // A truncated body is still worth showing.
    let _ = tokio::time::timeout(ERROR_TIMEOUT, read).await;
    body.truncate(most);
    body
}
