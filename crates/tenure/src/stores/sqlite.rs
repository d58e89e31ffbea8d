//! `sqlite:`
