//! The commit log against disks that crash, tear, fail and rot.

#[path = "suite/bytes.rs"]
mod bytes;
#[path = "suite/crash.rs"]
mod crash;
#[path = "suite/damage.rs"]
mod damage;
#[path = "suite/session.rs"]
mod session;
#[path = "suite/writing.rs"]
mod writing;
