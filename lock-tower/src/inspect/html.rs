//! The page as HTML. Everything that is not written here is escaped: keys, labels and clients are stated by others.

use std::{
    fmt::{self, Display, Write as _},
    time::{Duration, SystemTime},
};

use lock_runtime::{
    __private::json::timestamp,
    LockError, LockHolder, LockManager, LockWaiter, ManagerStatus,
    backend::{LockState, ServerStatus},
};

use super::question::Found;

const STYLE: &str = include_str!("style.css");
/// Upper bound on the waiters of one lock that a list names.
const NAMED_WAITERS: usize = 3;

/// The parts that all pages have.
pub(super) struct Html {
    store: &'static str,
    status: ManagerStatus,
}

/// A text of others.
struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

impl Html {
    pub(super) fn new(locks: &LockManager) -> Self {
        Self { store: locks.capabilities().name(), status: locks.status() }
    }

    /// The page of a list.
    pub(super) fn list(&self, prefix: &str, found: &Found) -> String {
        let mut body = String::new();
        let waiters: usize = found.locks.iter().map(|lock| lock.waiters.len()).sum();
        let _ = write!(body, "<h2>{} held, {} waiting", count(found.locks.len(), "lock"), waiters);
        if !prefix.is_empty() {
            let _ = write!(body, " under <bdi>{}</bdi>", Escaped(prefix));
        }
        body.push_str("</h2>");
        if let Some(why) = found.incomplete {
            let _ = write!(body, "<p class=note>Not all: {why}. Search for a longer beginning.</p>");
        }
        if found.locks.is_empty() && found.incomplete.is_none() {
            body.push_str("<p class=empty>No lock is held.</p>");
        } else if !found.locks.is_empty() {
            table(&mut body, &found.locks, NAMED_WAITERS);
        }
        self.page(prefix, &body)
    }

    /// The page of one lock.
    pub(super) fn lock(&self, state: &LockState) -> String {
        let key = Escaped(state.key.as_str());
        let mut body = format!("<h2><bdi class=key>{key}</bdi></h2>");
        if state.is_held() {
            table(&mut body, std::slice::from_ref(state), 0);
        } else {
            body.push_str("<p class=empty>The lock is free.</p>");
        }
        if !state.waiters.is_empty() {
            body.push_str("<h2>Waiting, in the order in which the store knows them</h2><ol>");
            for waiter in &state.waiters {
                let _ = write!(body, "<li>{}</li>", Waiter(waiter));
            }
            body.push_str("</ol>");
        }
        self.page("", &body)
    }

    pub(super) fn error(&self, error: &LockError) -> String {
        self.page("", &format!("<p class=error>{}</p>", Escaped(&error.to_string())))
    }

