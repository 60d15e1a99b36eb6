//! Compares what the pages say of each store with the stores themselves.

use std::{collections::BTreeSet, fmt::Write, time::Duration};

use super::super::{Open, STORES, Store};
use crate::{backend::Backend, options::MAX_TTL};

const PAGE: &str = include_str!("../../../docs/stores.md");
const SAFETY: &str = include_str!("../../../docs/safety.md");

const URLS: &str = "| store | URL, with optional parts in brackets | feature |";
const BEHAVIOUR: &str = "| store | kind | default prefix | timeouts in the URL | waiting order | hand-over in the process | tells \
                         of waiters | free after a crash |";

/// Returns the rows of each table of stores in `page`, with its head.
fn tables(page: &str) -> Vec<(&str, Vec<&str>)> {
    let mut lines = page.lines();
    let mut tables = Vec::new();
    while let Some(head) = lines.find(|line| line.starts_with("| store |")) {
        tables.push((head, lines.by_ref().skip(1).take_while(|line| line.starts_with('|')).collect()));
    }
    tables
}

/// Returns each store of `page`, with its row in the table that has this head.
fn rows<'p>(page: &'p str, head: &str) -> impl Iterator<Item = (&'static Store, &'p str)> + use<'p> {
    let (_, rows) = tables(page).into_iter().find(|(found, _)| *found == head).expect(head);
    STORES.iter().zip(rows)
}

fn cells(row: &str) -> Vec<&str> {
    row.trim_matches(['|', ' ']).split(" | ").collect()
}

/// Returns the name of a store, up to the place of the link on its page.
fn name(store: &Store) -> String {
    let scheme = store.schemes[0];
    format!("[`{scheme}:`](crate::backend::{}", scheme.replace(['+', '-'], "_"))
}

