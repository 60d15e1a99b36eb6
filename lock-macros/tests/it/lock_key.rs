//! `lock_key!` in the places where it is used.

#![deny(warnings, clippy::pedantic)]

use lock_runtime::{
    LockError, LockErrorKind, LockManager, backend::Memory, current, distributed_lock, lock_key,
};

struct User {
    id: u64,
    r#type: &'static str,
}

impl User {
    fn key(&self) -> Result<lock_runtime::LockKey, lock_runtime::LockError> {
        lock_key!("<self.r#type>/<self.id>")
    }
}

fn text(key: Result<lock_runtime::LockKey, lock_runtime::LockError>) -> String {
    key.expect("valid").as_str().to_owned()
}

#[test]
fn values_are_taken_from_where_it_stands() {
    let user = User { id: 7, r#type: "a:b" };
    let pair = (1, "x/y");
    assert_eq!(text(lock_key!("user:<user.id>")), "user:7");
    assert_eq!(text(user.key()), "a%3Ab/7");
    assert_eq!(text(lock_key!("<pair.0>:<pair.1>",)), "1:x%2Fy");
    assert_eq!(text(lock_key!("fixed")), "fixed");
    assert_eq!(text(lock_key!("<<user>>:<user.id>")), "<user>:7");
    let r#fn = "raw";
    assert_eq!(text(lock_key!("<r#fn>")), "raw");
    let keys: Vec<_> = (1..3).map(|id| text(lock_key!("user:<id>"))).collect();
    assert_eq!(keys, ["user:1", "user:2"]);
    // Used, not moved.
    let owned = String::from("é");
    assert_eq!((text(lock_key!("<owned>")), owned.as_str()), ("é".into(), "é"));
}

#[tokio::test]
async fn the_template_is_the_class_of_the_lock() {
    #[distributed_lock(key = "user:<id>", manager = locks)]
    async fn one(locks: &LockManager, id: u64) -> Result<&'static str, LockError> {
        Ok(current().expect("held").key().class())
    }
    let locks = LockManager::new(Memory::new()).class("the manager's");
    assert_eq!(one(&locks, 7).await.expect("free"), "user:<id>");
    let user = User { id: 7, r#type: "a" };
    let by_macro = locks.lock(lock_key!("user:<user.id>")).acquire().await.expect("free");
    assert_eq!(by_macro.key().class(), "user:<user.id>");
    let by_text = locks.lock("user:8").acquire().await.expect("free");
    assert_eq!(by_text.key().class(), "the manager's");
    let by_call =
        locks.all([lock_key!("user:<user.id>:a")]).class("the call's").acquire().await.expect("free");
    assert_eq!(by_call.held().get("user:7:a").expect("held").key().class(), "the call's");
    assert_eq!(lock_runtime::LockKey::new("plain").expect("valid").class(), "other");
}

#[test]
fn names_of_its_own_hide_none() {
    let (key, name, options) = ("k", "n", "o");
    assert_eq!(text(lock_key!("<key>:<name>:<options>")), "k:n:o");
}

#[test]
fn it_means_what_is_written_also_inside_another_macro() {
    macro_rules! user_key {
        ($template:literal) => {{
            let id = "the macro's";
            let _ = id;
            lock_key!($template)
        }};
    }
    macro_rules! its_own {
        ($id:expr) => {{
            let id = $id;
            lock_key!("user:<id>")
        }};
    }
    let id = 42;
    assert_eq!(text(user_key!("user:<id>")), "user:42");
    assert_eq!(text(its_own!(id + 1)), "user:43");
}

#[test]
fn a_value_without_text_is_refused() {
    let id = "";
    let error = lock_key!("user:<id>").expect_err("empty");
    assert_eq!(error.kind(), LockErrorKind::InvalidKey);
    assert!(error.to_string().contains("<id>"), "{error}");
    let id = "x".repeat(600);
    assert_eq!(lock_key!("user:<id>").expect_err("too long").kind(), LockErrorKind::InvalidKey);
}

mod facade {
    pub(crate) use lock_runtime as locks;
}

#[test]
fn the_runtime_may_be_somewhere_else() {
    let id = 7;
    assert_eq!(text(lock_key!("user:<id>", crate = facade::locks)), "user:7");
}

#[tokio::test]
async fn it_is_the_lock_that_the_attribute_takes() {
    #[distributed_lock(key = "<tenant>/user:<id>", manager = locks, wait = "0s")]
    async fn charge(locks: &LockManager, tenant: &str, id: u64) -> Result<(), lock_runtime::LockError> {
        Ok(())
    }
    let locks = LockManager::new(Memory::new());
    let (tenant, id) = ("a/b:c", 7);
    // No `?` after `lock_key!`: its error would be reported by `acquire`.
    let guard = locks.lock(lock_key!("<tenant>/user:<id>")).acquire().await.expect("free");
    let error = charge(&locks, tenant, id).await.expect_err("held");
    assert_eq!(error.kind(), LockErrorKind::Contended);
    guard.release().await.expect("held");
    charge(&locks, tenant, id).await.expect("free");
}

#[tokio::test]
async fn a_lock_of_a_key_without_text_cannot_be_acquired() {
    let locks = LockManager::new(Memory::new());
    let id = "";
    let error = locks.lock(lock_key!("user:<id>")).acquire().await.expect_err("no key");
    assert_eq!(error.kind(), LockErrorKind::InvalidKey);
}
