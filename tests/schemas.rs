//! The schemas that are shipped for editors.

#[cfg(test)]
mod schemas {
    mod shipped;
}
