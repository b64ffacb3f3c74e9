//! The schemas that are shipped for editors.

mod shipped;
