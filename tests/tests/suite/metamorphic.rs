//! The same operations under every setting: all answers agree.

use rand::SeedableRng;
use rand::rngs::StdRng;
use tepui_tests::metamorphic::check;

#[test]
fn settings_change_no_answer() {
    for seed in 0..4 {
        if let Err(violation) = check(&mut StdRng::seed_from_u64(seed), 400) {
            panic!("seed {seed}: {violation}");
        }
    }
}
