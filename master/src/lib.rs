//! Which server serves which range: the catalog, and the operations that change it.
//!
//! [`Master`] answers [`client::AdminService`], [`client::Locator`] and [`client::Assignments`]
//! over records that a [`coordination::Coordinator`] keeps. The data path needs no master.

mod care;
mod catalog;
mod divide;
mod error;
mod families;
mod groups;
pub mod inspect;
mod locate;
mod master;
pub mod record;
mod tables;

pub use master::{Master, Server};
