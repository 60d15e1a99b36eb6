use axum::{Router, response::IntoResponse, routing::post};
use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "report")]
async fn report() -> Result<(), LockError> {
    Ok(())
}

fn app() -> Router {
    Router::new().route("/report", post(report))
}

fn answer(error: LockError) -> impl IntoResponse {
    error
}

fn main() {
    let _ = (app, answer);
}
