use std::sync::atomic::{AtomicU64, Ordering};

static PANICS: AtomicU64 = AtomicU64::new(0);

/// Counts every panic of the process from now on, before the present hook runs. For binaries: call
/// it once.
pub fn count_panics() {
    let present = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        PANICS.fetch_add(1, Ordering::Relaxed);
        present(panic);
    }));
}

/// How many panics [`count_panics`] has counted.
pub fn panics() -> u64 {
    PANICS.load(Ordering::Relaxed)
}
