use super::page::Page;

fn below(help: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names = lines.filter(|line| !line.starts_with("   ")).filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

fn write(page: &mut Page, path: &str) -> usize {
    let help = page.prints(format!("{path} --help").trim_start()).out;
    let below = below(&help);
    1 + below.iter().map(|name| write(page, format!("{path} {name}").trim_start())).sum::<usize>()
}

/// Covers every command that the help lists, and the hidden ones.
#[test]
fn help_of_every_command_matches_its_snapshot() {
    let mut page = Page::new();
    let commands = write(&mut page, "");
    assert!(commands > 45, "{commands} commands");
    page.prints("prompt --help");
    page.check("help");
}
