//! The negative control of `.ci/words`: what it must find here is in `expected`. Cargo does not build this file.

/// Returns whether the owner is
/// told of the end.
fn split_over_lines() {}

/* A block comment in which a run goes on. */
const MESSAGE: &str = "approval needs \
    a person's word";
const RAW: &str = r#"the session "x" is made anew"#;

// Not found: `told` is code, "looks like" is allowed, and so are a lifetime 'a and a literal without a space.
// ```
// let told = 1; // told
// ```
const ONE_WORD: &str = "told";
const QUOTE: char = '"'; // Does it.

#[test]
#[should_panic]
fn a_test_whose_name_has_more_than_the_sixty_characters_that_are_allowed() {}

#[tokio::test(start_paused = true)]
async fn append_after_fence_is_rejected() {}

fn an_ordinary_function_whose_name_has_more_than_the_sixty_characters_of_a_test() {}

struct NotABirth {
    goes_on: bool, // `born` in a comment is not found
    notices_stand: bool,
    queue_stands: bool,
}

fn all_kids(skid: &str, standard: &str) {
    println!("kids {skid} {standard}")
}
