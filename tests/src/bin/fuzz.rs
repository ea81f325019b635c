//! Runs the fuzzers: `fuzz -- smoke`, or `fuzz -- NAME [--seed N] [--iterations M]`.

use std::process::ExitCode;

use rustix::process::{Resource, Rlimit, setrlimit};
use tepui_tests::fuzz::{CANARY, FUZZERS, Fuzzer};

/// All the address space a decoder of small inputs may make the program take. What asks for more
/// ends it.
const MEMORY_BYTES_MAX: u64 = 768 << 20;

const SEED: u64 = 1;
const ITERATIONS: u64 = 100_000;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let limit = Rlimit { current: Some(MEMORY_BYTES_MAX), maximum: Some(MEMORY_BYTES_MAX) };
    if let Err(error) = setrlimit(Resource::As, limit) {
        eprintln!("error: cannot limit the memory: {error}");
        return ExitCode::FAILURE;
    }
    let Some((name, options)) = arguments.split_first() else {
        return usage();
    };
    if name == "smoke" {
        return smoke();
    }
    let (Some(fuzzer), Some((seed, iterations))) = (Fuzzer::find(name), parse(options)) else {
        return usage();
    };
    run(fuzzer, seed, iterations)
}

fn usage() -> ExitCode {
    eprintln!("usage: fuzz smoke | fuzz NAME [--seed N] [--iterations M]\n\nnames:");
    for fuzzer in FUZZERS.iter().chain([&CANARY]) {
        eprintln!("  {}", fuzzer.name);
    }
    ExitCode::from(2)
}

fn parse(options: &[String]) -> Option<(u64, u64)> {
    let (mut seed, mut iterations) = (SEED, ITERATIONS);
    for option in options.chunks(2) {
        let [name, value] = option else {
            return None;
        };
        let value = value.parse().ok()?;
        match name.as_str() {
            "--seed" => seed = value,
            "--iterations" => iterations = value,
            _ => return None,
        }
    }
    Some((seed, iterations))
}

fn run(fuzzer: Fuzzer, seed: u64, iterations: u64) -> ExitCode {
    match fuzzer.run(seed, iterations) {
        Ok(()) => {
            println!("{}: {iterations} cases from seed {seed}: fine", fuzzer.name);
            ExitCode::SUCCESS
        }
        Err(failed) => {
            let name = fuzzer.name;
            println!("{name}: FAILED with seed {failed}. Replay it with:");
            println!(
                "  cargo run -p tepui-tests --bin fuzz -- {name} --seed {failed} --iterations 1"
            );
            ExitCode::FAILURE
        }
    }
}

/// Runs every fuzzer briefly, after making sure that a failure is noticed.
fn smoke() -> ExitCode {
    println!("the canary fails on purpose:");
    if CANARY.run(SEED, 1).is_ok() {
        println!("FAILED: the canary's failure went unnoticed");
        return ExitCode::FAILURE;
    }
    for fuzzer in FUZZERS {
        if run(*fuzzer, SEED, fuzzer.smoke) != ExitCode::SUCCESS {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
