use lock_runtime::lock_key;

fn main() {
    let id = 7;
    let missing: Option<u64> = None;
    let _ = lock_key!("user:<idd>");
    let _ = lock_key!("user:<missing>");
    let _ = lock_key!("user:{id}");
    let _ = lock_key!("user:<id + 1>");
    let _ = lock_key!(id);
    let _ = lock_key!("user:<id>", ttl = "1s");
    let _ = lock_key!();
}
