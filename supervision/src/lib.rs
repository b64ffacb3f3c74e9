//! subtend-supervision
