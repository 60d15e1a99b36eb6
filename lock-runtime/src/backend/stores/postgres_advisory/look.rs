//! How a session learns that an operator has revoked some of its locks.

use std::{collections::HashSet, sync::Arc};

use super::keeper::{Keeper, rows};
use crate::{
    LockError,
    backend::kits::postgres::{
        error::Failure,
        revocations::{Last, MAX_NAMES_PER_STATEMENT, revoked},
        statement::Arg,
    },
    time::clock::Instant,
};

impl Keeper {
    /// Notifies the holders of the locks that an operator has revoked since the last look.
    pub(super) async fn look(&mut self) -> Result<(), LockError> {
        (self.revocations.looked, self.revocations.is_hinted) = (Instant::now(), false);
        let shared = Arc::clone(&self.shared);
        let last = self.run(&shared.revocations.last, Vec::new()).await;
        match last.and_then(|rows| Last::read(&rows).map_err(Failure::Refused)) {
            Ok(last) if self.revocations.has_to_read(last) => {
                let held: Vec<_> = self.held.values().cloned().collect();
                for names in held.chunks(MAX_NAMES_PER_STATEMENT) {
                    let answer = self
                        .run(&shared.revocations.revoked, vec![rows(names), Arg::Numbers(Vec::new())])
                        .await;
                    match answer.and_then(|rows| revoked(&rows).map_err(Failure::Refused)) {
                        Ok(revoked) => {
                            let revoked: HashSet<_> = revoked.into_iter().collect();
                            let numbers = names.iter().filter(|name| revoked.contains(&*name.row));
                            self.revocations.revoked.extend(numbers.map(|name| name.number));
                        }
                        // The next look finds the same.
                        Err(Failure::Refused(_) | Failure::Locked(_)) => return Ok(()),
                        Err(failure) => return Err(failure.into()),
                    }
                }
                self.revocations.has_read(last);
            }
            Ok(_) | Err(Failure::Refused(_) | Failure::Locked(_)) => {}
            Err(failure) => return Err(failure.into()),
        }
        // A holder that is not registered yet is notified after a later look. The others are notified once.
        if let Some(session) = self.session.upgrade() {
            for number in &self.revocations.revoked {
                session.lifetime.revoke(*number);
            }
        }
        Ok(())
    }
}
