//! Owners in the server's type `uuid`. (The driver's own feature for that type is not used, because this feature would
//! add the driver's crates for other databases to the `Cargo.lock` of each user.)

use std::str::FromStr;

use sqlx::{
    Encode, Postgres, Type,
    encode::IsNull,
    error::BoxDynError,
    postgres::{PgArgumentBuffer, PgHasArrayType, PgTypeInfo, types::Oid},
};

/// A `uuid`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Uuid(pub(crate) u128);

/// Reads a `uuid` as the server writes it, or without the dashes.
impl FromStr for Uuid {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let digits = text.replace('-', "");
        if digits.len() != 32 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(());
        }
        u128::from_str_radix(&digits, 16).map(Self).map_err(|_| ())
    }
}

/// The numbers of the type and of its arrays, the same on all servers (`pg_type.dat`).
impl Type<Postgres> for Uuid {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(Oid(2950))
    }
}

impl PgHasArrayType for Uuid {
    fn array_type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(Oid(2951))
    }
}

impl Encode<'_, Postgres> for Uuid {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        buffer.extend_from_slice(&self.0.to_be_bytes());
        Ok(IsNull::No)
    }
}