    fn page(&self, prefix: &str, body: &str) -> String {
        let Self { store, status } = self;
        let mut servers = String::new();
        for server in &status.servers {
            let _ = write!(servers, "<li>{}</li>", Server(server));
        }
        format!(
            "<!doctype html><html lang=en><meta charset=utf-8>\
             <meta name=viewport content=\"width=device-width,initial-scale=1\">\
             <meta name=color-scheme content=\"light dark\"><title>Locks</title><style>{STYLE}</style>\
             <header><h1><a href=\"?\">Locks</a></h1><form><input name=prefix type=search value=\"{}\" \
             placeholder=\"beginning of a name\" aria-label=\"beginning of a name\"><button>Search</button></form>\
             </header><main>{body}</main><footer><ul><li>{}</li>{servers}</ul><p>This process: {} held, {} waiting, \
             {} in doubt. As of {}. Clients and labels are what the holders state. This page shows names and \
             programs to all who can open it, so it belongs inside a network.</p></footer></html>",
            Escaped(prefix),
            Escaped(store),
            status.held,
            status.waiting,
            count(status.in_doubt, "release"),
            timestamp(SystemTime::now()),
        )
    }
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// Appends a table of locks, with the names of some waiters of each lock.
fn table(html: &mut String, locks: &[LockState], named_waiters: usize) {
    html.push_str(
        "<table><thead><tr><th>Lock<th>Held by<th>Held for<th>Lease left<th>Token<th>Waiting</thead><tbody>",
    );
    for lock in locks {
        for (i, holder) in lock.holders.iter().enumerate() {
            row(html, lock, holder, (i == 0).then_some(named_waiters));
        }
    }
    html.push_str("</tbody></table>");
}

/// Appends a row; only the first holder's row shows the waiters.
fn row(html: &mut String, lock: &LockState, holder: &LockHolder, named_waiters: Option<usize>) {
    let name = lock.key.as_str();
    let link: String = form_urlencoded::byte_serialize(name.as_bytes()).collect();
    let _ = write!(
        html,
        "<tr><td data-name=Lock><a href=\"?key={link}\"><bdi class=key>{}</bdi></a><td data-name=\"Held by\">",
        Escaped(name)
    );
    named(html, holder.client(), holder.label());
    if holder.is_foreign() {
        html.push_str(" <span class=tag>other library</span>");
    }
    if holder.is_revoked() {
        html.push_str(" <span class=tag>revoked</span>");
    }
    html.push_str("<td data-name=\"Held for\">");
    if let Some(since) = holder.since() {
        let age = SystemTime::now().duration_since(since).unwrap_or_default();
        let _ =
            write!(html, "<time datetime=\"{0}\" title=\"{0}\">{1}</time>", timestamp(since), Length(age));
    }
    html.push_str("<td data-name=\"Lease left\">");
    match holder.remaining() {
        Some(Duration::MAX) => html.push_str("never ends"),
        Some(left) => _ = write!(html, "{}", Length(left)),
        None => {}
    }
    html.push_str("<td data-name=Token class=token>");
    if let Some(token) = holder.token() {
        let _ = write!(html, "{}", token.get());
    }
    html.push_str("<td data-name=Waiting>");
    if let Some(named_waiters) = named_waiters
        && !lock.waiters.is_empty()
    {
        let _ = write!(html, "<b>{}</b>", lock.waiters.len());
        let known = lock.waiters.iter().filter(|waiter| waiter.client().or(waiter.label()).is_some());
        for waiter in known.take(named_waiters) {
            let _ = write!(html, "<small>{}</small>", Waiter(waiter));
        }
    }
    html.push_str("</tr>");
}

/// Appends a client and its label, as far as they are known.
fn named(html: &mut String, client: Option<&str>, label: Option<&str>) {
    let client = client.unwrap_or("unknown");
    let _ = write!(html, "<bdi class=client>{}</bdi>", Escaped(client));
    if let Some(label) = label {
        let _ = write!(html, " <bdi class=label>{}</bdi>", Escaped(label));
    }
}

struct Waiter<'a>(&'a LockWaiter);

impl Display for Waiter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut html = String::new();
        named(&mut html, self.0.client(), self.0.label());
        f.write_str(&html)
    }
}

struct Server<'a>(&'a ServerStatus);

impl Display for Server<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(server) = self;
        let (class, word) =
            if server.is_reachable() { ("up", "reachable") } else { ("down", "not reachable") };
        write!(f, "<span class={class}>{word}</span> {}", Escaped(server.address()))?;
        if let Some(age) = server.last_answer_age() {
            write!(f, ", answered {} ago", Length(age))?;
        }
        match server.error() {
            Some(error) => write!(f, ": {}", Escaped(&error.to_string())),
            None => Ok(()),
        }
    }
}

/// A length of time as a person reads it.
struct Length(Duration);

impl Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, millis) = (self.0.as_secs(), self.0.subsec_millis());
        match seconds {
            0 => write!(f, "{millis} ms"),
            1..10 => write!(f, "{seconds}.{} s", millis / 100),
            10..120 => write!(f, "{seconds} s"),
            120..7_200 => write!(f, "{} min", seconds / 60),
            7_200..172_800 => write!(f, "{} h", seconds / 3_600),
            _ => write!(f, "{} d", seconds / 86_400),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_others_are_no_markup() {
        let text = Escaped(r#"<script>alert("&'")</script>"#).to_string();
        assert_eq!(text, "&lt;script&gt;alert(&quot;&amp;&#39;&quot;)&lt;/script&gt;");
    }

    #[test]
    fn lengths_are_short() {
        for (millis, text) in [
            (0, "0 ms"),
            (999, "999 ms"),
            (1_250, "1.2 s"),
            (59_999, "59 s"),
            (119_000, "119 s"),
            (120_000, "2 min"),
            (7_199_000, "119 min"),
            (7_200_000, "2 h"),
            (172_800_000, "2 d"),
        ] {
            assert_eq!(Length(Duration::from_millis(millis)).to_string(), text);
        }
    }
}
