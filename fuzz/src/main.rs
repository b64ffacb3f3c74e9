//! `subtend-fuzz TARGET SECONDS [SEED]`: runs the corpus of a target and mutations of it. `--list` lists the targets.
//!
//! Exits with 101 if a property fails and with 124 if one input takes longer than [`INPUT_TIMEOUT`]. The input is then in
//! `artifacts/`. `--idle` runs no input and prints the peak address space of the process, to which the caller adds the
//! memory limit of a target.

#![expect(clippy::disallowed_methods, reason = "a search is bounded in real time")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fastrand::Rng;
use subtend_fuzz::{TARGETS, Target, mutate};

const INPUT_TIMEOUT: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--list"] => TARGETS.iter().for_each(|(name, _)| println!("{name}")),
        ["--idle"] => println!("{}", peak_address_space()),
        [name, seconds] => return run(name, seconds, &fastrand::u64(..).to_string()),
        [name, seconds, seed] => return run(name, seconds, seed),
        _ => return usage("wrong arguments"),
    }
    ExitCode::SUCCESS
}

fn usage(why: &str) -> ExitCode {
    let names = TARGETS.map(|(name, _)| name).join(", ");
    eprintln!("{why}; usage: subtend-fuzz TARGET SECONDS [SEED]; targets: {names}");
    ExitCode::from(2)
}

fn run(name: &str, seconds: &str, seed: &str) -> ExitCode {
    let target = TARGETS.iter().find(|(target, _)| *target == name).map(|(_, target)| *target);
    let (Some(target), Ok(seconds), Ok(seed)) = (target, seconds.parse(), seed.parse()) else {
        return usage(&format!("unknown target, or SECONDS or SEED is not a number: {name} {seconds} {seed}"));
    };
    let corpus = match corpus(name) {
        Ok(corpus) if !corpus.is_empty() => corpus,
        Ok(_) => return usage(&format!("the corpus of {name} is empty")),
        Err(error) => return usage(&format!("the corpus of {name} cannot be read: {error}")),
    };
    let runs = search(name, target, &corpus, Duration::from_secs(seconds), Rng::with_seed(seed));
    println!("{name}: {runs} inputs, seed {seed}, peak {} KiB", peak_address_space());
    ExitCode::SUCCESS
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn corpus(name: &str) -> std::io::Result<Vec<Vec<u8>>> {
    fs::read_dir(folder("corpus").join(name))?.map(|entry| fs::read(entry?.path())).collect()
}

/// Runs the corpus, then mutations until the time is over. Returns the number of inputs.
fn search(name: &str, target: Target, corpus: &[Vec<u8>], time: Duration, mut rng: Rng) -> u64 {
    let current = Arc::new(Mutex::new((Instant::now(), Vec::new())));
    watch(name, &current);
    let (started, mut runs) = (Instant::now(), 0);
    let mut seeds = corpus.iter();
    loop {
        let next = seeds.next().cloned();
        if next.is_none() && started.elapsed() >= time {
            return runs;
        }
        let input = next.unwrap_or_else(|| mutate::next_input(corpus, &mut rng));
        set_current(&current, &input);
        let result = std::panic::catch_unwind(|| target(&input));
        if result.is_err() {
            save(name, "crash", &input);
            std::process::exit(101);
        }
        runs += 1;
    }
}

type Current = Arc<Mutex<(Instant, Vec<u8>)>>;

fn set_current(current: &Current, input: &[u8]) {
    if let Ok(mut current) = current.lock() {
        *current = (Instant::now(), input.to_vec());
    }
}

fn watch(name: &str, current: &Current) {
    let (name, current) = (name.to_owned(), Arc::clone(current));
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(Duration::from_millis(200));
            let late =
                current.lock().ok().filter(|current| current.0.elapsed() > INPUT_TIMEOUT).map(|now| now.1.clone());
            if let Some(input) = late {
                eprintln!("{name}: one input takes longer than {INPUT_TIMEOUT:?}");
                save(&name, "slow", &input);
                std::process::exit(124);
            }
        }
    });
}

fn save(name: &str, what: &str, input: &[u8]) {
    let path = folder("artifacts").join(format!("{name}-{what}-{:08x}", crc32c::crc32c(input)));
    let done = fs::create_dir_all(folder("artifacts")).and_then(|()| fs::write(&path, input));
    match done {
        Ok(()) => eprintln!("{name}: the input is in {}", path.display()),
        Err(error) => eprintln!("{name}: the input cannot be written to {}: {error}", path.display()),
    }
}

/// Returns the peak address space of this process in KiB, or 0 if the system does not report it.
fn peak_address_space() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmPeak:"));
    line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse().ok()).unwrap_or(0)
}