/// Returns the texts that are marked as code.
fn codes(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Returns the URLs on the page that are written out, without their optional parts and with them.
fn urls(cell: &str) -> Vec<String> {
    let (mut least, mut most) = (Vec::new(), Vec::new());
    for form in codes(cell).filter(|form| !form.ends_with('…')) {
        let (mut needed, mut depth) = (String::new(), 0);
        for c in form.chars() {
            match c {
                '[' => depth += 1,
                ']' => depth -= 1,
                _ if depth == 0 => needed.push(c),
                _ => {}
            }
        }
        least.push(needed);
        most.push(form.replace(['[', ']'], "").replace(":port", ":7000").replace("/db", "/1"));
    }
    [least, most].concat()
}

/// Returns the timeouts that a store claims to know when it is asked for a setting that it does not know.
fn claimed_timeouts(open: Open, url: &str) -> BTreeSet<String> {
    let error = open(&format!("{url}?no_setting=1")).map(drop).expect_err(url).to_string();
    codes(&error).filter(|setting| setting.ends_with("_timeout")).map(str::to_owned).collect()
}

fn text_of(length: Duration) -> String {
    match (length.as_secs() / 3600, length.as_secs() % 3600) {
        (hours, 0) => format!("{hours} h"),
        _ => format!("{} s", length.as_secs()),
    }
}

/// Returns the cell as it should be: what the store says, and what the page adds after a `;`.
fn with_remark(stated: &str, cell: &str) -> String {
    match cell.strip_prefix(stated) {
        Some(remark) if remark.starts_with(';') => cell.to_owned(),
        _ => stated.to_owned(),
    }
}

/// Returns the row that the page should have, with the remarks of the row that it has.
fn behaviour(store: &Store, built: &dyn Backend, timeouts: &str, row: &str) -> String {
    let can = built.capabilities();
    assert_eq!(can.name(), store.schemes[0], "metrics and traces name a store by its scheme");
    let has_leases = built.renewal().is_some();
    assert_eq!(has_leases, can.session_timeout().is_none(), "{built:?}");
    let kind = match can.session_timeout() {
        Some(timeout) => format!("session of {}", text_of(timeout)),
        None => format!("lease of up to {}", text_of(can.longest_ttl().unwrap_or(MAX_TTL))),
    };
    let prefix = match can.default_prefix() {
        "" => "none".to_owned(),
        prefix => format!("`{prefix}`"),
    };
    let timeouts = if timeouts.is_empty() { "none" } else { timeouts };
    let order = if can.is_fair() { "first come, first served" } else { "none" };
    let hand_over = if has_leases { "yes" } else { "no" };
    let tells = if can.tells_of_waiters() { "yes" } else { "no" };
    let freed = match (can.is_shared_between_processes(), has_leases) {
        (false, _) => "at once",
        (true, true) => "within the `ttl`",
        (true, false) => "within the session timeout",
    };
    let on_page = cells(row);
    let mut should = format!("| {}) |", name(store));
    for (number, stated) in
        [kind.as_str(), &prefix, timeouts, order, hand_over, tells, freed].into_iter().enumerate()
    {
        let cell = on_page.get(number + 1).copied().unwrap_or_default();
        let _ = write!(should, " {} |", with_remark(stated, cell));
    }
    should
}

#[tokio::test]
async fn the_page_says_which_stores_show_and_revoke_their_locks() {
    const SHOWN: &str = "| store | shows of a holder | shows of the waiters | how a scan reads the store |";
    const REVOKED: &str = "| store | without force | by force | who may |";
    let urls: Vec<_> = rows(PAGE, URLS).map(|(_, row)| urls(cells(row)[1])[0].clone()).collect();
    for (((store, shown), (_, revoked)), url) in rows(PAGE, SHOWN).zip(rows(PAGE, REVOKED)).zip(urls) {
        let Some(open) = store.open else { continue };
        let built = open(&url).expect(&url);
        let can = built.capabilities();
        assert_eq!(can.shows_locks(), built.operate().is_some(), "{url}");
        assert_eq!(can.shows_locks(), cells(shown)[1] != "nothing", "{shown}");
        assert_eq!(can.revokes(), !cells(revoked)[1].starts_with("no"), "{revoked}");
        assert_eq!(can.shows_locks(), cells(revoked)[2] != "no", "{revoked}");
    }
}

#[test]
fn every_table_of_stores_has_a_row_for_each() {
    for page in [PAGE, SAFETY] {
        let tables = tables(page);
        assert!(!tables.is_empty());
        for (head, rows) in tables {
            let expected: Vec<_> = STORES.iter().map(|store| format!("| {}", name(store))).collect();
            let has_all = rows.len() == expected.len()
                && rows.iter().zip(&expected).all(|(row, start)| {
                    row.strip_prefix(start.as_str()).is_some_and(|rest| rest.starts_with([')', '#']))
                });
            assert!(has_all, "below {head}\nthere should be rows that begin with\n{}", expected.join("\n"));
        }
    }
}

#[tokio::test]
async fn a_url_on_the_page_opens_its_store() {
    for (store, row) in rows(PAGE, URLS) {
        let urls_on_page = cells(row)[1];
        let mut schemes: Vec<_> =
            codes(urls_on_page).map(|url| url.split(':').next().unwrap_or_default()).collect();
        schemes.dedup();
        assert_eq!(schemes, store.schemes, "the schemes in\n{row}");
        assert_eq!(row, format!("| {}) | {urls_on_page} | `{}` |", name(store), store.feature));
        let urls = urls(urls_on_page);
        assert!(!urls.is_empty(), "{row}");
        if let Some(open) = store.open {
            for url in urls {
                open(&url).map(drop).expect(&url);
            }
        }
    }
}

#[tokio::test]
async fn the_page_says_of_each_store_what_the_store_says() {
    let built =
        |(store, row): (&'static Store, &str)| Some((store, store.open?, urls(cells(row)[1])[0].clone()));
    let compiled_in: Vec<_> = rows(PAGE, URLS).map(built).collect();
    let timeouts: BTreeSet<_> =
        compiled_in.iter().flatten().flat_map(|(_, open, url)| claimed_timeouts(*open, url)).collect();
    let mut expected = String::new();
    for (compiled_in, (_, row)) in compiled_in.iter().zip(rows(PAGE, BEHAVIOUR)) {
        let Some((store, open, url)) = compiled_in else { continue };
        let accepts = |timeout: &&String| open(&format!("{url}?{timeout}=5s")).is_ok();
        let accepted: Vec<_> =
            timeouts.iter().filter(accepts).map(|timeout| format!("`{timeout}`")).collect();
        let row_of_store = behaviour(store, &*open(url).expect(url), &accepted.join(", "), row);
        if row != row_of_store {
            let _ = writeln!(expected, "{row_of_store}");
        }
    }
    assert!(expected.is_empty(), "docs/stores.md should have these rows instead:\n{expected}");
}
