//! Extractors for the page. An invalid request gets a page with the refusal.

use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use super::Refusal;
use crate::problem::Problem;

pub(super) struct PathPart<T>(pub(super) T);
pub(super) struct Query<T>(pub(super) T);
pub(super) struct FormBody<T>(pub(super) T);

fn refusal(status: StatusCode, why: String) -> Refusal {
    Refusal(match status {
        StatusCode::PAYLOAD_TOO_LARGE => Problem::new(status, "too_large", why),
        StatusCode::UNSUPPORTED_MEDIA_TYPE => Problem::new(status, "unsupported_media_type", why),
        _ => Problem::malformed(why),
    })
}

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for PathPart<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let path = axum::extract::Path::<T>::from_request_parts(parts, state).await;
        path.map(|path| Self(path.0)).map_err(|error| refusal(error.status(), error.body_text()))
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let query = axum::extract::Query::<T>::from_request_parts(parts, state).await;
        query.map(|query| Self(query.0)).map_err(|error| refusal(error.status(), error.body_text()))
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for FormBody<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refusal> {
        let form = axum::extract::Form::<T>::from_request(request, state).await;
        form.map(|form| Self(form.0)).map_err(|error| refusal(error.status(), error.body_text()))
    }
}
