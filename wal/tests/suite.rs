//! The commit log against disks that crash, tear, fail and rot.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

mod suite {
    mod bytes;
    mod crash;
    mod damage;
    mod session;
    mod writing;
}
