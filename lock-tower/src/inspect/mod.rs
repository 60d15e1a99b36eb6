//! A page for operators: who holds which lock, and who waits.

mod html;
mod question;
mod response;

use std::sync::Arc;

use axum::{
    Router,
    extract::{RawPathParams, State, rejection::RawPathParamsRejection},
    routing::get,
};
use http::{StatusCode, Uri};
use lock_runtime::{__private::json::lock, LockError, LockErrorKind, LockManager};
use tokio::sync::Semaphore;

use self::{
    html::Html,
    question::{Found, Question},
    response::{Response, error, json},
};

/// Returns a router that shows the locks of a store: who holds them, and who waits. It only reads; no request frees a lock.
///
/// | path | response |
/// |---|---|
/// | `/` | a page with the held locks, those with waiters first; `?prefix=user:` for the locks whose names begin so, `?key=user:42` for one lock |
/// | `/locks.json` | the held locks as JSON, with `null` for waiters that the list of the store does not show; `?prefix=user:` as above |
/// | `/locks/{key}` | one lock as JSON, held or free |
///
/// **The page is for the inside of a network only.** It shows the names of locks, of which many contain the ids of users or
/// orders, and the hosts and process ids of their holders. It has no authentication of its own: mount it behind yours, or on
/// a port that only operators can reach. Keep it away from the lock layer.
///
/// ```
/// use axum::Router;
/// use lock_runtime::LockManager;
/// use lock_tower::inspect_router;
///
/// // Serve it on a port of its own.
/// fn operators(locks: LockManager) -> Router {
///     Router::new().nest("/locks", inspect_router(locks))
/// }
/// ```
///
/// What the page shows of a holder is what the holder's process has stated, so it is a hint and no proof. The page has no
/// script and loads nothing from elsewhere; its `Content-Security-Policy` forbids both.
///
/// # Bounds
/// A list has at most 1,000 locks, and a request takes at most 5 s; beyond that, the response has what was found until then
/// and says that it is incomplete (`"complete":false`). A router asks the store for one list at a time; further requests
/// wait within their 5 s, and then get 503. The page of the [stores](lock_runtime::docs::stores#what-operators-see) says what
/// a list costs the server, and which right it needs. Of the listed locks without known waiters, the page asks for the
/// waiters of the first 100, one after the other.
///
/// # Errors
/// The response is 400 if a name is not one of a lock, 501 if the store cannot show its locks, and 503 if the store failed
/// or did not answer. In contrast to the layer's responses, it contains the error.
pub fn inspect_router(locks: LockManager) -> Router {
    let question = Arc::new(Question { locks, turn: Semaphore::new(1) });
    Router::new()
        .route("/", get(page))
        .route("/locks.json", get(list_as_json))
        .route("/locks/{*key}", get(lock_as_json))
        .with_state(question)
}

/// Returns the decoded value of a parameter in the query.
fn parameter(uri: &Uri, name: &str) -> Option<String> {
    let query = uri.query().unwrap_or_default();
    form_urlencoded::parse(query.as_bytes()).find(|(known, _)| known == name).map(|(_, value)| value.into())
}

async fn page(State(question): State<Arc<Question>>, uri: Uri) -> Response {
    let page = Html::new(&question.locks);
    if let Some(key) = parameter(&uri, "key").filter(|key| !key.is_empty()) {
        return match question.lock(&key).await {
            Ok(state) => response::html(StatusCode::OK, page.lock(&state)),
            Err(error) => response::html(response::status(&error), page.error(&error)),
        };
    }
    let prefix = parameter(&uri, "prefix").unwrap_or_default();
    match question.list(&prefix, true).await {
        Ok(found) => response::html(StatusCode::OK, page.list(&prefix, &found)),
        Err(error) => response::html(response::status(&error), page.error(&error)),
    }
}

async fn list_as_json(State(question): State<Arc<Question>>, uri: Uri) -> Response {
    let prefix = parameter(&uri, "prefix").unwrap_or_default();
    match question.list(&prefix, false).await {
        Ok(found) => json(StatusCode::OK, list(&found)),
        Err(failed) => error(&failed),
    }
}

async fn lock_as_json(
    State(question): State<Arc<Question>>,
    parameters: Result<RawPathParams, RawPathParamsRejection>,
) -> Response {
    // The router may be nested below a route that has parameters of its own.
    let parameters = parameters.ok();
    let key = parameters.iter().flatten().find(|(name, _)| *name == "key").map(|(_, key)| key.to_owned());
    let Some(key) = key else {
        return error(&LockError::new(LockErrorKind::InvalidKey, "the name in the path is no UTF-8"));
    };
    match question.lock(&key).await {
        Ok(state) => json(StatusCode::OK, lock(&state, true)),
        Err(failed) => error(&failed),
    }
}

fn list(found: &Found) -> String {
    let locks: Vec<_> = found.locks.iter().map(|state| lock(state, false)).collect();
    format!(r#"{{"complete":{},"locks":[{}]}}"#, found.incomplete.is_none(), locks.join(","))
}
