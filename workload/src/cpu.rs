//! The CPU time and the memory of a process, as the operating system accounts them.

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

/// The most resident memory that the process has had, bytes.
#[expect(clippy::disallowed_methods, reason = "reads the kernel's accounting, not data")]
pub(crate) fn peak_memory(pid: u32) -> Result<u64> {
    let status = String::from_utf8(std::fs::read(format!("/proc/{pid}/status"))?)?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("no peak")?;
    let kib: u64 = peak.trim().trim_end_matches(" kB").parse()?;
    Ok(kib << 10)
}
