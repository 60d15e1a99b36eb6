//! The keys of one request, for one lock or for several.

use std::sync::Arc;

use http::request::Parts;
use lock_runtime::LockKey;

use crate::{KeyExtractor, KeyRejection, MissingKey, template::KeyTemplate};

/// Where a layer gets the keys of its requests.
#[derive(Clone)]
pub(crate) enum Keys {
    One(Arc<dyn KeyExtractor>),
    Several(Arc<[KeyTemplate]>),
}

/// The keys of one request.
pub(crate) enum Found {
    One(LockKey),
    Several(Vec<LockKey>),
}

impl Keys {
    /// Returns the keys of a request, or `None` if it runs without a lock.
    pub(crate) fn of(
        &self,
        parts: &mut Parts,
        missing_key: MissingKey,
    ) -> Result<Option<Found>, KeyRejection> {
        let mut find = |extractor: &dyn KeyExtractor| match extractor.extract(parts) {
            Err(rejection) if rejection.missing && missing_key == MissingKey::Skip => Ok(None),
            found => found,
        };
        match self {
            Self::One(extractor) => Ok(find(&**extractor)?.map(Found::One)),
            Self::Several(templates) => {
                let found = templates.iter().map(|template| find(template));
                let found: Vec<_> = found.filter_map(Result::transpose).collect::<Result<_, _>>()?;
                Ok(if found.is_empty() { None } else { Some(Found::Several(found)) })
            }
        }
    }
}
