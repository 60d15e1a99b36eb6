//! Stub until the attribute's own lands.
use std::fmt::Display;
#[derive(Debug, Default)]
pub struct KeyParts(String);
impl KeyParts {
    pub fn new() -> Self {
        Self::default()
    }
    pub fn literal(&mut self, text: &str) {
        self.0.push_str(text);
    }
    pub fn value<T: KeyValue + ?Sized>(&mut self, _p: &str, value: &T) {
        self.0.push_str(&value.to_string());
    }
    pub fn finish(self) -> Result<String, std::fmt::Error> {
        Ok(self.0)
    }
}
pub trait KeyValue: Display {}
impl<T: Display + ?Sized> KeyValue for T {}
