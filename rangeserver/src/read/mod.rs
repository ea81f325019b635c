//! Reads: a pinned view, a scan of it, and the encoder of replies.

pub(crate) mod encode;
pub(crate) mod parking;
pub(crate) mod replies;
