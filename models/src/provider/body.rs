//! Bodies of responses that are no answers, bounded.

use std::time::Duration;

use reqwest::Response;

/// How long the body of an error is waited for. What has come by then is shown.
const ERROR_PATIENCE: Duration = Duration::from_secs(10);

/// Reads a body up to `most` bytes, for as long as that is worth: what does not come, or comes too late, is left out.
pub(super) async fn head(mut response: Response, most: usize) -> Vec<u8> {
    let mut body = Vec::new();
    let read = async {
        while let (true, Ok(Some(chunk))) = (body.len() < most, response.chunk().await) {
            body.extend_from_slice(&chunk);
        }
    };
    // A body that is cut short here is still worth showing.
    let _ = tokio::time::timeout(ERROR_PATIENCE, read).await;
    body.truncate(most);
    body
}
