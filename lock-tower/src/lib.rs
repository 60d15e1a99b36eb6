//! A tower layer.
