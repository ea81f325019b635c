//! Planted bugs are caught: each is switched on and the campaign of crashes must find it; without
//! it the same campaign finds nothing. Built with `RUSTFLAGS="--cfg tepui_planted_bugs"`; any other
//! build has no cases here.
#![cfg(tepui_planted_bugs)]

#[path = "planted/campaigns.rs"]
mod campaigns;
#[path = "planted/pinning.rs"]
mod pinning;
