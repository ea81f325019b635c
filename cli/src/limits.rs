//! What the operating system lets this process have.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// More open files than this are of no use.
const OPEN_FILES_MAX: u64 = 32_768;

/// Raises the number of files that this process may open as far as it is allowed to, and says how
/// many of them may be data files: half; the others are for connections.
pub(crate) fn open_data_files() -> usize {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.map_or(OPEN_FILES_MAX, |maximum| maximum.min(OPEN_FILES_MAX));
    let mut may_open = current.unwrap_or(OPEN_FILES_MAX);
    if may_open < wanted {
        let raised = Rlimit { current: Some(wanted), maximum };
        // Where it cannot be raised, the server does with what there is.
        if setrlimit(Resource::Nofile, raised).is_ok() {
            may_open = wanted;
        }
    }
    let half = may_open.min(OPEN_FILES_MAX) / 2;
    usize::try_from(half.max(16)).expect("it is small")
}
