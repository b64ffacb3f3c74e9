//! The matrix of faults and requests: how often each fault occurred during each kind of request.

use subtend_sim::simulate::{FaultKind, Tally, Verb};

/// Number of columns in one block, which fits a wide terminal.
const COLUMNS: usize = 9;

pub(crate) fn print_matrix(tally: &Tally) {
    for block in FaultKind::ALL.chunks(COLUMNS) {
        print!("{:14}", "");
        block.iter().for_each(|fault| print!("{:>17}", format!("{fault:?}")));
        println!();
        for verb in Verb::of_matrix() {
            print!("{:14}", format!("{verb:?}"));
            block.iter().for_each(|fault| print!("{:17}", tally.cell(*fault, verb)));
            println!();
        }
    }
}

pub(crate) fn empty_cells(tally: &Tally) -> Vec<String> {
    let cells = Verb::of_matrix().flat_map(|verb| FaultKind::ALL.iter().map(move |fault| (fault, verb)));
    cells.filter(|(fault, verb)| tally.cell(**fault, *verb) == 0).map(|(m, v)| format!("{m:?} × {v:?}")).collect()
}
