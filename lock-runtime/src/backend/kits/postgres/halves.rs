//! Statements about many rows. Because of a trigger, a constraint or a policy for a single row, the server may refuse a
//! whole statement.

use std::ops::Range;

use super::error::Failure;

/// Number of refusals without a success after which all rows count as refused, because the server probably refuses all
/// rows, for example because the user lacks a right.
const REFUSED_AT_ALL: u32 = 64;

/// Sends `count` items in one statement. If the server refuses the statement, each half of the items is sent in a
/// statement of its own, and so on, so that an item that the server refuses does not hold back the other items. Returns
/// a result for each item, in order.
///
/// # Cancel safety
/// Like `send`.
pub(crate) async fn in_halves<R, F>(count: usize, send: impl Fn(Range<usize>) -> F) -> Vec<Result<R, Failure>>
where
    F: Future<Output = Result<Vec<R>, Failure>>,
{
    let mut results = Vec::with_capacity(count);
    let (mut accepted, mut refusals) = (false, 0);
    let mut open = Vec::from([Range { start: 0, end: count }]);
    while let Some(part) = open.pop() {
        let failure = match send(part.clone()).await {
            Ok(answers) => {
                accepted = true;
                results.extend(answers.into_iter().map(Ok));
                continue;
            }
            Err(failure) => failure,
        };
        refusals += 1;
        let all_fail = match &failure {
            Failure::Refused(_) | Failure::Locked(_) => !accepted && refusals == REFUSED_AT_ALL,
            Failure::NotExecuted(_) | Failure::Unknown(_) => true,
        };
        if all_fail {
            results.resize_with(count, || Err(failure.clone()));
            break;
        }
        if part.len() == 1 {
            results.push(Err(failure));
        } else {
            let middle = part.start + part.len() / 2;
            open.extend([middle..part.end, part.start..middle]);
        }
    }
    results
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::{LockError, backend::kits::postgres::error::backend};

    fn error() -> LockError {
        backend("refused")
    }

    /// Sends the numbers below `count`, of which the server refuses some; returns the refused numbers, and the number
    /// of statements.
    async fn sent(count: usize, is_refused: impl Fn(usize) -> bool) -> (Vec<usize>, u32) {
        let (statements, is_refused) = (Cell::new(0), &is_refused);
        let results = in_halves(count, |mut part| {
            statements.set(statements.get() + 1);
            let all = part.clone().collect();
            async move { if part.any(is_refused) { Err(Failure::Refused(error())) } else { Ok(all) } }
        });
        let results = results.await;
        assert_eq!(results.len(), count);
        let mut failed = Vec::new();
        for (item, result) in results.into_iter().enumerate() {
            match result {
                Ok(of) => assert_eq!(of, item),
                Err(_) => failed.push(item),
            }
        }
        (failed, statements.get())
    }

    #[tokio::test]
    async fn a_refused_item_fails_alone() {
        assert_eq!(sent(1000, |_| false).await, (vec![], 1));
        for bad in [0, 1, 77, 499, 500, 999] {
            let (failed, statements) = sent(1000, |item| item == bad).await;
            assert_eq!(failed, [bad]);
            assert!(statements <= 21, "{statements} statements");
        }
        let (failed, _) = sent(1000, |item| item % 50 == 3).await;
        assert_eq!(failed, (3..1000).step_by(50).collect::<Vec<_>>());
        assert_eq!(sent(1, |_| true).await, (vec![0], 1));
    }

    #[tokio::test]
    async fn what_is_refused_for_all_is_not_sent_for_each() {
        let (failed, statements) = sent(1000, |_| true).await;
        assert_eq!(failed.len(), 1000);
        assert_eq!(statements, REFUSED_AT_ALL);
    }

    #[tokio::test]
    async fn an_outage_is_not_sent_in_halves() {
        let statements = Cell::new(0);
        let results = in_halves(4, |part| {
            statements.set(statements.get() + 1);
            async move {
                match part.len() {
                    4 => Err(Failure::Refused(error())),
                    _ => Err::<Vec<()>, _>(Failure::Unknown(error())),
                }
            }
        });
        let results = results.await;
        assert!(
            results.len() == 4 && results.iter().all(|result| matches!(result, Err(Failure::Unknown(_))))
        );
        assert_eq!(statements.get(), 2);
    }
}
