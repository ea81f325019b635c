//! The CPU time of a process, as the operating system accounts it.

use std::time::Duration;

use crate::Result;

/// Ticks per second of the times in `/proc/PID/stat`; fixed by the kernel's interface.
const TICKS_PER_SECOND: u64 = 100;

/// User and system time that the process has used so far.
#[expect(clippy::disallowed_methods, reason = "reads the kernel's accounting, not data")]
pub(crate) fn used(pid: u32) -> Result<Duration> {
    let stat = String::from_utf8(std::fs::read(format!("/proc/{pid}/stat"))?)?;
    // The second field, the command in parentheses, may hold spaces: count from its end.
    let fields = stat.rsplit_once(')').ok_or("malformed stat")?.1;
    let mut fields = fields.split_whitespace().skip(11);
    let mut ticks = || -> Result<u64> { Ok(fields.next().ok_or("short stat")?.parse()?) };
    let total = ticks()? + ticks()?;
    Ok(Duration::from_millis(total * 1000 / TICKS_PER_SECOND))
}
