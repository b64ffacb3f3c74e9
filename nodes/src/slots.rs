//! Divides the slots of a node among the shards that are open there, by demand.

/// Runs of a shard that hold a slot, and runs that wait for one.
pub(crate) type Demand = (usize, usize);

/// Returns the maximum number of slots of each shard. The slots that shards hold or may take do not exceed `share`,
/// except that each shard may take one slot.
///
/// Shards get equal parts, but none more than it needs while others need more. Slots that no shard needs are divided
/// evenly, so that a run can start before the next division. No slot is revoked: a shard above its part gets no more
/// slots, and other shards wait for those that it returns.
pub(crate) fn divide(share: usize, demands: &[Demand]) -> Vec<usize> {
    let needed: Vec<usize> = demands.iter().map(|(held, waiting)| held.saturating_add(*waiting)).collect();
    let mut parts = divide_evenly(share, &needed);
    let spare = share.saturating_sub(parts.iter().sum());
    let extra = divide_evenly(spare, &vec![usize::MAX; parts.len()]);
    parts.iter_mut().zip(extra).for_each(|(part, extra)| *part = part.saturating_add(extra));
    let free = share.saturating_sub(demands.iter().map(|(held, _)| held).sum());
    let below: Vec<usize> = parts.iter().zip(demands).map(|(part, (held, _))| part.saturating_sub(*held)).collect();
    let more = divide_evenly(free, &below);
    let bound = |((part, (held, _)), more): ((usize, &Demand), usize)| part.min(held.saturating_add(more)).max(1);
    parts.into_iter().zip(demands).zip(more).map(bound).collect()
}

/// Divides `total` into parts of at most `wanted`. Parts that got less than wanted differ by at most one.
fn divide_evenly(total: usize, wanted: &[usize]) -> Vec<usize> {
    let (mut left, mut parts) = (total, vec![0_usize; wanted.len()]);
    loop {
        let open = parts.iter().zip(wanted).filter(|(part, wanted)| part < wanted).count();
        let Some(each) = left.checked_div(open).filter(|_| left > 0) else { return parts };
        for (part, wanted) in parts.iter_mut().zip(wanted) {
            let more = wanted.saturating_sub(*part).min(each.max(1)).min(left);
            *part = part.saturating_add(more);
            left = left.saturating_sub(more);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d2_slots_go_to_the_shards_that_need_them() {
        let cases: [(usize, &[Demand], &[usize]); 8] = [
            (8, &[(0, 0), (0, 0)], &[4, 4]),
            // One wide tree, and shards without runs.
            (8, &[(4, 90), (0, 0), (0, 0)], &[8, 1, 1]),
            // The first shard holds all slots, and the second one has waiting runs.
            (8, &[(8, 90), (0, 5)], &[4, 1]),
            (8, &[(5, 90), (1, 4)], &[4, 3]),
            (8, &[(4, 90), (4, 1)], &[4, 4]),
            (8, &[(4, 90), (1, 1)], &[6, 2]),
            // More shards than slots.
            (1, &[(0, 3), (0, 3), (0, 0)], &[1, 1, 1]),
            (8, &[], &[]),
        ];
        for (share, demands, bounds) in cases {
            assert_eq!(divide(share, demands), bounds, "{share} for {demands:?}");
        }
    }

    /// Slots that shards hold or may take never exceed the share, apart from one slot for each shard.
    #[test]
    fn d2_divided_slots_do_not_exceed_the_share() {
        let (values, share) = ([0, 1, 2, 3, 5, 9], 9);
        for n in 0..values.len().pow(4) {
            let at = |place: u32| values[n / values.len().pow(place) % values.len()];
            let demands = [(at(0), at(1)), (at(2), at(3))];
            let bounds = divide(share, &demands);
            let most = |(bound, (held, _)): (&usize, &Demand)| (*bound).max(*held);
            let taken: usize = bounds.iter().zip(&demands).map(most).sum();
            let held: usize = demands.iter().map(|(held, _)| held).sum();
            assert!(taken <= share.max(held) + 1, "{demands:?}: {bounds:?}");
            let starts =
                bounds.iter().zip(&demands).map(|(bound, (held, waiting))| bound.saturating_sub(*held).min(*waiting));
            let waiting: usize = demands.iter().map(|(_, waiting)| waiting).sum();
            let unused = share.saturating_sub(held).min(waiting);
            assert!(starts.sum::<usize>() + 1 >= unused, "{demands:?}: {bounds:?} leave slots unused");
        }
    }
}
