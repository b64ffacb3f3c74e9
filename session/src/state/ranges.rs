/// Ranges of the transcript, in order and without overlaps. A search takes logarithmic time, because an imported journal
/// may have tens of thousands.
#[derive(Debug)]
pub(crate) struct Ranges(Vec<(usize, usize)>);

impl Ranges {
    pub(crate) fn new(ranges: impl Iterator<Item = (usize, usize)>) -> Self {
        Self(ranges.collect())
    }

    /// Returns the start of the range that contains `at`.
    pub(crate) fn around(&self, at: usize) -> Option<usize> {
        let next = self.0.partition_point(|(_, to)| *to <= at);
        self.0.get(next).filter(|(from, _)| *from <= at).map(|(from, _)| *from)
    }
}
