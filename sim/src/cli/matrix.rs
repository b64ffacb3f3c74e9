//! The matrix: which mishap came down on which verb, how often.

use subtend_sim::simulate::{Mishap, Tally, Verb};

/// Draws it, a line for each verb.
pub(crate) fn draw(tally: &Tally) {
    print!("{:14}", "");
    Mishap::ALL.iter().for_each(|mishap| print!("{:>17}", format!("{mishap:?}")));
    println!();
    for verb in Verb::answered() {
        print!("{:14}", format!("{verb:?}"));
        Mishap::ALL.iter().for_each(|mishap| print!("{:17}", tally.cell(*mishap, verb)));
        println!();
    }
}

/// Cells that nothing was seen of.
pub(crate) fn empty(tally: &Tally) -> Vec<String> {
    let cells = Verb::answered().flat_map(|verb| Mishap::ALL.iter().map(move |mishap| (mishap, verb)));
    cells.filter(|(mishap, verb)| tally.cell(**mishap, *verb) == 0).map(|(m, v)| format!("{m:?} × {v:?}")).collect()
}
