//! Properties of every template that compiles, for all values, and of every duration.

use std::{fmt::Write as _, time::Duration};

use lock_runtime::{
    __private::{
        KeyParts, duration,
        template::{self, Piece},
    },
    LockKey,
};
use proptest::{collection::vec, prelude::*};

/// Characters that could be mistaken for something else.
const NASTY: &str = "[:/%~ <>{}\n\u{7f}a3A%é-]{1,6}";

/// A text that may be a template, and its number of placeholders.
///
/// Most random texts separate nothing and are refused: the grammar itself is the filter.
fn text() -> impl Strategy<Value = (String, usize)> {
    let literal =
        prop_oneof!["[:/]", "(:|/|%|~| |<<|>>|a|-|3|A|%3A|é|\\}|\\{){0,3}", "[a-z]{0,3}[:/][a-z]{0,3}",];
    let place = (literal.clone(), prop_oneof![3 => Just(false), 1 => Just(true)]);
    (vec(place, 0..4), literal).prop_map(|(places, end)| {
        let mut text = String::new();
        for (number, (literal, tagged)) in places.iter().enumerate() {
            let (open, close) = if *tagged { ("{", "}") } else { ("", "") };
            write!(text, "{literal}{open}<v{number}>{close}").expect("a String takes everything");
        }
        (text + &end, places.len())
    })
}

fn template_of() -> impl Strategy<Value = (String, Vec<Piece>, usize)> {
    text().prop_filter_map("refused by the grammar", |(text, places)| {
        template::parse(&text).ok().map(|pieces| (text, pieces, places))
    })
}

/// A part of a value.
fn part() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![":", "/", "%", "~", " ", "<", ">", "{", "}", "a", "3A", "%3A", "-", "é"])
}

/// A template, and a list of values for it.
fn filled() -> impl Strategy<Value = (String, Vec<Piece>, Vec<String>)> {
    let value = prop_oneof![3 => NASTY, 1 => any::<String>().prop_filter("empty", |text| !text.is_empty())];
    template_of()
        .prop_flat_map(move |(text, pieces, places)| (Just(text), Just(pieces), vec(value.clone(), places)))
}

fn fill(pieces: &[Piece], values: &[String]) -> String {
    let mut values = values.iter();
    let mut key = KeyParts::of("class");
    for piece in pieces {
        match piece {
            Piece::Literal(text) => key.literal(text),
            Piece::Placeholder { path, .. } => key.value(path, values.next().expect("one each")),
        }
    }
    key.finish().expect("no empty value").name
}

/// Recovers the values in `name` from one promise of the grammar alone: values have no separators.
fn read_back(pieces: &[Piece], name: &str) -> Option<Vec<String>> {
    const SEPARATORS: [char; 4] = [':', '/', '{', '}'];
    let mut values = Vec::new();
    let mut rest = name;
    for (i, piece) in pieces.iter().enumerate() {
        match piece {
            Piece::Literal(text) => rest = rest.strip_prefix(text.as_str())?,
            Piece::Placeholder { .. } => {
                let end = match &pieces[i + 1..] {
                    [] => rest.len(),
                    [Piece::Literal(last)] => rest.len().checked_sub(last.len())?,
                    [Piece::Literal(next), ..] => {
                        let separator = next.find(SEPARATORS)?;
                        rest.find(SEPARATORS)?.checked_sub(separator)?
                    }
                    [Piece::Placeholder { .. }, ..] => return None,
                };
                values.push(decoded(rest.get(..end)?)?);
                rest = &rest[end..];
            }
        }
    }
    rest.is_empty().then_some(values)
}

