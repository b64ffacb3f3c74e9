//! The matrix: how often each mishap occurred during each verb.

use subtend_sim::simulate::{Mishap, Tally, Verb};

/// Columns of one block, for a wide terminal.
const COLUMNS: usize = 9;

pub(crate) fn print_matrix(tally: &Tally) {
    for block in Mishap::ALL.chunks(COLUMNS) {
        print!("{:14}", "");
        block.iter().for_each(|mishap| print!("{:>17}", format!("{mishap:?}")));
        println!();
        for verb in Verb::answered() {
            print!("{:14}", format!("{verb:?}"));
            block.iter().for_each(|mishap| print!("{:17}", tally.cell(*mishap, verb)));
            println!();
        }
    }
}

pub(crate) fn empty_cells(tally: &Tally) -> Vec<String> {
    let cells = Verb::answered().flat_map(|verb| Mishap::ALL.iter().map(move |mishap| (mishap, verb)));
    cells.filter(|(mishap, verb)| tally.cell(**mishap, *verb) == 0).map(|(m, v)| format!("{m:?} × {v:?}")).collect()
}
