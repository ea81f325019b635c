//! The crash campaign by its own command: random histories, crashed at random points, for as long
//! as is asked for; or one of them again.

use std::process::ExitCode;
use std::time::Duration;

use env::Env;
use tepui_tests::history::campaign::{Failure, one, some_points};
use tepui_tests::history::coverage::Coverage;

/// Crash points of each history.
const POINTS: u64 = 25;
const PROGRESS_EVERY: Duration = Duration::from_secs(10);

struct Arguments {
    seconds: u64,
    seed: u64,
    point: Option<u64>,
    is_one: bool,
}

fn parse() -> Option<Arguments> {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let mut arguments = Arguments {
        seconds: 600,
        seed: Env::system().random_u64() >> 16,
        point: None,
        is_one: true,
    };
    for option in given.chunks(2) {
        let [name, value] = option else {
            return None;
        };
        let value = value.parse().ok()?;
        match name.as_str() {
            "--seconds" => {
                arguments.seconds = value;
                arguments.is_one = false;
            }
            "--seed" => arguments.seed = value,
            "--point" => arguments.point = Some(value),
            _ => return None,
        }
    }
    arguments.is_one &= given.iter().any(|name| name == "--seed");
    Some(arguments)
}

fn main() -> ExitCode {
    let Some(arguments) = parse() else {
        eprintln!("usage: crash [--seconds N] [--seed N] | crash --seed N [--point N]");
        return ExitCode::from(2);
    };
    let mut coverage = Coverage::default();
    let ended = if arguments.is_one {
        one(arguments.seed, arguments.point, None, &mut coverage).map(drop)
    } else {
        campaign(&arguments, &mut coverage)
    };
    println!("{}", coverage.report());
    match ended {
        Ok(()) => {
            println!("no promise was broken");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            println!("FAILED: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn campaign(arguments: &Arguments, coverage: &mut Coverage) -> Result<(), Failure> {
    let env = Env::system();
    let started = env.monotonic();
    let mut told = Duration::ZERO;
    println!("histories from seed {} for {} s", arguments.seed, arguments.seconds);
    for seed in arguments.seed.. {
        let passed = env.monotonic().saturating_sub(started);
        if passed.as_secs() >= arguments.seconds {
            break;
        }
        if passed.saturating_sub(told) >= PROGRESS_EVERY {
            told = passed;
            let points = coverage.count("crash points");
            println!("{:>6} s  {points} crash points, at seed {seed}", passed.as_secs());
        }
        some_points(seed, POINTS, None, coverage)?;
    }
    Ok(())
}