fn decoded(value: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = value.as_bytes();
    while let [first, tail @ ..] = rest {
        if *first == b'%' {
            bytes.push(u8::from_str_radix(str::from_utf8(tail.get(..2)?).ok()?, 16).ok()?);
            rest = &tail[2..];
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    String::from_utf8(bytes).ok()
}

/// A text that parses to these pieces.
fn written(pieces: &[Piece]) -> String {
    let piece = |piece: &Piece| match piece {
        Piece::Literal(text) => text.replace('<', "<<").replace('>', ">>"),
        Piece::Placeholder { path, ty: None } => format!("<{path}>"),
        Piece::Placeholder { path, ty: Some(ty) } => format!("<{path}:{ty}>"),
    };
    pieces.iter().map(piece).collect()
}

fn duration_text(mut millis: u64) -> String {
    let mut text = String::new();
    for (unit, length) in [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)] {
        let count = millis / length;
        millis %= length;
        if count > 0 {
            write!(text, "{count}{unit}").expect("a String takes everything");
        }
    }
    if text.is_empty() { "0s".into() } else { text }
}

/// The count of a unit in a duration, from few to more than can be counted in milliseconds; `None` to leave it out.
fn count() -> impl Strategy<Value = Option<u64>> {
    proptest::option::of(prop_oneof![
        0_u64..100_000,
        any::<u64>(),
        (0..64_u32).prop_map(|bits| u64::MAX >> bits)
    ])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, max_global_rejects: 100_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Injective: a name whose values can be read back cannot come from two lists of values.
    #[test]
    fn the_values_of_a_name_can_be_read_back((text, pieces, values) in filled()) {
        let name = fill(&pieces, &values);
        prop_assert_eq!(read_back(&pieces, &name), Some(values), "{} gives {}", text, name);
    }

    /// The same for values made of a few texts in any order, each of which may be a separator.
    #[test]
    fn different_values_never_give_one_name((text, pieces, places) in template_of(), [a, b] in [part(), part()]) {
        let few = [&[a][..], &[b], &[a, a], &[a, b], &[b, a], &[b, b], &[a, b, a], &[b, a, b]].map(<[&str]>::concat);
        let mut seen = std::collections::HashMap::new();
        for number in 0..few.len().pow(u32::try_from(places).expect("few")) {
            let digit = |place: usize| number / few.len().pow(u32::try_from(place).expect("few")) % few.len();
            let values: Vec<String> = (0..places).map(|place| few[digit(place)].clone()).collect();
            let name = fill(&pieces, &values);
            if let Some(before) = seen.insert(name.clone(), values.clone()) {
                prop_assert_eq!(&before, &values, "{} gives {} for both", text, name);
            }
        }
    }

    #[test]
    fn every_name_of_bounded_length_is_a_key((text, pieces, values) in filled()) {
        let name = fill(&pieces, &values);
        let is_shown = values.iter().all(|value| !value.chars().any(|c| c.is_control() && !c.is_ascii()));
        if name.len() <= 512 && is_shown {
            prop_assert!(LockKey::new(&name).is_ok(), "{} gives {:?}", text, name);
        }
    }

    #[test]
    fn a_template_is_read_as_it_was_written((_, pieces, _) in template_of()) {
        let text = written(&pieces);
        prop_assert_eq!(template::parse(&text), Ok(pieces), "{}", text);
    }

    #[test]
    fn no_text_makes_a_parser_panic(text in any::<String>(), nasty in "[<>{}:~a%]{0,12}") {
        for text in [text, nasty] {
            let _ = (template::parse(&text), duration::parse(&text));
        }
    }

    #[test]
    fn a_duration_is_read_as_it_was_written(millis in prop_oneof![any::<u64>(), 0_u64..1_000_000_000, 0_u64..10_000]) {
        let text = duration_text(millis);
        prop_assert_eq!(duration::parse(&text), Ok(Duration::from_millis(millis)), "{}", text);
    }

    #[test]
    fn what_is_read_as_a_duration_is_its_sum(counts in [count(), count(), count(), count()]) {
        let units = [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];
        let parts = || counts.iter().zip(units).filter_map(|(count, unit)| count.map(|count| (count, unit)));
        let mut text = String::new();
        for (count, (unit, _)) in parts() {
            write!(text, "{count}{unit}").expect("a String takes everything");
        }
        // A sum that overflows is not read as another one.
        let sum: u128 = parts().map(|(count, (_, length))| u128::from(count) * length).sum();
        let written = u64::try_from(sum).ok().filter(|_| !text.is_empty()).map(Duration::from_millis);
        prop_assert_eq!(duration::parse(&text).ok(), written, "{}", text);
    }
}
