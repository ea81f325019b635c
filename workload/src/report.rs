//! Medians over rounds, and the ratios between them.

use std::collections::BTreeMap;

/// What was measured, by name, a number a round.
#[derive(Default)]
pub(crate) struct Samples {
    by_name: BTreeMap<String, Vec<f64>>,
}

impl Samples {
    /// Adds one round's number.
    pub(crate) fn add(&mut self, name: &str, value: f64) {
        self.by_name.entry(name.to_owned()).or_default().push(value);
    }

    /// Prints minimum, median and maximum of everything.
    pub(crate) fn print(&self) {
        println!("\n{:<40} {:>12} {:>12} {:>12}", "", "min", "median", "max");
        for (name, values) in &self.by_name {
            let sorted = sorted(values);
            let last = sorted.len() - 1;
            let median = sorted[sorted.len() / 2];
            println!("{name:<40} {:>12.1} {median:>12.1} {:>12.1}", sorted[0], sorted[last]);
        }
        println!();
    }

    /// Prints the median over the rounds of one number divided by another of the same round.
    pub(crate) fn print_ratio(&self, above: &str, below: &str) {
        let (Some(a), Some(b)) = (self.by_name.get(above), self.by_name.get(below)) else {
            return;
        };
        let ratios: Vec<f64> = a.iter().zip(b).map(|(a, b)| a / b.max(f64::EPSILON)).collect();
        let sorted = sorted(&ratios);
        println!("{above} / {below}: {:.2}", sorted[sorted.len() / 2]);
    }
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}
