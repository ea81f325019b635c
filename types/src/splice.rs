use bytes::Bytes;

/// Bytes that stand elsewhere and belong into a run of bytes: a large value is put in when the run
/// is written, so that it is never copied before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Splice {
    /// So many bytes of the run come before it.
    pub at: usize,
    /// What belongs there.
    pub bytes: Bytes,
}

impl Splice {
    /// The parts of `run` with `splices`, which ascend, put in: in order, some of them empty.
    pub fn parts<'a>(run: &'a [u8], splices: &'a [Splice]) -> impl Iterator<Item = &'a [u8]> {
        let mut from = 0;
        let put_in = splices.iter().flat_map(move |splice| {
            let before = &run[from..splice.at];
            from = splice.at;
            [before, &splice.bytes[..]]
        });
        let rest = splices.last().map_or(0, |last| last.at);
        put_in.chain([&run[rest..]])
    }

    /// Bytes of `run` with `splices` put in.
    pub fn whole_len(run: &[u8], splices: &[Splice]) -> usize {
        run.len() + splices.iter().map(|splice| splice.bytes.len()).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_make_up_the_whole() {
        let splice = |at, bytes| Splice { at, bytes: Bytes::from_static(bytes) };
        let splices = [splice(0, b"12"), splice(2, b"3"), splice(2, b""), splice(4, b"45")];
        let whole: Vec<u8> = Splice::parts(b"abcd", &splices).flatten().copied().collect();
        assert_eq!(whole, b"12ab3cd45");
        assert_eq!(Splice::whole_len(b"abcd", &splices), 9);
        assert_eq!(Splice::parts(b"abcd", &[]).collect::<Vec<_>>(), [b"abcd"]);
    }
}
