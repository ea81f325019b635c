//! How evenly operations are done: how many in each second.

use std::time::Duration;

use env::Env;

const SECOND: Duration = Duration::from_secs(1);

/// Counts operations by the second in which they end.
pub(crate) struct Pace {
    started: Duration,
    seconds: Vec<u64>,
}

impl Pace {
    pub(crate) fn new(env: &Env) -> Pace {
        Pace { started: env.monotonic(), seconds: Vec::new() }
    }

    /// One more has ended.
    pub(crate) fn count(&mut self, env: &Env) {
        let second = (env.monotonic() - self.started).as_secs() as usize;
        if self.seconds.len() <= second {
            self.seconds.resize(second + 1, 0);
        }
        self.seconds[second] += 1;
    }

    /// The worst second against the median one; the last, which is no whole one, does not count.
    pub(crate) fn print(mut self, name: &str) {
        self.seconds.pop();
        self.seconds.sort_unstable();
        let (Some(&worst), Some(&median)) =
            (self.seconds.first(), self.seconds.get(self.seconds.len() / 2))
        else {
            return println!("{name}: over within {SECOND:?}, so no worst second");
        };
        let share = 100.0 * worst as f64 / median as f64;
        let seconds = self.seconds.len();
        println!("{name}: worst second of {seconds} {worst} ops, {share:.0} % of the median's");
    }
}
