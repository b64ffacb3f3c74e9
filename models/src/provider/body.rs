//! Reads bodies of error responses, with a limit.

use std::time::Duration;

use reqwest::Response;

/// Time limit for the body of an error. The part that was received in time is shown.
const ERROR_TIMEOUT: Duration = Duration::from_secs(10);

/// Reads up to `most` bytes of a body. Drops further bytes, and bytes that are late.
pub(super) async fn head(mut response: Response, most: usize) -> Vec<u8> {
    let mut body = Vec::new();
    let read = async {
        while let (true, Ok(Some(chunk))) = (body.len() < most, response.chunk().await) {
            body.extend_from_slice(&chunk);
        }
    };
    // A truncated body may still contain the reason.
    let _ = tokio::time::timeout(ERROR_TIMEOUT, read).await;
    body.truncate(most);
    body
}
