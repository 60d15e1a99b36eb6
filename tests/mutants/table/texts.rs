//! Mistakes in names, templates, durations and settings.

use super::{Edit::Rust, Mutant};

pub const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "values_keep_their_colons",
        edits: &[Rust {
            file: "key/encode.rs",
            from: "    matches!(byte, b':' | b'/'",
            to: "    !(mutant!() && byte == b':') && matches!(byte, b':' | b'/'",
        }],
        caught_by: &[
            "templates different_values_never_give_one_name",
            "templates the_values_of_a_name_can_be_read_back",
        ],
    },
    Mutant {
        name: "values_keep_their_percent_signs",
        edits: &[Rust {
            file: "key/encode.rs",
            from: "| b'}') || byte",
            to: "| b'}' if !(mutant!() && byte == b'%')) || byte",
        }],
        caught_by: &["templates the_values_of_a_name_can_be_read_back"],
    },
    Mutant {
        name: "values_keep_their_braces",
        edits: &[Rust {
            file: "key/encode.rs",
            from: "rest.bytes().position(is_encoded)",
            to: "rest.bytes().position(|byte| is_encoded(byte) && !(mutant!() && matches!(byte, b'{' | b'}')))",
        }],
        caught_by: &[
            "templates the_values_of_a_name_can_be_read_back",
            "templates every_name_of_bounded_length_is_a_key",
        ],
    },
    Mutant {
        name: "a_template_may_have_several_hash_tags",
        edits: &[Rust {
            file: "key/template.rs",
            from: "            (Self::None, \"{\") => Ok(Self::Empty),",
            to: "            (Self::None, \"{\") => Ok(Self::Empty),
            (Self::Closed, \"{\") if mutant!() => Ok(Self::Empty),",
        }],
        caught_by: &["templates every_name_of_bounded_length_is_a_key"],
    },
    Mutant {
        name: "placeholders_may_stand_side_by_side",
        edits: &[Rust {
            file: "key/template.rs",
            from: "Piece::Placeholder { path: second, .. }] = window {",
            to: "Piece::Placeholder { path: second, .. }] = window && !mutant!() {",
        }],
        caught_by: &["templates the_values_of_a_name_can_be_read_back"],
    },
    Mutant {
        name: "anything_separates_placeholders",
        edits: &[Rust {
            file: "key/template.rs",
            from: "            && !text.contains([':', '/', '{', '}'])",
            to: "            && !mutant!()
            && !text.contains([':', '/', '{', '}'])",
        }],
        caught_by: &["templates the_values_of_a_name_can_be_read_back"],
    },
    Mutant {
        name: "a_part_of_a_duration_overflows",
        edits: &[Rust {
            file: "time/duration.rs",
            from: "number.checked_mul(*factor)",
            to: "(if mutant!() { Some(number.wrapping_mul(*factor)) } else { number.checked_mul(*factor) })",
        }],
        caught_by: &["templates what_is_read_as_a_duration_is_its_sum"],
    },
    Mutant {
        name: "a_duration_overflows",
        edits: &[Rust {
            file: "time/duration.rs",
            from: "millis.checked_add(part)",
            to: "if mutant!() { Some(millis.wrapping_add(part)) } else { millis.checked_add(part) }",
        }],
        caught_by: &["templates what_is_read_as_a_duration_is_its_sum"],
    },
    Mutant {
        name: "milliseconds_are_minutes",
        edits: &[Rust {
            file: "time/duration.rs",
            from: "*name == unit)",
            to: "*name == if mutant!() && unit == \"ms\" { \"m\" } else { unit })",
        }],
        caught_by: &[
            "templates a_duration_is_read_as_it_was_written",
            "templates what_is_read_as_a_duration_is_its_sum",
        ],
    },
    Mutant {
        name: "a_setting_repeated_that_is_the_rest_of_a_password",
        edits: &[
            Rust {
                file: "backend/common/parts.rs",
                from: "        if names.any(",
                to: "        if !mutant!() && names.any(",
            },
            Rust {
                file: "backend/common/settings.rs",
                from: "        if !is_name || query.contains('@') {",
                to: "        if !mutant!() && (!is_name || query.contains('@')) {",
            },
        ],
        caught_by: &["unit backend::stores::tests::no_part_of_a_user_or_a_password_is_in_any_text"],
    },
];
