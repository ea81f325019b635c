//! How often a failed call is made again, and how long to wait in between.

use std::time::Duration;

use env::Env;
use types::ErrorKind;

use crate::{Error, Result};

/// Calls in all, the first one included.
const ATTEMPTS_MAX: u32 = 8;
const FIRST_WAIT: Duration = Duration::from_millis(20);
const WAIT_MAX: Duration = Duration::from_secs(2);

/// Counts the attempts of one operation; progress starts the count again.
pub(crate) struct Attempts {
    failed: u32,
}

impl Attempts {
    pub(crate) fn new() -> Attempts {
        Attempts { failed: 0 }
    }

    /// The operation got on: what failed before no longer counts.
    pub(crate) fn progressed(&mut self) {
        self.failed = 0;
    }

    /// Waits before the next attempt.
    ///
    /// # Errors
    /// `error` itself when it is not `retriable` or there were enough attempts.
    pub(crate) async fn wait(&mut self, env: &Env, error: Error, retriable: bool) -> Result<()> {
        self.failed += 1;
        if !retriable || self.failed >= ATTEMPTS_MAX {
            return Err(error);
        }
        let doubled = FIRST_WAIT.saturating_mul(1 << (self.failed - 1).min(16)).min(WAIT_MAX);
        // A part of it is random, so that those who failed together do not return together.
        let (least, spread) = match error.retry_delay() {
            Some(asked) => (asked, asked / 2),
            None => (doubled / 2, doubled / 2),
        };
        let spread = u64::try_from(spread.as_micros()).unwrap_or(u64::MAX).max(1);
        env.sleep(least + Duration::from_micros(env.random_u64() % spread)).await;
        Ok(())
    }
}

/// May a read that failed so be made again? It changes nothing, so whenever waiting may help.
pub(crate) fn read_again(error: &Error) -> bool {
    match error.kind() {
        ErrorKind::Unavailable | ErrorKind::Aborted => true,
        ErrorKind::ResourceExhausted => error.retry_delay().is_some(),
        _ => false,
    }
}

/// May a write that failed so be made again? Where its outcome is unknown, only a repeatable one.
pub(crate) fn write_again(error: &Error, repeatable: bool) -> bool {
    match error.kind() {
        ErrorKind::Unavailable => true,
        ErrorKind::Aborted => repeatable,
        ErrorKind::ResourceExhausted => error.retry_delay().is_some(),
        _ => false,
    }
}
