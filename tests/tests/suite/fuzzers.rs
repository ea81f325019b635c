//! The fuzzers, very briefly: `cargo run -p tepui-tests --bin fuzz -- smoke` takes them further.

use tepui_tests::fuzz::{CANARY, FUZZERS};

/// Seeds that the smoke run does not use.
const SEED: u64 = 1 << 40;

#[test]
fn every_fuzzer_passes_a_few_cases_and_a_failure_is_noticed() {
    assert_eq!(CANARY.run(SEED, 1), Err(SEED), "the canary fails on purpose");
    for fuzzer in FUZZERS {
        assert_eq!(fuzzer.run(SEED, fuzzer.smoke / 50), Ok(()), "fuzzer {}", fuzzer.name);
    }
}
