//! The hash slots of a Redis Cluster: each name is in one of 16,384 slots, and each slot is on one server.

use std::sync::LazyLock;

use crc::{CRC_16_XMODEM, Crc};

/// Number of slots.
pub(crate) const SLOTS: usize = COUNT as usize;

const COUNT: u16 = 16_384;

const CRC: Crc<u16> = Crc::<u16>::new(&CRC_16_XMODEM);

/// A hash slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Slot(u16);

impl Slot {
    /// Returns the slot of a name: that of the text between the first `{` and the next `}`, if there is such a text, and
    /// otherwise that of the whole name.
    pub(crate) fn of(name: &str) -> Self {
        let tag = name.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
        Self::of_text(tag.filter(|tag| !tag.is_empty()).unwrap_or(name).as_bytes())
    }

    /// Returns the slot of this number.
    pub(crate) fn numbered(number: u16) -> Option<Self> {
        (number < COUNT).then_some(Self(number))
    }

    fn of_text(text: &[u8]) -> Self {
        Self(CRC.checksum(text) % COUNT)
    }

    /// Returns the number of the slot, less than [`SLOTS`].
    pub(crate) fn number(self) -> usize {
        self.0.into()
    }

    /// Returns a text in this slot, always the same: a hash tag by which a name gets into the slot.
    pub(crate) fn tag(self) -> &'static str {
        str::from_utf8(&TAGS[self.number()]).unwrap_or_default()
    }
}

/// A text in each slot: the first one in the order of counting with these digits, least significant digit first. The texts
/// are part of the storage format.
static TAGS: LazyLock<Box<[[u8; 4]]>> = LazyLock::new(|| {
    const DIGITS: &[u8; 32] = b"0123456789abcdefghijklmnopqrstuv";
    let mut tags = vec![[0; 4]; SLOTS].into_boxed_slice();
    let mut missing = SLOTS;
    for number in 0_usize.. {
        let text = [0, 5, 10, 15].map(|bits| DIGITS[number >> bits & 31]);
        let tag = &mut tags[Slot::of_text(&text).number()];
        if *tag == [0; 4] {
            *tag = text;
            missing -= 1;
        }
        if missing == 0 {
            break;
        }
    }
    tags
});

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers are the server's answers to `CLUSTER KEYSLOT`.
    #[test]
    fn names_are_in_the_slots_that_the_server_says() {
        for (name, slot) in [
            ("foo", 12_182),
            ("somekey", 11_058),
            ("foo{hash_tag}", 2_515),
            ("bar{hash_tag}", 2_515),
            ("{user1000}.following", 3_443),
            ("foo{}{bar}", 8_363),
            ("foo{{bar}}zap", 4_015),
            ("foo{bar}{zap}", 5_061),
            ("lock:user:42", 12_270),
        ] {
            assert_eq!(Slot::of(name).number(), slot, "{name}");
        }
    }

    #[test]
    fn each_slot_has_a_tag_that_stays_the_same() {
        for number in 0..SLOTS {
            let slot = Slot::numbered(u16::try_from(number).expect("small")).expect("a slot");
            assert_eq!(Slot::of(&format!("lock:~1:{{{}}}:fence", slot.tag())), slot);
        }
        assert_eq!([0, 1, 16_383].map(|number| Slot(number).tag()), ["3560", "3it0", "aj50"]);
        assert_eq!(Slot::numbered(16_384), None);
    }
}
