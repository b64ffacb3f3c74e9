//! subtend-journal
